"""Check a z-stack of beads: its planes, their order and heights, and beads that are cut off."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..caller import warn_caller
from ..images.arrays import as_array, to_host
from ..images.files.opening import opened
from ..models.number_checks import number
from ..settings.settings import Settings

Array = NDArray[np.float64]

#: Planes that show a curve, at least; and planes that an error names, at most.
LEAST_PLANES, _NAMED = 7, 5
#: Beads that are named for each reason.
_FIRST = 3
#: Height of a stack and its steps in nm below which dz is in another unit. The part of a voxel by
#: which steps differ from it.
_LOWEST_STACK, _LEAST_STEP, _UNLIKE = 100.0, 1.0, 0.05
#: Pixels of the highest value are cut off if there are more of them than pixels less than this
#: part of its height below: more by this number, and by this number of standard deviations.
_BELOW, _MORE, _SURE = 0.05, 4, 3.0
#: A range of z is of one side of the focus if the other side is less than this part of it.
_OTHER_SIDE = 0.15
#: Pixels that show beads are this part of the way from the background to the highest.
_LIGHT = 0.1
#: Median deviations of the background beyond which the highest pixel is a bead's.
_BEAD = 12.0
#: The most pixels that are compared, and the fewest.
_PIXELS, _FEWEST = 20_000, 9
#: Most difference of a plane from its neighbours' mean, in units of theirs, with which it lies
#: between them; of noise alone, it is 0.75.
_BETWEEN = 1.6
#: Planes change from one to the next, if the nearest to most is nearer than this part of the usual
#: distance of two. They are shuffled if those beside each other are farther than this part.
_CHANGES, _SHUFFLED = 0.4, 0.7
#: Of planes that change little, by this part of the usual distance, two are a jump that are farther
#: than the second one.
_LITTLE, _JUMP = 0.1, 0.8
#: The share of planes between no others that is a stack out of order.
_MANY = 0.25


def why_left_out(reasons: Sequence[str], places: NDArray[Any]) -> str:
    """Return in words how many beads each reason leaves out, and where the first of these are.

    Examples
    --------
    >>> why_left_out(["saturated: in 3 of 9 planes", ""], np.array([[20, 30], [50, 60]]))
    '1 saturated (y, x: 20, 30)'
    """
    found: dict[str, list[str]] = {}
    for reason, (y, x) in zip(reasons, places, strict=True):
        if reason:
            found.setdefault(reason.split(":")[0], []).append(f"{y:.0f}, {x:.0f}")
    return "; ".join(
        f"{len(at)} {kind} (y, x: {'; '.join(at[:_FIRST])}{' …' * (len(at) > _FIRST)})"
        for kind, at in found.items()
    )


def cut_off(boxes: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Return which beads are cut off at the highest value that the camera records.

    It need not be that of the pixels' type: cameras have 12 bits, and images are scaled. The pixels
    that would be above it all have it, so that more have it than values just below. All beads are
    counted, as each has few such pixels, two at least.

    Parameters
    ----------
    boxes : sequence of ndarray
        The pixels of each bead in all planes, as the camera recorded them.
    """
    if not boxes:
        return np.empty(0, bool)
    values = np.sort(np.concatenate([box.ravel() for box in boxes]))
    level, cut = float(np.median(values)), []
    for box in boxes:
        top = box.max()
        first, end = np.searchsorted(values, top), np.searchsorted(values, top, "right")
        # The next value below counts even where values are coarse.
        low = min(float(top) - _BELOW * (float(top) - level), float(values[max(first - 1, 0)]))
        below = first - np.searchsorted(values, low)
        full = values.dtype.kind in "iu" and top == np.iinfo(values.dtype).max
        piled = end - first > below + _SURE * np.sqrt(below) + _MORE
        cut.append(full or (piled and np.count_nonzero(box == top) > 1))
    return np.array(cut, bool)


def warn_one_sided(low: float, high: float) -> None:
    """Warn the caller of a range of z, in nm from the focus, that is of one side of it."""
    if min(-low, high) < _OTHER_SIDE * (high - low):
        warn_caller(
            f"beads are seen on one side of the focus: z is known from {round(low)} to "
            f"{round(high)} nm around it, and spots beyond may be given a wrong z. Record a level "
            "sample from well below to well above the focus, unless all spots lie on that side"
        )


def checked_stack(stack: Any) -> NDArray[Any]:
    """Return a stack of planes, or raise an error that states what is accepted."""
    planes: NDArray[Any] = to_host(as_array(opened(stack)))
    if planes.dtype.kind not in "iuf":
        raise TypeError(f"the bead stack must hold integers or real numbers; got {planes.dtype}")
    if planes.ndim != 3:
        raise ValueError(
            f"the bead stack must have the shape (planes, rows, columns); got {planes.shape}. "
            "Choose one channel and one time"
        )
    if len(planes) < LEAST_PLANES:
        raise ValueError(
            f"the bead stack must have {LEAST_PLANES} planes at least; got {len(planes)}. Record "
            "beads in steps of 10 to 50 nm from below to above the focus"
        )
    if planes.dtype.kind == "f":
        wrong = np.flatnonzero(~np.isfinite(planes).all(axis=(1, 2)))
        if len(wrong):
            raise ValueError(
                f"plane {', '.join(map(str, wrong[:_NAMED]))}{' …' * (len(wrong) > _NAMED)} has "
                "pixels that are no numbers: leave it out, and give the heights of the others (dz)"
            )
    _check_order(planes)
    return planes


def checked_heights(dz: ArrayLike, planes: int, settings: Settings) -> Array:
    """Return the height of each plane in nm, or raise an error that states what is accepted.

    Parameters
    ----------
    dz : float or ndarray
        Distance of the planes, or the height of each, in nm.
    planes : int
        How many there are.
    settings : Settings
        Those whose voxels, if they are known, must be as high as dz says.
    """
    heights = _heights(dz, planes)
    if settings.voxel_size is not None and planes > 1:
        step, voxel = float(np.diff(heights).mean()), settings.voxel_size[0]
        if abs(step - voxel) > _UNLIKE * voxel:
            raise ValueError(
                f"dz and voxel_size contradict each other: the planes are {step:g} nm apart, and "
                f"voxels {voxel:g} nm high. Give the distance of the planes for both"
            )
    return heights


def _heights(dz: ArrayLike, planes: int) -> Array:
    """Return the height of each plane in nm."""
    given = np.asarray(dz, float) if np.ndim(dz) else None
    if given is None:
        step = number("dz", dz)
        if step <= 0:
            raise ValueError(
                f"dz must be above 0 nm: z rises with the number of the plane; got {step:g}. Of a "
                "stack that was recorded downwards, give stack[::-1] and the step without its sign"
            )
        return _in_nm(step * np.arange(float(planes)))
    if given.shape != (planes,) or not np.isfinite(given).all():
        raise ValueError(
            f"dz must be the step in nm, or the height of each of the {planes} planes; got "
            f"{'numbers that are not finite' if given.shape == (planes,) else given.shape}"
        )
    if not (np.diff(given) > 0).all():
        raise ValueError(
            "the heights of the planes must rise. Order both by them: order = numpy.argsort(z), "
            "stack[order], z[order]; of several planes at one height, give the mean"
        )
    return _in_nm(given - given[0])


def _in_nm(heights: Array) -> Array:
    """Return heights, or raise an error if they are too low to be in nm."""
    step = heights[-1] / max(len(heights) - 1, 1)
    if len(heights) > 1 and (heights[-1] < _LOWEST_STACK or step < _LEAST_STEP):
        raise ValueError(
            f"dz is in nm: steps must be {_LEAST_STEP:g} nm at least, and the stack of beads "
            f"{_LOWEST_STACK:g} nm high; got steps of {step:g} nm, {heights[-1]:g} nm in all. Is "
            "dz in µm? Then multiply it by 1000"
        )
    return heights


def _check_order(planes: NDArray[Any]) -> None:
    """Raise a ValueError if planes are not in the order of their heights.

    Parameters
    ----------
    planes : ndarray, shape (planes, rows, columns)
        The stack.
    """
    odd = _odd_planes(planes)
    named = f"planes {', '.join(map(str, odd[:_NAMED]))} … do not lie between those beside them: "
    if len(odd) <= _MANY * len(planes):
        named = "planes beside each other are as unlike as any two: "
        shuffled, jump = _shuffled_or_jump(planes)
        if jump is not None:
            warn_caller(
                f"planes {jump} and {jump + 1} are as unlike as any two, and others beside each "
                "other are alike: if these are several stacks, give one; if the stage jumped, "
                "record the stack again"
            )
        if not shuffled:
            return
    raise ValueError(
        f"{named}the planes are not in the order of their heights, or are several stacks. Order "
        "them: stack[numpy.argsort(z)]"
    )


def _shuffled_or_jump(planes: NDArray[Any]) -> tuple[bool, int | None]:
    """Whether planes beside each other are as unlike as any two; else the first of two that are.

    Examples
    --------
    >>> z, x = np.arange(12.0)[:, None, None], np.arange(21.0) - 10
    >>> width = 2 + z / 2
    >>> stack = 1000 * np.exp(-(x**2 + x[:, None] ** 2) / width**2) / width**2
    >>> _shuffled_or_jump(stack)
    (False, None)
    >>> _shuffled_or_jump(stack[[7, 0, 9, 2, 11, 4, 1, 8, 3, 10, 5, 6]])
    (True, None)
    """
    light = _light_of_beads(planes)
    if light is None:
        return False, None
    light /= np.maximum(np.linalg.norm(light, axis=1, keepdims=True), 1e-30)  # lamps flicker
    apart = 2 - 2 * light @ light.T
    usual = float(np.median(apart[np.triu_indices(len(apart), 1)]))
    beside = np.diagonal(apart, 1).copy()
    np.fill_diagonal(apart, np.inf)
    changes = float(np.median(apart.min(axis=0))) < _CHANGES * usual
    shuffled = changes and float(np.median(beside)) > _SHUFFLED * usual
    # A plane that is spoilt is far from both beside it.
    far = np.flatnonzero(beside > _JUMP * usual)
    jumps = len(far) == 1 and float(np.median(beside)) < _LITTLE * usual
    return shuffled, int(far[0]) if jumps else None


def _light_of_beads(planes: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return the pixels of each plane that show beads, less the background; None without beads."""
    top = planes.max(axis=0).astype(float)
    level = float(np.median(top))
    if top.max() - level < _BEAD * float(np.median(np.abs(top - level))):
        return None  # noise alone has no order
    bright = np.flatnonzero(top.ravel() > level + _LIGHT * (top.max() - level))
    if len(bright) < _FEWEST:
        return None
    bright = bright[:: -(-len(bright) // _PIXELS)]
    light: NDArray[np.float64] = planes.reshape(len(planes), -1)[:, bright].astype(float)
    light -= np.median(planes.reshape(len(planes), -1)[:, :: max(top.size // _PIXELS, 1)])
    return light


def _odd_planes(planes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the numbers of the planes that do not lie between those beside them.

    Examples
    --------
    >>> z, x = np.arange(12.0)[:, None, None], np.arange(21.0) - 10
    >>> width = 2 + z / 2
    >>> stack = 1000 * np.exp(-(x**2 + x[:, None] ** 2) / width**2) / width**2
    >>> _odd_planes(stack), _odd_planes(stack[[0, 1, 2, 9, 4, 5, 6, 7, 8, 3, 10, 11]])
    (array([], dtype=int64), array([4, 9]))
    """
    light = _light_of_beads(planes)
    if light is None:
        return np.empty(0, np.int64)
    before, own, after = light[:-2], light[1:-1], light[2:]
    middle = (before + after) / 2
    # Lamps flicker: a plane may have more light than those beside it.
    scale = (own * middle).sum(axis=1) / np.maximum((middle**2).sum(axis=1), 1e-30)
    other = (before * after).sum(axis=1) / np.maximum((after**2).sum(axis=1), 1e-30)
    off = ((own - scale[:, None] * middle) ** 2).sum(axis=1)
    apart = ((before - other[:, None] * after) ** 2).sum(axis=1)
    return np.flatnonzero(~(off <= _BETWEEN * np.maximum(apart, 1e-30)) | (scale <= 0)) + 1


@contextmanager
def rough_models() -> Iterator[None]:
    """Do not warn that Gaussians leave light of beads, as far out of focus they do."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* good fits are POOR_FIT")
        yield
