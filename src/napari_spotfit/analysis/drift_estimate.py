"""Estimate drift without markers, from molecules that are seen again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..models.columns import STDERR
from ..models.number_checks import one_of, whole
from ..results.fit_parts import gathered
from ..results.spot_fits import SpotFits
from .drift import Drift, refuse_several_movies
from .drift_correlation import correlated_drift
from .drift_frames import beyond_steady, drift_of_frames, sample_of
from .drift_jumps import has_jumps, jumps
from .drift_overlap import WINDOW, refined_drift, start_drift, without_drift
from .drift_segments import LEAST, Checked, Estimate, Rows, Segments, rows_of, segments_of
from .drift_steps import adjusted, apart_from_most, joined
from .drift_ties import pieces
from .drift_within import MOST, QUERIES, WIDER, Motion, close_pairs, motion_within
from .linking import frames_of, of_one_channel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Columns that drift depends on.
_NEEDED = (
    "file", "channel", "frame", "y", "x", "z", "y_stderr", "x_stderr", "z_stderr", "stop_condition",
)  # fmt: skip
#: Segments of cross-correlation.
_WINDOWS = 20
#: Segments around, over which differences of the two halves are averaged.
_AROUND = 10
#: Scatter of a molecule's positions over their standard errors, in the order of trials.
_SCALES = (1.0, 2.0, 4.0)
#: Least contrast of a segment's overlap with the others, and how much one point has by chance.
_LEAST_CONTRAST, _BY_CHANCE = 0.05, 1.5
#: Motion within segments, in errors of a localisation, that shorter ones are tried for, and that is
#: looked at from farther away; and least number of localisations in shorter ones.
_FAST, _FAR, _FEWEST = 0.15, 1.0, 20
#: Largest number of frames, as a drift has one number for each.
_MOST_FRAMES = 100_000_000


def estimate_drift(
    fits: SpotFits | Iterable[SpotFits],
    method: Literal["aim", "rcc"] = "aim",
    frames: int | None = None,
    *,
    segment: int | None = None,
) -> Drift:
    """Estimate the drift from molecules that are seen again and again, without markers.

    The movie is cut into segments, and blinks are merged within them. Each segment is put on those
    before it (AIM), and then all pull at each other until they overlap best. The two halves of the
    field do so separately: the drift is their mean, and its error follows from their difference.
    What both are off by at the same time is motion within segments: these are shortened then, and
    errors include what is left. Where molecules before and after a time do not lie on each other,
    the whole field is searched for the jump.

    Parameters
    ----------
    fits : SpotFits, or iterable of SpotFits
        Fits of one movie and channel, with standard errors, or their parts, such as those of
        :func:`load_parts`, whose frames and positions alone are kept in memory. Only good fits
        are used, or spots that another program has found.
    method : {"aim", "rcc"}
        ``"rcc"`` is another method, to compare: redundant cross-correlation of the images of 20
        segments, along y and x only; its errors follow from the two halves of the field, too.
    frames : int, optional
        Number of frames of the movie; by default up to the last one with a spot.
    segment : int, optional
        Frames of a segment; by default 100, or more with fewer than 500 spots in these, fewer where
        the sample moves within them, and a twentieth of the movie for ``"rcc"``.

    Returns
    -------
    Drift
        Displacement since the first frame with spots; by ``"aim"`` along z, too, where that is
        known in nm: by a calibration, or in stacks by the voxel size.
        Standard errors are those of differences from the mean drift. ``used`` is the number of
        merged spots of a frame's segment that are seen in others, too. If these are too few, the
        drift is interpolated and its errors are NaN.

    Raises
    ------
    ValueError
        If the fits are not of one movie, lack standard errors, are too few, all in one place, or
        hardly any is seen again.

    Warns
    -----
    UserWarning
        If the drift of some frames is interpolated, the sample jumps or moves within segments by
        more than 0.3 errors of a localisation, or some fits are far outside
        of the field of all others. If rows are there twice, or in frames that were stored twice:
        they count once.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import SpotFits, estimate_drift
    >>> random = np.random.default_rng(1)
    >>> molecule, frame = random.integers(0, 300, 20_000), np.sort(random.integers(0, 1000, 20_000))
    >>> y, x = (random.uniform(0, 64, 300)[molecule] + random.normal(0, 0.1, 20_000) for _ in "yx")
    >>> errors = {"y_stderr": np.full(20_000, 0.1), "x_stderr": np.full(20_000, 0.1)}
    >>> columns = {"frame": frame, "y": y + 0.001 * frame, "x": x, **errors}
    >>> columns["stop_condition"] = np.full(20_000, 3, np.uint8)
    >>> drift = estimate_drift(SpotFits(columns, ["frame"]))
    >>> bool(abs(drift.y[-1] - 0.999) < 0.05), bool(abs(drift.x[-1]) < 0.05)
    (True, True)
    """
    one_of("method", method, ("aim", "rcc"))
    fits = of_one_channel(gathered(fits, _NEEDED))
    count = _check(fits, frames, segment)
    if method == "rcc" and segment is None:
        segment = max((int(fits.frame.max()) - int(fits.frame.min()) + 1) // _WINDOWS, 1)
    rows = rows_of(fits)
    estimated = _of_pairs if method == "rcc" else _of_halves
    checked = _best(rows, segment, estimated, method == "aim" and segment is None)
    # The other method searches half of the field itself.
    if method == "aim" and checked.pieces.group.any():
        for less_jumps in (joined, adjusted, adjusted):
            rows = less_jumps(checked)
            checked = _best(rows, segment, estimated, segment is None)
        used = checked.estimate.used
        used[apart_from_most(checked)] = 0
        if np.count_nonzero(used) < 2:
            raise ValueError(
                "molecules before and after jumps of the sample are not seen again: take shorter "
                "segments, segment=…, or use fiducial_drift"
            )
    return drift_of_frames(checked, count)


def _best(
    rows: Rows,
    length: int | None,
    estimated: Callable[[Segments], Estimate],
    shorter: bool,
) -> Checked:
    """Return the drift by segments of a length, or shorter ones if that is better."""
    checked = _checked(rows, length, estimated)
    if not checked.motion.is_real:
        checked.motion.square[:] = 0
    return _of_shorter(rows, checked) if shorter else checked


def _checked(
    rows: Rows,
    length: int | None,
    estimated: Callable[[Segments], Estimate],
    queries: int = QUERIES,
) -> Checked:
    """Return the drift by segments of a length, and what it leaves."""
    found = segments_of(rows, length)
    estimate = estimated(found)
    sample = sample_of(found, estimate)
    close = close_pairs(sample, queries=queries)
    known = np.flatnonzero(estimate.used)
    steps = beyond_steady(found, known, estimate.drift[known], estimate.errors[known])
    far = (steps > WINDOW * found.errors[: steps.shape[1]]).any(axis=1)
    jumping = np.zeros(len(found.middles), np.bool_)
    jumping[known[:-1][far]] = jumping[known[1:][far]] = True
    motion = motion_within(sample, close, found.frames, jumping)
    if motion.square[:2].sum() > _FAR**2:
        more = close_pairs(sample, WIDER)
        wide = motion_within(sample, more, found.frames, jumping, WIDER)
        square, local = (np.maximum(*both) for both in zip(motion[::2], wide[::2], strict=True))
        motion = Motion(square, True, local)
    square, local = (one * estimate.scale**2 for one in (motion.square, motion.local))
    return Checked(found, estimate, Motion(square, motion.is_real, local), pieces(sample, close))


def _of_shorter(rows: Rows, checked: Checked) -> Checked:
    """Return the best drift of shorter segments, where the sample moves within them."""
    best, span = checked, int(checked.found.frames[-1] - checked.found.frames[0])
    if not checked.motion.is_real or checked.beside**2 < max(_FAST**2, checked.cost / 2):
        return checked
    count = len(checked.found.middles)
    while checked.beside:
        count *= 2
        if len(rows.rows) < _FEWEST * count or span < 2 * count:
            break
        try:
            checked = _checked(rows, max(span // count, 1), _of_halves, MOST)
        except ValueError:
            break
        if checked.cost < best.cost:
            best = checked
    return best


def _check(fits: SpotFits, frames: int | None, segment: int | None) -> int:
    """Raise a ValueError that names what is missing; return the number of frames."""
    for name, how in (
        ("frame", "drift is that of a movie"),
        ("y" + STDERR, "fit with errors=True"),
        ("x" + STDERR, "fit with errors=True"),
    ):
        if name not in fits:
            raise ValueError(f"these fits have no column {name}: {how}")
    refuse_several_movies(fits)
    if segment is not None:
        whole("segment", segment, 1)
    if not len(fits):
        raise ValueError("there are no fits, so their drift is unknown")
    frame = frames_of(fits)
    first, last = int(frame.min()), int(frame.max())
    if first == last:
        raise ValueError(f"all fits are of frame {first}, but drift is that of several frames")
    count = last + 1 if frames is None else whole("frames", frames, 1)
    if first < 0 or count <= last or count > _MOST_FRAMES:
        raise ValueError(
            f"the fits are of frames {first} to {last}, but a drift has one number for each frame "
            f"from 0 to {count - 1}, up to {_MOST_FRAMES}"
        )
    return count


def _of_halves(found: Segments) -> Estimate:
    """Return what is known of the drift of each segment by the overlap of each half."""
    count = len(found.middles)
    group = found.segment + np.int32(count) * found.half
    # Frames without spots, as while a movie was paused, are bridged.
    lit = int(np.count_nonzero(np.bincount(found.segment)))
    least = max(2, min(count // 2, max(4, lit // 2)))
    # Molecules may scatter by more than the standard errors.
    for scale in _SCALES:
        places = found.places if scale == 1 else found.places / np.float32(scale)
        wider = found._replace(places=places, errors=found.errors * scale)
        drift, weight, partnered = _overlap(wider, group)
        used = np.where(weight > 0, partnered, 0).sum(axis=0)
        used[used < LEAST] = 0
        weight = weight[..., np.newaxis]
        both, common = weight.sum(axis=0), weight.min(axis=0)
        if common.any() and np.count_nonzero(used) >= least:
            break
    else:
        raise ValueError(
            f"only in {np.count_nonzero(used)} of {count} segments of the movie, molecules are "
            "seen again that are seen in others: take longer ones, segment=…, or use fiducial_drift"
        )
    drift -= (drift * common).sum(axis=1, keepdims=True) / common.sum()
    with np.errstate(all="ignore"):
        mean = (drift * weight).sum(axis=0) / both
        # Half the difference, for halves of equal weight.
        variance = (drift[0] - drift[1]) ** 2 * weight.prod(axis=0) / both
        errors = np.sqrt(_running_mean(variance, common[:, 0] > 0) / both)
    unknown = used == 0
    mean[unknown] = errors[unknown] = np.nan
    own = np.where(weight > 0, drift, mean)
    return Estimate(mean, errors, used, own, scale)


def _overlap(found: Segments, group: NDArray[np.int32]) -> tuple[Floats, Floats, Integers]:
    """Return drift, weight and number of spots used of each half and segment.

    The weight is 0 where so few are used that chance would do.
    """
    places, count = found.places, len(found.middles)
    start = start_drift(places, found.segment, count)
    if has_jumps(without_drift(places, start, found.segment), found.segment, count):
        large = jumps(places, found.segment, count)
        start = large + start_drift(
            without_drift(places, large, found.segment), found.segment, count
        )
    refined = refined_drift(places, group, count, np.concatenate([start, start]))
    partnered = refined.partnered.reshape(2, count)
    seen = np.maximum(partnered.sum(axis=0), 1)
    contrast = (refined.contrast.reshape(2, count) * partnered).sum(axis=0) / seen
    least = _LEAST_CONTRAST + _BY_CHANCE / np.sqrt(seen)
    is_known = (contrast > least) & (partnered >= LEAST // 2)
    weight = np.where(is_known, refined.weight.reshape(2, count), 0)
    return refined.drift.reshape(2, count, -1) * found.errors, weight, partnered


def _of_pairs(found: Segments) -> Estimate:
    """Return the same by cross-correlation of all pairs of segments, along y and x only."""
    count = len(found.middles)
    used = np.bincount(found.segment, minlength=count)
    if used.min() < LEAST or count < 3:
        raise ValueError(
            f"the {count} segments of the movie have {used.min()} spots or more each, but 3 of "
            f"{LEAST} are needed: take longer or shorter ones, segment=…"
        )
    # What the overlap does not see again, a correlation shows as peaks of noise.
    scale = _of_halves(found).scale
    drift, (one, other) = correlated_drift(found.places[:2], found.segment, found.half, count)
    is_known = np.isfinite(drift[:, 0])
    used = np.where(is_known, used, 0)
    if np.count_nonzero(is_known) < max(2, count // 2):
        raise ValueError(
            f"the images of only {np.count_nonzero(is_known)} of {count} segments of the movie "
            'agree on how far they are apart: take others, segment=…, or method="aim"'
        )
    both = np.asarray(np.isfinite(one + other).all(axis=1))
    if not both.any():
        raise ValueError(
            "the two halves of the field have too few molecules that are seen again for the errors "
            'of a cross-correlation: take longer segments, segment=…, or method="aim"'
        )
    apart = one - other
    apart -= apart[both].mean(axis=0)
    variance = _running_mean(np.where(both[:, np.newaxis], apart / 2, 0) ** 2, both)
    errors = np.where(is_known[:, np.newaxis], np.sqrt(variance), np.nan)
    drift *= found.errors[:2]
    return Estimate(drift, errors * found.errors[:2], used, np.stack([drift, drift]), scale)


def _running_mean(values: Floats, known: NDArray[np.bool_]) -> Floats:
    """Return the mean of known values around each place."""
    window = np.ones(2 * _AROUND + 1)
    counts = np.convolve(known, window)[_AROUND:-_AROUND]
    sums = [
        np.convolve(np.where(known, column, 0), window)[_AROUND:-_AROUND] for column in values.T
    ]
    with np.errstate(invalid="ignore"):
        means: Floats = np.stack(sums, axis=1) / counts[:, np.newaxis]
    return means
