"""The fit of one spot under the cursor, by the code and settings of all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...estimation.image_estimates import MeasuredNoise
from ...images.frames import HeldFrame, inside
from ...localization.detect_spots import find, peak_near
from ...localization.fit_at import fit_at
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers.maps import NO_MAPS, LayerMaps

#: How far away, in sides of the ROI, spots lie at most on which a row depends: those that take
#: pixels from its fit, and from another fit that ends at the same spot.
_FAR = 3


class FrameSpots:
    """Cache of the spots of the frame that was clicked last, for the next click in it."""

    def __init__(self) -> None:
        self._kept: tuple[Settings, NDArray[Any], NDArray[np.float64]] | None = None

    def get(
        self, frame: HeldFrame, settings: Settings, search: Callable[[], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Return the spots of a frame, searched unless pixels and settings are unchanged."""
        if (
            self._kept is None
            or self._kept[0] != settings
            or not np.array_equal(self._kept[1], frame.pixels)
        ):
            self._kept = settings, frame.pixels.copy(), search()
        return self._kept[2]


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
        Whether the spot is the brightest maximum within half a ROI of the place, as the
        detection finds it, or lies at the place itself.
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
    def _spots(self) -> NDArray[np.float64]:
        """Where the frame's spots are as the detection finds them, if a fit depends on that."""
        if self.settings.neighbours == "ignore":
            return np.empty((0, self.settings.dimensions))
        maps = {name: known for name, known in self._maps.items() if name != "weights"}
        settings = self._estimated.changed(backend="cpu")

        def search() -> NDArray[np.float64]:
            places, _ = find(self.frame, settings, frames=self.index or None, **maps)
            return places[:, -settings.dimensions :]

        # Maps may have been painted in since.
        return search() if maps else self.spots.get(self.frame, settings, search)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Rows and columns of the frame, before them its planes in volumes, without reading it."""
        return tuple(int(side) for side in self.image.shape[-self.settings.dimensions :])

    def contains(self, place: ArrayLike) -> bool:
        """Whether a place (y, x), in volumes (z, y, x), lies on the frame's pixels."""
        return bool(inside(np.asarray(place, float), self.frame_shape))

    def fit(self, place: ArrayLike) -> SpotFits:
        """Fit the spot at a place.

        Parameters
        ----------
        place : array, shape (2,) or (3,)
            y and x in pixels, in volumes with z before them.

        Returns
        -------
        SpotFits
            One row. Where the detection finds the spot, it is that of
            :func:`~napari_spotfit.localize` but for the score, which fits at given places
            have none of.
        """
        settings = self._estimated
        center: NDArray[np.float64] = np.asarray(place, float)
        if self.snap:
            known = {name: self._known.get(name) for name in ("bad_pixels", "camera")}
            center = peak_near(self.frame, center, settings, **known)
        centers = np.vstack([center, self._beside(center)])
        index = np.broadcast_to(self.index, (len(centers), len(self.index)))
        fits = fit_at(
            self.frame, np.column_stack([index, centers]), settings=settings, **self._known
        )
        return fits[:1]

    def _beside(self, center: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the other spots on which the fit of one depends."""
        side = np.array(self._estimated.roi_shape)
        away = abs(self._spots - center) / side
        beside = (away <= _FAR).all(axis=1)
        if not self.snap and beside.any():
            # The spot that is meant is fitted from here.
            nearest = np.argmin((away**2).sum(axis=1))
            beside[nearest] &= (away[nearest] ** 2).sum() > 0.25
        beside &= away.any(axis=1)
        chosen: NDArray[np.float64] = self._spots[beside]
        return chosen
