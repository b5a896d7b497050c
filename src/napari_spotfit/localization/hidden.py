"""Find the spots of volumes that brighter ones beside them hide: in what the first fits leave."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import Backend, Columns
from ..engine.block import Block, Positions
from ..engine.detection.candidates import Candidates, joined
from ..engine.fit_job import FitJob
from ..engine.quality.flags import NOT_GOOD
from ..images.arrays import to_host
from ..results.model_image import light_image
from ..settings.camera_noise import noise_of
from ..settings.settings import Settings

#: Where fewer than this share of the spots have another one so many widths away, none are hidden
#: that are worth a second search.
_CROWDED, _NEAR = 0.1, 5.0
#: Widths from all spots at which another one may be; how far their light is drawn; and the error
#: of their shape as a part of their light: what is less than that may be left of any spot.
_APART, _DRAWN, _SHAPE_ERROR = 1.0, 3.5, 0.05


def with_hidden(
    backend: Backend, job: FitJob, block: Block, detection: Settings, found: Candidates
) -> Candidates:
    """Return the spots found in volumes, and those beside them that show in the residual.

    A maximum merges with that of a brighter spot up to 2.5 widths away. The light of all good fits
    is taken off, and what is left is searched by the same threshold; there, the noise is that of
    the light, too, and of errors of its shape.

    Parameters
    ----------
    backend : Backend
        What detects and fits.
    job : FitJob
        How to fit.
    block : Block
        The frames; planes have no hidden spots.
    detection : Settings
        What finds spots.
    found : Candidates
        The spots that were found.
    """
    if found.z is None or job.sigma is None or job.sigma_z is None:
        return found
    widths = np.array([job.sigma_z, job.sigma, job.sigma])
    places = found.places() / widths
    crowded = [
        frame for frame in range(len(block.pixels))
        if _is_crowded(places[found.frame == frame])
    ]  # fmt: skip
    if not crowded:
        return found
    columns = backend.fit(job, block, Positions(found.places(), found.frame))
    parts = [found]
    for frame in crowded:
        own = found.frame == frame
        left = _residual(job, block, frame, {name: one[own] for name, one in columns.items()})
        more = backend.detect(left, detection)
        if len(more.y):
            far = _distances(more.places() / widths, places[own]) > _APART
            parts.append(more.rows(far)._replace(frame=np.full(int(far.sum()), frame)))
    every = joined(parts)
    assert every.z is not None
    return every.rows(np.lexsort((every.x, every.y, every.z, every.frame)))


def _residual(job: FitJob, block: Block, frame: int, columns: Columns) -> Block:
    """Return a frame without the light of its good fits, which adds to the noise."""
    good = (columns["flags"] & int(NOT_GOOD)) == 0
    kept = {name: to_host(one)[good] for name, one in columns.items()}
    pixels = to_host(block.pixels)[frame]
    light = light_image(kept, (), job.settings, pixels.shape, _DRAWN)
    noise = noise_of(job.settings)
    variance = (0.0 if noise is None else noise.slope) * np.maximum(light, 0)
    variance += (_SHAPE_ERROR * light) ** 2
    if block.noise_map is not None:
        variance += to_host(block.noise_map)
    left = (pixels - light)[np.newaxis]
    mask = block.mask
    if mask is not None and len(mask) == len(block.pixels) and mask.ndim > 3:
        mask = mask[frame : frame + 1]
    return replace(
        block, pixels=left, taken=left, noise_map=np.ascontiguousarray(variance, np.float32),
        mask=mask, uploaded=None,
    )  # fmt: skip


def _is_crowded(places: NDArray[np.float64]) -> bool:
    """Whether many spots have another one beside them; distances are in widths."""
    if len(places) < 2:
        return False
    from scipy.spatial import cKDTree  # here, as SciPy takes its time to import

    nearest = cKDTree(places).query(places, 2)[0][:, 1]
    return bool(np.mean(nearest < _NEAR) > _CROWDED)


def _distances(places: NDArray[np.float64], others: NDArray[np.float64]) -> Any:
    """Return how far each place is from the nearest of others."""
    if not len(others):
        return np.full(len(places), math.inf)
    from scipy.spatial import cKDTree  # here, as SciPy takes its time to import

    return cKDTree(others).query(places)[0]
