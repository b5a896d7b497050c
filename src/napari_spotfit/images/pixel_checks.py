"""Check what is given of an image's pixels: maps of a camera, weights and counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.estimators import ESTIMATORS, Estimator
from ..models.number_checks import accepted, is_wrong
from ..settings.settings import Settings
from .arrays import to_host
from .camera import Camera


def check_together(settings: Settings, weights: bool, camera: Camera) -> None:
    """Check that the estimator accepts weights and camera, and that nothing is given twice."""
    given = {
        "offset": settings.offset != 0,
        "gain": settings.gain is not None,
        "variance": settings.variance is not None,
    }
    for name, is_given in given.items():
        if is_given and getattr(camera, name) is not None:
            raise ValueError(f"the {name} is given twice: pass it in the camera, or as {name}=…")
    estimator = settings.estimator_kind
    if weights and not estimator.needs_weights:
        weighted = " or ".join(repr(one.name) for one in ESTIMATORS.values() if one.needs_weights)
        raise ValueError(
            f"weights are for estimator={weighted}; got estimator={estimator.name!r}. To exclude "
            "pixels, pass bad_pixels"
        )
    known = camera.variance is not None or settings.variance is not None
    if estimator.needs_weights and not (weights or known):
        raise ValueError(f"estimator={estimator.name!r} needs {estimator.needs}")


def check_map(name: str, values: Any, bad: Any, spatial: int) -> None:
    """Check the values of a map, except at bad pixels."""
    wrong = is_wrong(name, values)
    if bad is not None:
        wrong = wrong & ~bad
    count = int(wrong.sum())
    if count:
        what = name if name == "weights" else f"the camera's {name}"
        place = tuple(int(axis[0]) for axis in to_host(wrong).nonzero()[-spatial:])
        raise ValueError(
            f"{what} must be {accepted(name)} in every pixel that is used; {count} of {wrong.size} "
            f"are not, the first at {place}. Exclude them by bad_pixels"
        )


def check_counts_of(counts: NDArray[Any], offset: float, estimator: Estimator) -> None:
    """Check that counts of the pixels of spots may be those of photons."""
    known = counts[np.isfinite(counts)]
    dark = float(np.mean(known < offset)) if known.size else 0.0
    if dark > 0.5:
        raise ValueError(
            f"estimator={estimator.name!r} needs counts of photons, but {dark:.0%} of the pixels "
            f"of the spots lie below the camera's offset ({offset:g} counts). The offset is too "
            "high, or it or a background has been subtracted from the image before: pass the raw "
            "image and the camera's own offset, or use estimator='lse'"
        )
