"""Crowds of candidates of spots, as backends fit them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cpu.layouts import JointFits, JointSpot
from .kernel_arguments import PIXEL_TYPES, address

#: Numbers that are sorted in less time than it takes to make them shorter.
_FEW = 200
#: The arrays of a measured PSF.
PSF_ARRAYS: Final = ("coefficients", "template_z")
#: Spots of crowds, as backends return them; of candidates z, y, x, light, candidate and crowd.
SPOT: Final = np.dtype(JointSpot)


def joined(parts: Iterable[NDArray[np.void]]) -> NDArray[np.void]:
    """Join arrays of spots; a single one is not copied."""
    # NumPy compares the fields of each pair of arrays, which takes longer than some fits.
    plain = [np.ascontiguousarray(part).view(np.uint64) for part in parts if len(part)]
    if len(plain) == 1:
        return plain[0].view(SPOT)
    return np.concatenate([np.empty(0, np.uint64), *plain]).view(SPOT)


def by_number(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order of numbers from 0 on; those that are equal stay as they are."""
    if len(numbers) > _FEW:
        # NumPy sorts numbers of 16 bits by their digits, in a tenth of the time.
        numbers = numbers.astype(np.min_scalar_type(numbers.max()))
    return np.argsort(numbers, kind="stable")


def taken(spots: NDArray[np.void], which: NDArray[Any]) -> NDArray[np.void]:
    """Return some spots: a mask or their numbers; of a mask of all, these and no copy."""
    if which.dtype == np.bool_:
        if which.all():
            return spots
        which = np.flatnonzero(which)
    # NumPy copies these field by field.
    rows = np.ascontiguousarray(spots).view(np.uint64).reshape(-1, SPOT.itemsize // 8)
    return rows.take(which, axis=0).view(SPOT).ravel()


class Members(NamedTuple):
    """Detected spots, which crowd each is of, and the frame of each crowd."""

    crowd: NDArray[np.int64]
    frame: NDArray[np.int64]
    #: Which take part in joint fits; which have a good fit and which are long, by themselves.
    is_there: NDArray[np.bool_]
    is_good: NDArray[np.bool_]
    is_long: NDArray[np.bool_]

    @property
    def crowds(self) -> int:
        """How many crowds there are."""
        return len(self.frame)

    def number(self, which: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many of these spots each crowd has."""
        return np.bincount(self.crowd[which], minlength=self.crowds)


def losses(spots: NDArray[np.void], cost: float, crowds: int) -> NDArray[np.float64]:
    """Return how unlikely each of some crowds is made by its spots, in nats, each costing some.

    Of crowds without a spot it is 0.
    """
    lost = np.zeros(crowds)
    lost[spots["crowd"]] = spots["deviance"] / 2 + cost * spots["spots"]
    return lost


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidates of spots, and the frame of each."""

    points: NDArray[np.void]
    frame: NDArray[np.int64]

    @cached_property
    def places(self) -> NDArray[np.float64]:
        """Their x, y and z."""
        return np.column_stack([self.points[axis] for axis in ("x", "y", "z")])

    @cached_property
    def by_place(self) -> NDArray[np.int64]:
        """Their order by frame, y, x and z."""
        places, by_z = self.places, None
        if places[:, 2].any():
            by_z = np.argsort(places[:, 2], kind="stable")
            places = places.take(by_z, axis=0)
        # One sort of complex numbers, which are ordered by two, takes less time than two.
        y_and_x = np.ascontiguousarray(places[:, 1::-1]).view(np.complex128).ravel()
        order: NDArray[np.int64] = np.argsort(y_and_x, kind="stable")
        order = order if by_z is None else by_z[order]
        return order[by_number(self.frame[order])]

    @cached_property
    def in_order(self) -> dict[str, NDArray[Any]]:
        """Arrays of kernels, in that order."""
        own = {"frame": self.frame, "places": self.places, "light": self.points["light"]}
        if (is_hidden := self.points["candidate"] < 0).any():
            own["hidden"] = is_hidden.astype(np.uint8)
        return {name: array.take(self.by_place, axis=0) for name, array in own.items()}


@dataclass(frozen=True, eq=False)
class Crowds:
    """Crowds of candidates, and how to fit them."""

    #: All but the addresses of frames and arrays.
    how: JointFits
    #: The arrays, by their names there.
    arrays: Mapping[str, NDArray[Any]]
    threads: int | None

    def __len__(self) -> int:
        return len(self.arrays["first"]) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many candidates each has."""
        sizes: NDArray[np.int64] = np.diff(self.arrays["first"])
        return sizes

    def some(self, which: NDArray[np.int64]) -> Crowds:
        """Return some of them; of the spots of others, these still do not take the pixels."""
        sizes, members = self.sizes[which], self.arrays["members"]
        first = np.concatenate([[0], np.cumsum(sizes)])
        own = np.repeat(self.arrays["first"][which] - first[:-1], sizes) + np.arange(first[-1])
        return replace(self, arrays={**self.arrays, "members": members[own], "first": first})

    def within(self, frames: Any, arrays: Mapping[str, Any]) -> JointFits:
        """Return what kernels take, given the frames and the arrays where they run."""
        own = JointFits.from_buffer_copy(self.how)
        own.frames, own.pixel_type = address(frames), PIXEL_TYPES[frames.dtype.str[1:]]
        for name, array in arrays.items():
            setattr(own.psf if name in PSF_ARRAYS else own, name, address(array))
        return own
