"""The eight orientations that a camera's rows and columns may have."""

from __future__ import annotations

from typing import Any, NamedTuple


class Orientation(NamedTuple):
    """What becomes of an image: rows and columns are exchanged first, then it is flipped."""

    exchanged: bool
    flipped_y: bool
    flipped_x: bool

    @property
    def inverse(self) -> Orientation:
        """What undoes it."""
        if not self.exchanged:
            return self
        return self._replace(flipped_y=self.flipped_x, flipped_x=self.flipped_y)

    def of(self, images: Any) -> Any:
        """Return images, (…, rows, columns), in this orientation.

        Examples
        --------
        >>> import numpy as np
        >>> image = np.arange(6).reshape(2, 3)
        >>> turned = ORIENTATIONS["rotated_90"]
        >>> bool((turned.of(image) == np.rot90(image)).all())
        True
        >>> bool((turned.inverse.of(turned.of(image)) == image).all())
        True
        """
        if self.exchanged:
            images = images.swapaxes(-1, -2)
        y, x = (slice(None, None, -1 if flip else 1) for flip in (self.flipped_y, self.flipped_x))
        return images[..., y, x]


ORIENTATIONS = {
    "as_it_is": Orientation(False, False, False),
    "flipped_y": Orientation(False, True, False),
    "flipped_x": Orientation(False, False, True),
    "rotated_180": Orientation(False, True, True),
    "transposed": Orientation(True, False, False),
    "rotated_90": Orientation(True, True, False),
    "rotated_270": Orientation(True, False, True),
    "antitransposed": Orientation(True, True, True),
}
