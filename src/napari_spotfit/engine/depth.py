"""Find z from the fitted widths: a backend around the one that fits.

The fits are those of an elliptical Gaussian, rotated as the lens is; the calibration turns both
widths into z, and removes the shift of the centre with z. Where it has the beads' image, a fit of
this measured PSF goes on from there, and gives x, y and z and their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import like, to_host
from ..models.astigmatism import DEPTH_COLUMNS, AstigmatismCalibration
from ..models.columns import IN_PLANE, STDERR, STOP
from ..models.profiles import GAUSSIAN_ELLIPTICAL
from ..settings.settings import Settings
from .backend import Backend, Block, BlockFitter, Columns, Positions
from .candidates import Candidates
from .crowds import Crowds
from .fit_job import FitJob
from .flags import Flag
from .verdicts import depth_flags

Array = NDArray[np.float64]

#: Widths, and levels of the background over the amplitude, at which the correlation is tabulated.
_WIDTHS, _LEVELS = 12, 9
_LEAST_WIDTH, _LEAST_LEVEL, _MOST_LEVEL = 0.5, 1e-3, 1e2
#: A step of numerical derivatives.
_STEP = 1e-4
_LARGEST_ROI = 33
#: Fits whose last step changed χ² by less rest: with 1e-6, z is up to 0.15 nm from where it would
#: settle, and so is that of two machines whose fits end a step apart; so it is 0.05 nm.
_MIN_DELTA = 1e-7
#: Standard errors by which z of the beads' image may differ from that of widths.
_FAR = 6.0
#: By how much χ² of the image must be less than that of the Gaussian where its flag counts: with 5,
#: true spots are flagged less often, and beads up to 300 nm beyond a range as often as by widths.
_CLEARLY = 5.0


class DepthBackend:
    """Fits by another backend, whose widths an astigmatism calibration turns into z."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name, self.reads_all = backend.name, backend.reads_all
        self.kind: Literal["cpu", "cuda"] = backend.kind
        self.load, self.long_movies = backend.load, backend.long_movies

    def ran_on(self) -> str:
        """Return what has done the work up to now, by name."""
        return self._backend.ran_on()

    def detect(self, block: Block, settings: Settings) -> Candidates:
        """Find spots, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        return self._backend.detect(block, settings)

    def fit(
        self,
        job: FitJob,
        block: Block,
        positions: Positions | None = None,
        start: Any = None,
        *,
        on_device: bool = False,
    ) -> Columns:
        """Fit, as :class:`~napari_spotfit.engine.backend.Backend` says; with z."""
        own = job_of_widths(job)
        columns = self._backend.fit(own, block, positions, start, on_device=on_device)

        def go_on(places: Positions | None, begin: Any) -> Columns:
            own = job_of_image(job)
            return self._backend.fit(own, block, places, begin, on_device=on_device)

        return with_depth(columns, job, positions, go_on)

    def fit_crowds(self, block: Block, crowds: Crowds) -> NDArray[np.void]:
        """Fit the spots of crowds together, as their own backend does."""
        return self._backend.fit_crowds(block, crowds)

    def fitter(self, job: FitJob) -> BlockFitter:
        """Prepare fits of one job that are made again and again."""
        return _DepthFitter(self._backend, job)


class _DepthFitter:
    """Repeats fits of one job."""

    def __init__(self, backend: Backend, job: FitJob) -> None:
        self._job, self._fitter = job, backend.fitter(job_of_widths(job))
        if _lens(job).psf is not None:
            self._last = backend.fitter(job_of_image(job))

    def fit(self, block: Block, positions: Positions | None = None, start: Any = None) -> Columns:
        columns = self._fitter.fit(block, positions, start)
        return with_depth(columns, self._job, positions, partial(self._last_fit, block))

    def _last_fit(self, block: Block, places: Positions | None, begin: Any) -> Columns:
        return self._last.fit(block, places, begin)


def _lens(job: FitJob) -> AstigmatismCalibration:
    model = job.settings.model
    assert isinstance(model, AstigmatismCalibration)
    return model


@lru_cache(maxsize=64)
def job_of_widths(job: FitJob) -> FitJob:
    """Return the job of the elliptical fits, whose standard errors weigh both widths."""
    model = _lens(job)
    fixed = {**job.settings.fixed, **({"angle": model.angle} if model.angle else {})}
    settings = job.settings.changed(
        model=model.profile.name, fixed=fixed, errors=True,
        min_delta=min(job.settings.min_delta, _MIN_DELTA),
    )  # fmt: skip
    return replace(job, settings=settings, of_widths=True)


@lru_cache(maxsize=64)
def job_of_image(job: FitJob) -> FitJob:
    """Return the job of the fits of the beads' image."""
    settings = job.settings.changed(
        model=_lens(job).psf, errors=True, pixel="sampled",
        min_delta=min(job.settings.min_delta, _MIN_DELTA),
    )  # fmt: skip
    return replace(job, settings=settings)


def with_depth(
    columns: Columns,
    job: FitJob,
    positions: Positions | None,
    go_on: Callable[[Positions | None, Any], Columns],
) -> Columns:
    """Return the columns of elliptical fits with z in nm, and centres as at z = 0.

    Parameters
    ----------
    columns : dict of str to array
        Those of the fits.
    job : FitJob
        Theirs, with the calibration as model.
    positions : Positions, optional
        Where they are; None: they are of cut-outs.
    go_on : callable
        Fits the beads' image to the same spots, at positions with z, or of cut-outs from start
        values.
    """
    settings, model = job.settings, _lens(job)
    host = {name: to_host(column) for name, column in columns.items()}
    z, error, p_value = located(host, model, settings, job.roi_shape)
    places: dict[str, Array] = {}
    for axis, (shift, slope) in model.shift(z, _levels(host, settings)).items():
        places[axis] = host[axis] - shift
        places[axis + STDERR] = np.hypot(host[axis + STDERR], slope * np.nan_to_num(error))
    if model.psf is not None and not {*IN_PLANE} & {*settings.fixed, *settings.bounds}:
        z, error = _with_image(host, z, error, places, model, positions, go_on)
    for name, values in places.items():
        columns[name][:] = like(values.astype(host[name].dtype), columns[name])
    made = {
        name: like(values.astype(kind), columns["y"])
        for name, values, kind in zip(
            DEPTH_COLUMNS, (z, p_value, error), ("f8", "f4", "f4"), strict=True
        )
    }
    if "flags" in columns:
        columns["flags"] |= depth_flags({"z": z, STOP: host[STOP]}, settings)
    # z stands with y and x, its error with theirs.
    placed: Columns = {}
    for name, column in columns.items():
        if name == "y":
            placed[DEPTH_COLUMNS[0]] = made[DEPTH_COLUMNS[0]]
        if name == "y" + STDERR:
            placed[DEPTH_COLUMNS[2]] = made[DEPTH_COLUMNS[2]]
        if settings.errors or not name.endswith(STDERR):
            placed[name] = column
        if name == "reduced_chi_square":
            placed[DEPTH_COLUMNS[1]] = made[DEPTH_COLUMNS[1]]
    if not settings.errors:
        placed.pop(DEPTH_COLUMNS[2])
    return placed


def _with_image(
    host: Columns,
    z: Array,
    error: Array,
    places: dict[str, Array],
    model: AstigmatismCalibration,
    positions: Positions | None,
    go_on: Callable[[Positions | None, Any], Columns],
) -> tuple[Array, Array]:
    """Return z and its error by the beads' image, and put y, x and their errors in their places.

    Where z of widths is no number, at an end, or far from that of the image, it stays.
    """
    begin = (np.nan_to_num(z) / model.index_factor).astype(np.float32)
    if positions is None:
        start = np.column_stack([*(places[axis] for axis in IN_PLANE), begin])
        found = go_on(None, start.astype(np.float32))
    else:
        found = go_on(positions._replace(z=begin), None)
    own = {
        name + kind: to_host(found[name + kind]).astype(float)
        for name in ("z", *IN_PLANE)
        for kind in ("", STDERR)
    }
    if model.unlike is not None:
        beside = model.unlike(np.clip(own["z"], model.low, model.high))
        own["z" + STDERR] = np.hypot(own["z" + STDERR], beside)
    own_z, own_error = model.index_factor * own["z"], model.index_factor * own["z" + STDERR]
    with np.errstate(invalid="ignore"):
        taken = np.isfinite(own_error) & (np.abs(own_z - z) < _FAR * error)
    for name, values in places.items():
        values[taken] = own[name][taken]
    if "flags" in host:
        # A spot beyond the range, or a half of it, is rather a Gaussian than the beads' image.
        likely = taken & (to_host(found["chi_square"]) < host["chi_square"] - _CLEARLY)
        at_limit, flags = np.uint32(Flag.Z_AT_LIMIT), to_host(found["flags"])
        host["flags"][likely] = host["flags"][likely] & ~at_limit | flags[likely] & at_limit
    low, high = model.range
    inside = (own_z > low) & (own_z < high)
    return (
        np.where(taken, np.clip(own_z, low, high), z),
        np.where(taken, np.where(inside, own_error, np.nan), error),
    )


def located(
    columns: Columns,
    model: AstigmatismCalibration,
    settings: Settings,
    roi_shape: tuple[int, ...],
) -> tuple[Array, Array, Array]:
    """Return z of elliptical fits, its standard error, and how probable both widths are."""
    x, y = (columns[f"sigma_{axis}"] for axis in "xy")
    error_x, error_y = (columns[f"sigma_{axis}{STDERR}"] for axis in "xy")
    correlation = _correlations(columns, settings, roi_shape)
    return model.locate(x, y, error_x, error_y, correlation, _levels(columns, settings))


def apparent_places(columns: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return y and x where fits have their model: beside their places at z = 0 if light wobbles."""
    places = {axis: columns[axis] for axis in IN_PLANE}
    model = settings.model
    if not isinstance(model, AstigmatismCalibration) or "z" not in columns:
        return places
    one = {name: np.atleast_1d(columns[name]) for name in ("z", "background", "photons")}
    shifts = model.shift(one["z"], _levels(one, settings))
    return {
        axis: place + shifts[axis][0].reshape(np.shape(place)) for axis, place in places.items()
    }


def _levels(columns: Columns, settings: Settings) -> Array:
    """Return the background per pixel over the light of each spot."""
    with np.errstate(invalid="ignore", divide="ignore"):
        level: Array = columns["background"].astype(float) / columns["photons"]
        return level / (settings.gain or 1.0)


def _correlations(columns: Columns, settings: Settings, roi_shape: tuple[int, ...]) -> Array:
    """Return the correlation of the errors of both widths, by widths and background."""
    axes, table = _table_of_correlations(tuple(min(side, _LARGEST_ROI) for side in roi_shape))
    noise = settings.variance / settings.gain if settings.variance and settings.gain else 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        level = (columns["background"].astype(float) + noise) / columns["amplitude"]
        found = (columns["sigma_x"], columns["sigma_y"], level)
        places = []
        for axis, values in zip(axes, found, strict=True):
            logarithm = np.log(np.maximum(values.astype(float), 1e-30))
            place = (logarithm - axis[0]) / (axis[1] - axis[0])
            places.append(np.clip(np.nan_to_num(place), 0, len(axis) - 1.001))
    first = [place.astype(int) for place in places]
    part = [place - whole for place, whole in zip(places, first, strict=True)]
    total = np.zeros(places[0].shape)
    for corner in np.ndindex(2, 2, 2):
        weight = np.prod([p if up else 1 - p for p, up in zip(part, corner, strict=True)], axis=0)
        total += weight * table[tuple(f + up for f, up in zip(first, corner, strict=True))]
    return total


@lru_cache(maxsize=16)
def _table_of_correlations(
    roi_shape: tuple[int, ...],
) -> tuple[list[Array], Array]:
    """Return logarithms of both widths and the level, and the correlation of the bound there."""
    widths = np.linspace(np.log(_LEAST_WIDTH), np.log(max(roi_shape) / 2), _WIDTHS)
    levels = np.linspace(np.log(_LEAST_LEVEL), np.log(_MOST_LEVEL), _LEVELS)
    axes = [widths, widths, levels]
    sigma_x, sigma_y, level = (
        np.exp(axis).reshape(-1, 1, 1) for axis in np.meshgrid(*axes, indexing="ij")
    )
    y, x = np.indices(roi_shape, float)
    middle = [(side - 1) / 2 for side in roi_shape]
    at: dict[str, Any] = {
        "y": middle[0], "x": middle[1], "sigma_x": sigma_x, "sigma_y": sigma_y,
        "amplitude": 1.0, "background": level,
    }  # fmt: skip
    light = GAUSSIAN_ELLIPTICAL.evaluate((y, x), at)
    # The centre of an even spot is independent of the others.
    names = ("sigma_x", "sigma_y", "amplitude", "background")
    slopes = np.stack(
        [
            GAUSSIAN_ELLIPTICAL.evaluate((y, x), {**at, name: at[name] + _STEP})
            - GAUSSIAN_ELLIPTICAL.evaluate((y, x), {**at, name: at[name] - _STEP})
            for name in names
        ],
        axis=1,
    ).reshape(len(light), len(names), -1)
    information = (slopes / light.reshape(len(light), 1, -1)) @ slopes.transpose(0, 2, 1)
    covariance = np.linalg.inv(information)
    scale = np.sqrt(covariance[:, 0, 0] * covariance[:, 1, 1])
    return axes, (covariance[:, 0, 1] / scale).reshape(_WIDTHS, _WIDTHS, _LEVELS)
