"""The fit of the spot under the cursor, with those that are fitted together with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...estimation.image_estimates import MeasuredNoise
from ...images.arrays import to_host
from ...images.frames import HeldFrame, inside
from ...localization.detect_spots import find, peak_near
from ...localization.fit_at import fit_at
from ...localization.localize import localize_parts
from ...models.columns import GROUP, GROUP_SIZE
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers.maps import NO_MAPS, LayerMaps, frame_of

Found = TypeVar("Found")
#: How far away, in sides of the ROI, spots lie at most on which a row depends: those that take
#: pixels from its fit, and from another fit that ends at the same spot.
_FAR = 3
#: How far the spots of a group are taken to belong to a click, in the same unit: in dense images
#: all spots are one group.
TOGETHER = 2
#: A place is that of a spot within this, in units of σ and at least in pixels.
_SAME, _LEAST = 2.0, 2.0
#: Pixels of a plane up to which all of its spots are fitted. Of larger ones, those in a square
#: part, of this side, and around it as far as crowds are compared with each other.
_WHOLE, _PART, _AROUND = 2**20, 512, 256


class FrameSpots:
    """Cache of the spots of the frame that was clicked last, for the next click in it."""

    def __init__(self) -> None:
        self._kept: tuple[Settings, NDArray[Any], dict[Hashable, Any]] | None = None

    def get(
        self,
        frame: HeldFrame,
        settings: Settings,
        search: Callable[[], Found],
        part: Hashable = None,
    ) -> Found:
        """Return the spots of a part of a frame, searched unless all is as it was."""
        if (
            self._kept is None
            or self._kept[0] != settings
            or not np.array_equal(self._kept[1], frame.pixels)
        ):
            self._kept = settings, frame.pixels.copy(), {}
        parts = self._kept[2]
        if part not in parts:
            parts[part] = search()
        found: Found = parts[part]
        return found


@dataclass(frozen=True, eq=False)
class Pick:
    """The fit of a press of the mouse: one spot of a frame that is read once.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        As :func:`~napari_spotfit.fit_at` takes it.
    index : tuple of int
        Indices of the frame along the image's leading axes.
    settings : Settings
        Those of the fits of the whole image.
    maps : LayerMaps
        The maps of its pixels, read when they are needed first.
    snap : bool
        Whether the spot is one within half a ROI of the place, as the detection finds it, or lies
        at the place itself.
    noise : MeasuredNoise
        That of the image.
    spots : FrameSpots
        What earlier presses have found.
    """

    image: Any
    index: tuple[int, ...]
    settings: Settings
    maps: LayerMaps = NO_MAPS
    snap: bool = True
    noise: MeasuredNoise = field(default_factory=MeasuredNoise)
    spots: FrameSpots = field(default_factory=FrameSpots)

    @cached_property
    def frame(self) -> HeldFrame:
        """The frame, read when it is needed first."""
        return HeldFrame(self.image, self.index, self.settings.dimensions)

    @cached_property
    def _known(self) -> dict[str, Any]:
        return {name: known for name, known in self._maps.items() if name != "mask"}

    @cached_property
    def _maps(self) -> dict[str, Any]:
        return self.maps.read()

    @cached_property
    def _estimated(self) -> Settings:
        return self.noise.put_into(self.settings, self.image, self._known)

    @cached_property
    def _kept(self) -> FrameSpots:
        """What was found before; maps may have been painted in since an earlier press."""
        return FrameSpots() if self._maps else self.spots

    @cached_property
    def _spots(self) -> NDArray[np.float64]:
        """Where the frame's spots are as the detection finds them, if a fit depends on that."""
        if self.settings.neighbours == "ignore":
            return np.empty((0, self.settings.dimensions))
        maps = {name: known for name, known in self._maps.items() if name != "weights"}
        settings = self._estimated.changed(backend="cpu")

        def search() -> NDArray[np.float64]:
            places, _ = find(self.frame, settings, frames=self.index or None, **maps)
            return places[:, -settings.dimensions :]

        return self._kept.get(self.frame, self._estimated, search)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Rows and columns of the frame, before them its planes in volumes, without reading it."""
        return tuple(int(side) for side in self.image.shape[-self.settings.dimensions :])

    def contains(self, place: ArrayLike) -> bool:
        """Whether a place (y, x), in volumes (z, y, x), lies on the frame's pixels."""
        return bool(inside(np.asarray(place, float), self.frame_shape))

    def fit(self, place: ArrayLike) -> SpotFits:
        """Fit the spot at a place, and those that are fitted together with it.

        Parameters
        ----------
        place : array, shape (2,) or (3,)
            y and x in pixels, in volumes with z before them.

        Returns
        -------
        SpotFits
            The spot, and the others of its group that are near. Where the detection finds the
            spot, they are the rows of :func:`~napari_spotfit.localize`, but for the score of
            spots that are fitted one by one: fits at given places have none.
        """
        center: NDArray[np.float64] = np.asarray(place, float)
        around = None
        if self.settings.neighbours in ("auto", "joint"):
            around = self._fits_around(center)
            row = self._nearest(around, center)
            if row is not None:
                return self._group_of(around, row)
        settings = self._estimated
        if self.snap:
            known = {name: self._known.get(name) for name in ("bad_pixels", "camera")}
            center = peak_near(self.frame, center, settings, **known)
        # Hidden spots are neighbours, too, and each is where its fit has put it.
        spots = self._spots if around is None or GROUP not in around else _places(around)
        centers = np.vstack([center, self._beside(center, spots)])
        index = np.broadcast_to(self.index, (len(centers), len(self.index)))
        fits = fit_at(
            self.frame, np.column_stack([index, centers]), settings=settings, **self._known
        )
        return self._group_of(fits, 0)

    def _fits_around(self, center: NDArray[np.float64]) -> SpotFits:
        """Return what the fit of all spots finds around a place, where one depends on others."""
        corner = self._part_at(center)

        def search() -> SpotFits:
            maps = {"frames": self.index or None, **self._maps}
            if corner is not None:
                mask = np.zeros(self.frame_shape, bool)
                part: tuple[Any, ...] = (..., *(slice(first, last) for first, last in corner))
                mask[part] = True
                if "mask" in maps:
                    mask &= frame_of(maps["mask"], self.index)
                maps["mask"] = mask
            parts = localize_parts(self.frame, self._estimated, **maps)
            return SpotFits.concatenate([part.fits for part in parts]).to_host()

        return self._kept.get(self.frame, self._estimated, search, corner or "whole")

    def _part_at(self, center: NDArray[np.float64]) -> tuple[tuple[int, int], ...] | None:
        """Return first and last rows and columns of the part of a large plane that is fitted."""
        if np.prod(self.frame_shape[-2:]) <= _WHOLE:
            return None
        firsts = (int(max(at, 0)) // _PART * _PART for at in center[-2:])
        return tuple((max(first - _AROUND, 0), first + _PART + _AROUND) for first in firsts)

    def _nearest(self, fits: SpotFits, center: NDArray[np.float64]) -> int | None:
        """Return the row of the spot that a place means; None if there is none."""
        settings = self._estimated
        reach = np.full(settings.dimensions, max(_SAME * settings.known_sigma, _LEAST))
        if self.snap:
            reach = np.array(settings.roi_shape) / 2
        away = (((_places(fits) - center) / reach) ** 2).sum(axis=1)
        away[~to_host(fits.valid) | ~(away <= 1)] = np.inf
        if not self.snap:  # what is fitted by itself is fitted from here
            away[fits.columns[GROUP_SIZE] < 2 if GROUP_SIZE in fits else slice(None)] = np.inf
        row = int(np.argmin(away)) if len(away) else 0
        return row if len(away) and np.isfinite(away[row]) else None

    def _group_of(self, fits: SpotFits, row: int) -> SpotFits:
        """Return a row, and after it the others of its group that are near."""
        if GROUP not in fits:
            return fits[[row]]
        group, places = fits.columns[GROUP], _places(fits)
        away = abs(places - places[row]) / np.array(self._estimated.roi_shape)
        others = (group == group[row]) & (away <= TOGETHER).all(axis=1)
        others[row] = False
        return fits[[row, *np.flatnonzero(others).tolist()]]

    def _beside(
        self, center: NDArray[np.float64], spots: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the other spots on which the fit of one depends."""
        side = np.array(self._estimated.roi_shape)
        away = abs(spots - center) / side
        beside = (away <= _FAR).all(axis=1)
        if not self.snap and beside.any():
            # The spot that is meant is fitted from here.
            nearest = np.argmin((away**2).sum(axis=1))
            beside[nearest] &= (away[nearest] ** 2).sum() > 0.25
        beside &= away.any(axis=1)
        chosen: NDArray[np.float64] = spots[beside]
        return chosen


def _places(fits: SpotFits) -> NDArray[np.float64]:
    """Return where fits ended in their frame."""
    return np.column_stack([to_host(fits.columns[axis]) for axis in fits.axes]).astype(float)
