"""Estimate drift without markers, from molecules that are seen again and again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine import threads
from ..models.columns import STDERR
from ..models.number_checks import one_of, whole
from ..results.fit_parts import gathered
from ..results.spot_fits import SpotFits
from .depth import depth_in_nm
from .drift import Drift, refuse_several_movies
from .drift_correlation import correlated_drift
from .drift_jumps import has_jumps, jumps
from .drift_overlap import WINDOW, refined_drift, start_drift, without_drift
from .events import event_means, link_events
from .linking import frames_of, measured_once, of_one_channel
from .shifts import spans
from .summary import in_field, taken

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Singles = NDArray[np.float32]
Groups = NDArray[np.int32]
Columns = Mapping[str, NDArray[Any]]

#: Columns that drift depends on.
_NEEDED = (
    "file", "channel", "frame", "y", "x", "z", "y_stderr", "x_stderr", "z_stderr", "stop_condition",
)  # fmt: skip
#: Frames of a segment, and least number of localisations in it, where no other is asked for.
_FRAMES, _ENOUGH = 100, 500
#: Fits whose blinks are merged at once by a thread, and most threads, as each needs memory.
_BLOCK, _MERGERS = 1 << 16, 8
#: Segments of cross-correlation.
_WINDOWS = 20
#: Segments around, over which differences of the two halves are averaged.
_AROUND = 10
#: Scatter of a molecule's positions over their standard errors, in the order of trials.
_SCALES = (1.0, 2.0, 4.0)
#: Least number of localisations with partners from which a segment's drift is known.
_LEAST = 10
#: Least contrast of a segment's overlap with the others, and how much one point has by chance.
_LEAST_CONTRAST, _BY_CHANCE = 0.05, 1.5
#: Least step that is none of a steady motion, in errors of a localisation and of the drift.
_JUMP = 3.0
#: Largest number of frames, as a drift has one number for each.
_MOST_FRAMES = 100_000_000


class Segments(NamedTuple):
    """Events of a movie by segment."""

    places: Singles  # y, x and maybe z from 0 on, in units of their errors, shape (axes, n)
    errors: Floats  # the usual one along each axis
    segment: Groups
    half: NDArray[np.bool_]  # in which half of the field
    middles: Floats  # mean frame of each segment
    frames: Integers  # first frame of each segment, and the one after the last


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
        Frames of a segment; by default 100, or more with fewer than 500 spots in these, and a
        twentieth of the movie for ``"rcc"``.

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
        If the drift of some frames is interpolated, the sample jumps, or some fits are far outside
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
    found = _segments(fits, segment)
    drift, errors, used = (_of_pairs if method == "rcc" else _of_halves)(found)
    return _of_frames(found, drift, errors, used, count)


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


def _segments(fits: SpotFits, length: int | None) -> Segments:
    """Return the events of each segment of a movie."""
    columns, axes, heights = fits.columns, ["y", "x"], depth_in_nm(fits)
    if heights is not None:
        columns, axes = columns | heights, ["y", "x", "z"]
    known = fits.accepted & measured_once(fits)
    for axis in axes:
        error = columns[axis + STDERR]
        known &= np.isfinite(columns[axis]) & np.isfinite(error) & (error > 0)
    rows = in_field(columns, np.flatnonzero(known))
    if len(rows) < 2 * _LEAST:
        raise ValueError(
            f"{len(rows)} of {len(fits)} fits are good and have standard errors above 0 of "
            f"{', '.join(axes)}, but drift needs thousands"
        )
    frame = taken(frames_of(fits), rows)
    if (frame[1:] < frame[:-1]).any():
        order = np.argsort(frame, kind="stable")
        rows, frame = rows[order], frame[order]
    first, span = int(frame[0]), int(frame[-1] - frame[0]) + 1
    if span == 1:
        raise ValueError(f"all fits that count are of frame {first}: drift is that of several")
    length = length or min(max(_FRAMES, round(_ENOUGH * span / len(rows))), max(span // 4, 1))
    count = max(round(span / length), 1)
    frames = first + np.round(np.linspace(0, span, count + 1)).astype(np.int64)
    starts = np.searchsorted(frame, frames)
    places, stderrs, segment, middles = _merged(columns, axes, rows, frame, starts)
    errors = np.array([np.median(one) for one in stderrs])
    errors[:2] = np.sqrt(np.mean(errors[:2] ** 2))
    half = _half(places, errors)
    scaled = [
        ((axis - axis.min()) / error).astype(np.float32)
        for axis, error in zip(places, errors, strict=True)
    ]
    return Segments(np.stack(scaled), errors, segment, half, middles, frames)


def _merged(
    columns: Columns, axes: list[str], rows: Integers, frame: Integers, starts: Integers
) -> tuple[list[Floats], list[Singles], Groups, Floats]:
    """Return places and errors of events along each axis, their segments, and these' middles.

    Blinks are merged a few segments at a time, so that little of it is in memory.

    Parameters
    ----------
    columns : mapping
        Those of the fits.
    axes : list of str
        The axes along which places are known.
    rows, frame : ndarray of int64
        The rows of the fits, in the order of their frames, and these.
    starts : ndarray of int64
        Which of them is the first of each segment; and their number.
    """
    firsts = np.unique(np.searchsorted(starts, np.arange(0, len(rows), _BLOCK), side="right") - 1)
    firsts = np.append(firsts, len(starts) - 1)
    names = [*axes, *(axis + STDERR for axis in axes)]
    found: list[list[NDArray[Any]]] = [[]] * (len(firsts) - 1)

    def merge(begin: int, end: int) -> None:
        for number in range(begin, end):
            segments = np.arange(firsts[number], firsts[number + 1])
            own = slice(starts[segments[0]], starts[segments[-1] + 1])
            chosen = {name: columns[name][rows[own]] for name in names} | {"frame": frame[own]}
            flags = np.zeros(len(chosen["frame"]), np.uint32)
            fits = SpotFits(chosen | {"flags": flags}, ["frame"])
            part = np.repeat(segments, np.diff(starts[firsts[number] : firsts[number + 1] + 1]))
            links = link_events(fits, 1, None, part=part)
            means = event_means(fits, links, axes)
            middle = (chosen["frame"][links.first] + chosen["frame"][links.last]) / 2
            segment = part[links.first]
            own_segment, count = segment - segments[0], len(segments)
            with np.errstate(all="ignore"):
                middles = np.bincount(own_segment, middle, count) / np.bincount(
                    own_segment, minlength=count
                )
            found[number] = [*(means[name] for name in names), segment.astype(np.int32), middles]

    threads.in_pieces(merge, len(found), 1, min(threads.available(), _MERGERS))
    joined: list[NDArray[Any]] = []
    for number in range(len(names) + 2):
        joined.append(np.concatenate([block[number] for block in found]))
        for block in found:
            block[number] = joined[-1][:0]
    return joined[: len(axes)], joined[len(axes) : -2], joined[-2], joined[-1]


def _of_halves(found: Segments) -> tuple[Floats, Floats, Integers]:
    """Return drift and errors of each segment, NaN if unknown, and the number of spots used."""
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
        used[used < _LEAST] = 0
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
    return mean, errors, used


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
    is_known = (contrast > least) & (partnered >= _LEAST // 2)
    weight = np.where(is_known, refined.weight.reshape(2, count), 0)
    return refined.drift.reshape(2, count, -1) * found.errors, weight, partnered


def _of_pairs(found: Segments) -> tuple[Floats, Floats, Integers]:
    """Return the same by cross-correlation of all pairs of segments, along y and x only."""
    count = len(found.middles)
    used = np.bincount(found.segment, minlength=count)
    if used.min() < _LEAST or count < 3:
        raise ValueError(
            f"the {count} segments of the movie have {used.min()} spots or more each, but 3 of "
            f"{_LEAST} are needed: take longer or shorter ones, segment=…"
        )
    # What the overlap does not see again, a correlation shows as peaks of noise.
    _of_halves(found)
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
    return drift * found.errors[:2], errors * found.errors[:2], used


def _half(places: list[Floats], errors: Floats) -> NDArray[np.bool_]:
    """Return whether each event is in the second half of the field."""
    size = np.array([np.ptp(axis) for axis in places[:2]])
    if (size / errors[:2]).max() < 2 * WINDOW:
        raise ValueError(
            f"all fits are within {size.max():.3g} px of one place, so halves "
            "of the field cannot be compared: use fiducial_drift"
        )
    across = places[int((size / errors[:2]).argmax())]
    return np.asarray(across > np.median(across))


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


def _of_frames(found: Segments, drift: Floats, errors: Floats, used: Integers, count: int) -> Drift:
    """Return the drift of each frame, interpolated between the middles of segments."""
    from scipy.interpolate import PchipInterpolator  # here, as SciPy takes its time to import

    known = np.flatnonzero(used)
    knots = found.middles[known]
    values = drift[known]
    numbers = np.arange(count)
    # One more knot at each end, on the line through the two before it.
    ends = 2 * knots[[0, -1]] - knots[[1, -2]], 2 * values[[0, -1]] - values[[1, -2]]
    knots = np.concatenate([ends[0][:1], knots, ends[0][1:]])
    values = np.concatenate([ends[1][:1], values, ends[1][1:]])
    inside = np.clip(numbers, knots[0], knots[-1])
    curve = PchipInterpolator(knots, values)(inside)
    curve -= curve[found.frames[0]]
    spread = np.stack(
        [np.interp(numbers, found.middles[known], one) for one in errors[known].T], axis=1
    )
    _widen_at_jumps(spread, found, known, drift[known], errors[known])
    of_frame = np.clip(np.searchsorted(found.frames, numbers, side="right") - 1, 0, len(used) - 1)
    # A segment may begin and end without spots, but no more frames than it has.
    first, last = found.frames[[0, -1]]
    length = (last - first) / len(used)
    used = np.where((numbers < first - length) | (numbers >= last + length), 0, used[of_frame])
    bridged = used == 0
    spread[bridged] = np.nan
    if bridged.any():
        warn_caller(
            f"too few molecules are seen again in {spans(np.flatnonzero(bridged))}: the drift "
            "there is interpolated, or that of the nearest frame with some"
        )
    along_z = (curve[:, 2], spread[:, 2]) if curve.shape[1] > 2 else (None, None)
    return Drift(curve[:, 0], curve[:, 1], spread[:, 0], spread[:, 1], used, *along_z)


def _widen_at_jumps(
    spread: Floats, found: Segments, known: Integers, drift: Floats, errors: Floats
) -> None:
    """Add to errors that it is unknown in which frame between two segments the sample jumps."""
    steps = np.diff(drift, axis=0)
    if len(steps) < 3:
        return
    # A fast, but steady motion is no jump.
    usual = np.median([steps[:-2], steps[1:-1], steps[2:]], axis=0)
    more = np.abs(steps - np.concatenate([usual[:1], usual, usual[-1:]]))
    scale = found.errors[: drift.shape[1]]
    more[(more < _JUMP * scale) | (more < _JUMP * (errors[1:] + errors[:-1]))] = 0
    for number in np.flatnonzero(more.any(axis=1)):
        first, last = found.middles[known[number]], found.middles[known[number + 1]]
        spread[int(np.ceil(first)) : int(last) + 1] += more[number] / 2
    far = np.flatnonzero((more > WINDOW * scale).any(axis=1))
    if len(far):
        where = found.frames[known[far] + 1].tolist()
        warn_caller(
            f"the sample jumps near frame {', '.join(map(str, where[:3]))}"
            f"{' and others' if len(where) > 3 else ''}: the drift is interpolated over the "
            f"frames of a segment there; shorter ones, segment=…, show the frame better"
        )
