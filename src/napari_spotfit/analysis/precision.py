"""The precision of localisations: by closed formulas, and from successive frames (NeNA)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..caller import warn_caller
from ..models.columns import CHANNEL, DETECTIONS, IN_PLANE, STDERR, STOP
from ..models.estimators import ESTIMATORS, EstimatorName
from ..models.number_checks import as_numbers, one_of
from ..results.fit_parts import gathered
from ..results.repeats import duplicates_and_repeats
from ..results.spot_fits import SpotFits
from ..settings.fields import Pixel
from ..settings.noise_model import excess_of
from .linking import frames_of, movies_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Columns that precision depends on.
_NEEDED = (
    "file",
    CHANNEL,
    "frame",
    *IN_PLANE,
    *(axis + STDERR for axis in IN_PLANE),
    STOP,
    DETECTIONS,
)
#: Localisations whose pairs are compared, at most: their precision is known to 0.3 % then.
_MOST = 200_000
#: Distance along an axis up to which pairs count, in standard deviations of pairs of one molecule,
#: and in pixels where nothing is known of it; rounds to find it, and how well.
_REACH, _USUAL, _ROUNDS, _FOUND = 5.0, 0.7, 8, 0.05
#: Width of spots in pixels above which it is likely to be in nm.
_WIDEST = 20.0
#: Part of the field within which all pairs must be.
_FIELD = 0.25
#: Least number of pairs of one molecule, their least share, and least gain in log-likelihood.
_LEAST, _LEAST_SHARE, _GAIN = 100, 0.05, 10.0


@dataclass(frozen=True, eq=False)
class LocalizationPrecision:
    """How precise localisations are, by those of one molecule in successive frames.

    Threads: any number may share it, as it is immutable.

    Attributes
    ----------
    precision, y, x : float
        Standard deviation of a localisation in pixels: of both axes, along y and along x.
    kappa : float
        Factor by which localisations of one molecule scatter more than their standard errors; NaN
        without these. 1 if the errors are right.
    pairs : int
        Number of pairs of localisations in successive frames that were compared. Frames that were
        stored twice are no pairs.
    share : float
        Fraction of these that are of one molecule.
    distances : ndarray of float64
        Their distances in pixels.
    reach : float
        Largest distance along an axis.

    Examples
    --------
    >>> import numpy as np
    >>> found = LocalizationPrecision(0.1, 0.1, 0.1, 1.0, 500, 0.9, np.zeros(500), 0.7)
    >>> found.density(np.array([0.1])).round(1)  # per pixel
    array([3.5])
    """

    precision: float
    y: float
    x: float
    kappa: float
    pairs: int
    share: float
    distances: Floats = field(repr=False)
    reach: float = field(repr=False)

    def density(self, distance: Floats) -> Floats:
        """Return the density of pairs at distances below the reach, for a curve."""
        variance = 2 * self.precision**2
        own = distance / variance * np.exp(-(distance**2) / (2 * variance))
        found: Floats = self.share * own + (1 - self.share) * (
            2 * math.pi * distance / (2 * self.reach) ** 2
        )
        return found


def nena(fits: SpotFits | Iterable[SpotFits]) -> LocalizationPrecision:
    """Measure the precision of localisations from pairs in successive frames.

    The precision follows by maximum likelihood from all pairs within a few standard deviations:
    some are of one molecule, the others at random distances. The factor `kappa`, measured on the
    same pairs, says whether the standard errors hold on these data.

    Parameters
    ----------
    fits : SpotFits, or iterable of SpotFits
        Fits of a movie, not merged; several files, channels or positions are not mixed. Only good
        fits are used, or spots that another program has found. Of parts, such as of
        :func:`load_parts`, only frames and positions are kept in memory.

    Raises
    ------
    ValueError
        If the fits are not of a movie, were merged, or have too few pairs of one molecule in
        successive frames.

    Warns
    -----
    UserWarning
        If localisations are the same to the bit as those of the frame before, as where frames were
        stored twice: they are no new measurement, and left out. If rows are there twice.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import SpotFits, nena
    >>> random = np.random.default_rng(1)
    >>> frame, number = np.repeat(np.arange(4), 1000), np.tile(np.arange(1000), 4)
    >>> y, x = (random.uniform(0, 500, 1000)[number] + random.normal(0, 0.1, 4000) for _ in "yx")
    >>> errors = {"y_stderr": np.full(4000, 0.05), "x_stderr": np.full(4000, 0.05)}
    >>> stops = {"stop_condition": np.full(4000, 3, np.uint8)}
    >>> found = nena(SpotFits({"frame": frame, "y": y, "x": x, **errors, **stops}, ["frame"]))
    >>> round(found.precision, 2), round(found.kappa, 1)
    (0.1, 2.0)
    """
    fits = gathered(fits, _NEEDED)
    _check(fits)
    places = np.stack([fits.columns[axis] for axis in IN_PLANE], axis=1)
    errors = None
    if all(axis + STDERR in fits for axis in IN_PLANE):
        errors = np.stack([fits.columns[axis + STDERR] for axis in IN_PLANE], axis=1).astype(float)
    known = np.isfinite(places).all(axis=1)
    field_size = float(np.ptp(places[known], axis=0).max()) if known.any() else 0.0
    first, second = _successive(fits, known)
    reach = _USUAL
    if errors is not None and np.isfinite(errors).any():
        middle = float(np.nanmedian(errors[first[0]])) if len(first[0]) else 0.0
        reach = _REACH * math.sqrt(2) * middle or _USUAL
    for _ in range(_ROUNDS):
        a, b = _pairs(places, first, second, reach)
        apart = places[a] - places[b]
        own = np.full_like(apart, math.sqrt(2))
        if errors is not None:
            own = np.sqrt(errors[a] ** 2 + errors[b] ** 2)
            positive = (np.isfinite(own) & (own > 0)).all(axis=1)
            apart, own = apart[positive], own[positive]
        share, scales = _fitted(apart, own, reach)
        usual: Floats = np.sqrt(np.mean(own**2, axis=0) / 2) * scales
        wanted = _REACH * math.sqrt(2) * float(np.max(usual))
        if abs(wanted / reach - 1) < _FOUND:
            break
        reach = min(wanted, 2 * reach)
        if reach > _FIELD * field_size:
            raise ValueError(
                f"pairs of spots in successive frames are as far apart as the field is wide, "
                f"{field_size:.3g} px: none can be shown to be of one molecule"
            )
    y, x = usual.tolist()
    kappa = math.nan if errors is None else float(np.sqrt(np.mean(scales**2)))
    return LocalizationPrecision(
        math.sqrt((y * y + x * x) / 2), y, x, kappa, len(apart), share, np.hypot(*apart.T), reach
    )


def _check(fits: SpotFits) -> None:
    """Raise a ValueError if fits have no pairs in successive frames."""
    if "frame" not in fits:
        raise ValueError(
            "these fits have no column frame: the precision follows from successive frames of a "
            "movie"
        )
    if DETECTIONS in fits:
        raise ValueError(
            "these are events, which were merged: measure the precision of the fits themselves"
        )


def _successive(
    fits: SpotFits, known: NDArray[np.bool_]
) -> tuple[tuple[Integers, Integers], tuple[Integers, Integers]]:
    """Return rows of frames and of those after them, each with the number of its pair of frames.

    Of long movies, pairs of frames are chosen evenly.
    """
    movies, frames = movies_of(fits), frames_of(fits)
    duplicate, repeated = duplicates_and_repeats(fits, movies, frames)
    rows = np.flatnonzero(fits.accepted & known & ~duplicate)
    if count := int(np.count_nonzero(repeated[rows])):
        warn_caller(
            f"{count:,} of {len(rows):,} localisations are the same, to the bit, as one in the "
            "frame before, as where frames were stored twice: they are no new measurement, and "
            "left out of the pairs"
        )
    movie, frame = movies[rows], frames[rows]
    order = np.lexsort((frame, movie))
    rows, movie, frame = rows[order], movie[order], frame[order]
    new = np.flatnonzero((np.diff(frame) != 0) | (np.diff(movie) != 0)) + 1
    starts = np.concatenate([[0], new, [len(rows)]]) if len(rows) else np.zeros(1, np.int64)
    firsts = starts[:-1]
    follows = np.flatnonzero((np.diff(frame[firsts]) == 1) & (np.diff(movie[firsts]) == 0))
    count = int((starts[follows + 1] - starts[follows]).sum())
    if count > _MOST:
        chosen = np.linspace(0, len(follows) - 1, max(len(follows) * _MOST // count, 1))
        follows = follows[np.unique(chosen.astype(np.int64))]

    def of(frames: Integers, kept: NDArray[np.bool_]) -> tuple[Integers, Integers]:
        sizes = starts[frames + 1] - starts[frames]
        number = np.repeat(np.arange(len(frames)), sizes)
        within = np.arange(len(number)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        own = rows[starts[frames][number] + within]
        return own[kept[own]], number[kept[own]]

    return of(follows, np.ones(len(fits), bool)), of(follows + 1, ~repeated)


def _pairs(
    places: Floats,
    first: tuple[Integers, Integers],
    second: tuple[Integers, Integers],
    reach: float,
) -> tuple[Integers, Integers]:
    """Return the rows of pairs that are no farther apart than the reach along each axis."""
    from scipy.spatial import cKDTree  # here, as SciPy takes its time to import

    one, other = (
        cKDTree(np.column_stack([number * 4 * reach, places[rows]])) for rows, number in
        (first, second)
    )  # fmt: skip
    count = int(one.count_neighbors(other, reach, p=math.inf))
    if count < _LEAST:
        raise ValueError(
            f"only {count} pairs of spots in successive frames are within {reach:.3g} px, but "
            f"{_LEAST} of one molecule are needed: spots may be too few, or merged, or blink off "
            "at once"
        )
    last = max(int(first[1][-1]), int(second[1][-1]))
    if count > _MOST and last > 1:
        most = max(last * _MOST // (2 * count), 1)
        return _pairs(places, _between(first, last, most), _between(second, last, most), reach)
    found = one.sparse_distance_matrix(other, reach, p=math.inf, output_type="ndarray")
    return first[0][found["i"]], second[0][found["j"]]


def _between(frames: tuple[Integers, Integers], last: int, most: int) -> tuple[Integers, Integers]:
    """Return the rows of some pairs of frames, evenly chosen."""
    rows, number = frames
    chosen = np.unique(np.linspace(0, last, most).astype(np.int64))
    place = np.searchsorted(chosen, number).clip(max=len(chosen) - 1)
    kept = chosen[place] == number
    return rows[kept], place[kept]


def _fitted(apart: Floats, errors: Floats, reach: float) -> tuple[float, Floats]:
    """Return the share of pairs of one molecule, and the factor of their errors along each axis.

    Parameters
    ----------
    apart : ndarray of float64, shape (n, 2)
        Differences along each axis, up to the reach; of other pairs they are uniform.
    errors : ndarray of float64, shape (n, 2)
        Standard deviation of each difference for a factor of 1.
    reach : float
        The largest difference.
    """
    from scipy.optimize import minimize  # here, as SciPy takes its time to import
    from scipy.special import erf

    uniform = 1 / (2 * reach) ** 2

    def surprise(values: Floats) -> float:
        part = 1 / (1 + math.exp(-values[0]))
        deviations = errors * np.exp(values[1:])
        own = np.exp(-0.5 * (apart / deviations) ** 2) / (math.sqrt(2 * math.pi) * deviations)
        own /= erf(reach / (math.sqrt(2) * deviations))
        return -float(np.log(part * own.prod(axis=1) + (1 - part) * uniform).mean())

    if len(apart) < _LEAST:
        raise ValueError(f"only {len(apart)} pairs of spots have standard errors above 0")
    middle = float(np.log(reach / 5 / np.median(errors)))
    limits = [(-12, 12), *2 * [(middle - 5, middle + 4)]]
    found = minimize(surprise, [0.0, middle, middle], method="L-BFGS-B", bounds=limits)
    part = 1 / (1 + math.exp(-found.x[0]))
    gain = (-math.log(uniform) - found.fun) * len(apart)
    if part * len(apart) < _LEAST or part < _LEAST_SHARE or gain < _GAIN:
        raise ValueError(
            f"about {part * len(apart):.0f} of {len(apart)} pairs of spots in successive frames "
            f"are of one molecule, which are too few: {_LEAST} are needed, and "
            f"{_LEAST_SHARE:.0%} of all"
        )
    return part, np.exp(found.x[1:])


def localization_precision(
    photons: ArrayLike,
    sigma: ArrayLike,
    background: ArrayLike = 0.0,
    *,
    estimator: EstimatorName = "lse",
    pixel: Pixel = "sampled",
    emccd: bool = False,
) -> NDArray[np.float64]:
    """Return the standard error of a centre along one axis, by closed formulas.

    The formulas assume round Gaussian spots and a ROI with all of their light. The standard errors
    of a fit (``x_stderr``) account for the ROI and the fitted spot, and hold for any model.

    With the photons N, the background b² in photons per pixel, and σₐ, the width of the
    spot in the camera's pixels, the variance of least squares is, by Mortensen et al.
    (their eq. 6), ::

        σₐ²/N · (16/9 + 8π σₐ² b²/N)

    and that of maximum likelihood, by Rieger and Stallinga, ::

        σₐ²/N · (1 + 4τ + √(2τ/(1 + 4τ)))    τ = 2π σₐ² b²/N

    An EMCCD's excess noise doubles both.

    Parameters
    ----------
    photons : array_like
        Photons of the spot.
    sigma : array_like
        Standard deviation of the spot in pixels, as the fit gives it.
    background : array_like, default 0
        Background photons per pixel; add the camera's read-out variance in photo-electrons².
    estimator : {"lse", "mle"}
        Least squares or maximum likelihood.
    pixel : {"sampled", "integrated"}
        The model of the fit: σₐ = σ if sampled; σₐ² = σ² + 1/12 if integrated over pixels.
    emccd : bool, default False
        Whether the camera multiplies electrons before the read-out.

    Returns
    -------
    ndarray of float64
        Standard error in pixels.

    Raises
    ------
    ValueError
        If photons or σ are not positive, a background is negative, or a name is unknown.

    Warns
    -----
    UserWarning
        If σ is so large that it seems to be in nm.

    References
    ----------
    K. I. Mortensen et al., Optimized localization analysis for single-molecule tracking and
    super-resolution microscopy, Nature Methods 7, 377 (2010).

    B. Rieger and S. Stallinga, The lateral and axial localization uncertainty in
    super-resolution light microscopy, ChemPhysChem 15, 664 (2014).

    Examples
    --------
    >>> from napari_spotfit import localization_precision
    >>> [round(float(error), 4) for error in localization_precision([400, 4000], 1.3, 2)]
    [0.0917, 0.0276]
    >>> round(float(localization_precision(400, 1.3, 2, estimator="mle")), 4)
    0.0798
    """
    given = {"photons": photons, "sigma": sigma, "background": background}
    n, width, b = (as_numbers(name, values) for name, values in given.items())
    for name, values, right in (
        ("photons", n, n > 0), ("sigma", width, width > 0), ("background", b, b >= 0),
    ):  # fmt: skip
        if not np.all(right | np.isnan(values)):
            lowest = "0 or more" if name == "background" else "above 0"
            raise ValueError(f"{name} must be {lowest}; got {values[~right].flat[0]:g}")
    known = width[np.isfinite(width)]
    if known.size and (usual := float(np.median(known))) > _WIDEST:
        warn_caller(
            f"sigma is in pixels, and {usual:.4g} px is wider than spots are: "
            "divide nm by the size of a pixel"
        )
    one_of("estimator", estimator, [n for n, one in ESTIMATORS.items() if not one.needs_weights])
    one_of("pixel", pixel, get_args(Pixel))
    square = width**2 + (1 / 12 if pixel == "integrated" else 0)
    tau = 2 * math.pi * square * b / n
    if not ESTIMATORS[estimator].is_likelihood:
        factor = 16 / 9 + 4 * tau
    else:
        factor = 1 + 4 * tau + np.sqrt(2 * tau / (1 + 4 * tau))
    precision: NDArray[np.float64] = np.sqrt(square / n * factor * excess_of(emccd))
    return precision
