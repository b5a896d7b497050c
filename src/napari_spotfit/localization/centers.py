"""Read given positions: by position or, of a table, by the names of its columns."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..caller import warn_caller
from ..images.arrays import FRAMES, PLANES, as_array, check_real, to_host
from ..images.frames import FrameReader, inside
from ..models.columns import CHANNEL, IN_PLANE
from ..results.spot_fits import SpotFits

#: What tables call the axes of a plane, and that of channels.
_NAMES = {"y": ("y", "row"), "x": ("x", "col", "column")}
_CHANNELS = ("c", CHANNEL)
#: Names with a unit, such as "x [nm]" and "y_nm".
_WITH_UNIT = re.compile(r"\s*([xy])\s*[\[(_ ]\s*(nm|um|µm|μm|px|pix|pixels?)\s*[\])]?\s*")
#: Positions outside of the image at least that are warned of, if they are most of them.
_LEAST_OUTSIDE = 2
_PIXELS = ("px", "pix", "pixel", "pixels")


def checked_places(
    centers: ArrayLike,
    axes: int,
    *,
    spatial: int = len(IN_PLANE),
    names: Sequence[str] | None = None,
) -> NDArray[np.float64]:
    """Return positions in an image, or raise an error that states what is accepted.

    Parameters
    ----------
    centers : array, table or SpotFits
        Columns of a table that are named after the axes are taken by name, in any order.
    axes : int
        How many axes the image has.
    spatial : int
        How many of them are the spots' own.
    names : sequence of str, optional
        The names of the image's axes.
    """
    if isinstance(centers, SpotFits):
        places = to_host(centers.points())
    else:
        named = _by_name(centers, axes, spatial, names)
        places = to_host(as_array(centers) if named is None else named)
    if places.dtype == np.float64 and places.ndim == 2 and places.shape[1] == axes:
        known: NDArray[np.float64] = places
        return known
    if places.shape == (0,):
        places = np.empty((0, axes))
    if places.dtype == object:  # numbers, perhaps, as of a table whose columns have several types
        with contextlib.suppress(TypeError, ValueError):
            places = places.astype(float)
    check_real(places.dtype, "centers")
    if places.ndim != 2 or places.shape[1] != axes:
        raise ValueError(
            f"centers must have the shape (n, {axes}), one column per axis of the image; "
            f"got {places.shape}"
        )
    return np.asarray(places, float)


def _by_name(
    centers: Any, axes: int, spatial: int, names: Sequence[str] | None
) -> NDArray[Any] | None:
    """Return the columns of a table that the axes are called after; None where none is."""
    titles = _titles_of(centers)
    if not titles:
        return None
    plain = {title: _without_unit(title) for title in titles}
    found = {
        axis: [title for title in titles if plain[title] in known] for axis, known in _NAMES.items()
    }
    if not any(found.values()):
        return None
    for axis, those in found.items():
        if len(those) != 1:
            what = f"columns {' and '.join(those)}" if those else "no column"
            raise ValueError(
                f"centers has {what} for the axis {axis}; it has {', '.join(titles)}: name one "
                "column y and one x, or give an array with columns in the order of the image's axes"
            )
    leading = _leading(titles, plain, axes - len(IN_PLANE), spatial, names)
    taken = [*leading, *(found[axis][0] for axis in IN_PLANE)]
    frames = next((title for title in titles if plain[title] in FRAMES), None)
    if axes == spatial and frames is not None and len(np.unique(np.asarray(centers[frames]))) > 1:
        raise ValueError(
            f"centers has spots of several frames in its column {frames!r}, and the image is a "
            "single frame: choose the rows of one, or give the movie"
        )
    return np.column_stack([np.asarray(centers[title], float) for title in taken])


def _titles_of(centers: Any) -> list[str]:
    """Return the names of a table's columns; nothing of what has no names."""
    names = getattr(getattr(centers, "dtype", None), "names", None)
    if names is None and hasattr(centers, "columns") and hasattr(centers, "__getitem__"):
        names = list(centers.columns)
    if not names or not all(isinstance(one, str) for one in names):
        return []
    return list(names)


def _without_unit(title: str) -> str:
    """Return a column's name in lower case; a ValueError if it is of a position in nanometres."""
    name = title.strip().lower()
    if match := _WITH_UNIT.fullmatch(name):
        name, unit = match.groups()
        if unit not in _PIXELS:
            raise _in_nanometres(title)
    return name


def _in_nanometres(title: str) -> ValueError:
    return ValueError(
        f"centers must be in pixels, in columns y and x; got {title!r}: divide by the size of a "
        "pixel, and choose these columns, as table[['frame', 'y', 'x']]"
    )


def _leading(
    titles: Sequence[str],
    plain: Mapping[str, str],
    count: int,
    spatial: int,
    names: Sequence[str] | None,
) -> list[str]:
    """Return the columns of the axes before those of a plane: by the image's names, or t, c, z."""
    if not count:
        return []
    if names is not None:
        own = [next((t for t in titles if plain[t] == one.lower()), "") for one in names[:count]]
        if all(own):
            return own
    of_z = [title for title in titles if plain[title] in PLANES]
    of_frames = [title for title in titles if plain[title] in FRAMES]
    others = sorted(title for title in titles if re.fullmatch(r"axis[-_]\d+", plain[title]))
    others += of_frames + [title for title in titles if plain[title] in _CHANNELS]
    if spatial > len(IN_PLANE):
        found = [*others[: count - 1], *of_z[:1]] if count > 1 else of_z[:1]
    elif len(others) >= count:  # a table of spots may have their z besides
        found = others[:count]
    else:
        found = [*others, *of_z]
    if len(found) != count:
        needed = "frame, y and x" if spatial == len(IN_PLANE) else "z, y and x"
        if count > 1:
            needed = f"{count} of leading axes, y and x"
        raise ValueError(
            f"centers has the columns {', '.join(titles)}, and the image's {count + len(IN_PLANE)} "
            f"axes need {needed}: name them so, or give an array with columns in the order of the "
            "image's axes"
        )
    return found


def warn_of_missing_frames(places: NDArray[np.float64], reader: FrameReader) -> None:
    """Warn the caller of positions in frames that the image does not have."""
    index = np.rint(places[:, : len(reader.leading)])
    odd = (index < 0) | (index >= reader.leading)
    rows = np.flatnonzero(odd.any(axis=1))
    if len(rows):
        axis = int(np.flatnonzero(odd[rows[0]])[0])
        at = "" if len(reader.leading) == 1 else f" along axis {axis}"
        last = reader.leading[axis] - 1
        warn_caller(
            f"{len(rows)} of {len(places)} centres are in frames that the image does not have, "
            f"such as {index[rows[0], axis]:g}{at}, where it has "
            f"{'none' if last < 0 else f'0 to {last}'}: these fits are INVALID"
        )


def warn_of_places_outside(places: NDArray[np.float64], reader: FrameReader) -> None:
    """Warn the caller where most positions lie outside of the frames, as in nm; few may do so."""
    at = places[:, len(reader.leading) :]
    rows = np.flatnonzero(np.isfinite(at).all(axis=1) & ~inside(at, reader.frame_shape))
    if len(rows) < _LEAST_OUTSIDE or len(rows) <= len(places) / 2:
        return
    axes = ("z", "y", "x")[-at.shape[1] :]
    size = "×".join(map(str, reader.frame_shape))
    one = ", ".join(f"{axis} {value:.6g}" for axis, value in zip(axes, at[rows[0]], strict=True))
    warn_caller(
        f"{len(rows)} of {len(places)} centres lie outside of the image of {size} px, such as "
        f"{one}: these fits are INVALID. Give {', '.join(axes)} in this order, in pixels, not in nm"
    )
