"""A camera's offset, gain and read-out variance, as numbers or maps of one value per pixel."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.number_checks import accepted, as_float, is_wrong, shown
from .arrays import as_array, check_real, is_on_device, known_shape, to_native
from .frames import FrameReader

#: Units of the quantities.
_UNITS = {"offset": "counts", "gain": "counts/e⁻", "variance": "counts²"}


@dataclass(frozen=True, eq=False)
class Camera:
    """A camera's calibration, for the whole chip or for each pixel (sCMOS).

    Each quantity is a number or a map. A map has the shape of a frame and covers the same pixels
    as the image; for cut-outs it has the shape of one cut-out, or of all of them.

    Threads: any number may share it, as it is immutable; do not modify its maps.

    Parameters
    ----------
    offset : float or array, optional
        Mean of dark frames, in counts. By default the setting ``offset``.
    gain : float or array, optional
        Counts per photo-electron. By default the setting ``gain``.
    variance : float or array, optional
        Variance of dark frames (read-out noise), in counts². Maximum likelihood adds it to the
        shot noise; ``wlse`` weights by its inverse unless weights are given; the standard errors
        of ``lse`` and ``wlse`` include it if the gain is known. By default 0.

    Raises
    ------
    TypeError
        If a quantity is neither a real number nor an array of them.
    ValueError
        If a number is not finite, a gain not positive, or a variance negative. Maps are checked
        when they are used, except at bad pixels.

    References
    ----------
    F. Huang et al., Video-rate nanoscopy using sCMOS camera-specific single-molecule
    localization algorithms, Nature Methods 10, 653 (2013).

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import Camera, fit_spots, simulate_spots
    >>> rng = np.random.default_rng(0)
    >>> offset, gain, variance = rng.normal(100, 2, (9, 9)), 2.2, rng.uniform(2, 30, (9, 9))
    >>> spots, truth = simulate_spots(100, offset=offset, gain=gain, variance=variance, seed=1)
    >>> camera = Camera(offset, gain, variance)
    >>> fits = fit_spots(spots, estimator="mle", camera=camera)
    >>> round(float(np.median(fits.photons)), -1)
    400.0
    """

    offset: Any = None
    gain: Any = None
    variance: Any = None

    def __post_init__(self) -> None:
        for name in _UNITS:
            object.__setattr__(self, name, _checked(name, getattr(self, name)))


def _checked(name: str, value: Any) -> Any:
    """Check one quantity, and return it as a float, an array or None."""
    if value is None:
        return None
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = as_float(value)
        if bool(is_wrong(name, np.float64(number))):
            raise ValueError(
                f"the camera's {name} must be {accepted(name)} ({_UNITS[name]}); got {shown(value)}"
            )
        return number
    array = as_array(value)
    check_real(array.dtype, f"the camera's {name}")
    if array.ndim == 0:
        return _checked(name, float(array))
    if array.ndim < 2:
        raise ValueError(
            f"the camera's {name} must be one number or a map with axes (y, x); "
            f"got an array of shape {tuple(array.shape)}"
        )
    return array


class PerPixel:
    """A map of one value per pixel, for all frames or for each of them.

    Parameters
    ----------
    values : array, shape (Y, X) or (…, Y, X)
        The map, with the shape of a frame or of the image, or of a plane of volumes; any kind of
        array that images can be.
    shape : tuple of int
        The image's shape.
    what : str
        Its name in messages.
    spatial : int
        Number of axes of a frame.
    flags : str, optional
        Meaning of True if the values are booleans; without it, they are numbers.

    Raises
    ------
    TypeError
        If the values have the wrong type.
    ValueError
        If they have the wrong shape.
    """

    def __init__(
        self, values: Any, shape: tuple[int, ...], what: str, flags: str = "", spatial: int = 2
    ) -> None:
        if is_on_device(values) or not (hasattr(values, "shape") and hasattr(values, "dtype")):
            values = as_array(values)
        if not flags:
            check_real(values.dtype, what)
        elif np.dtype(values.dtype) != np.bool_:
            raise TypeError(f"{what} must be boolean, True {flags}; got {values.dtype}")
        own, frame_shape = known_shape(values, what), shape[-spatial:]
        if own == frame_shape[-2:] != frame_shape:
            own, values = frame_shape, np.broadcast_to(_frame(values, own, what), frame_shape)
        if own not in (frame_shape, shape):
            kinds = dict.fromkeys((frame_shape[-2:], frame_shape, shape))
            accepted = " or ".join(map(str, kinds))
            raise ValueError(f"{what} must have the shape {accepted}; got {own}")
        #: Whether all frames share the map, and whether it lies on a GPU.
        self.shared, self.on_device = len(own) == spatial, is_on_device(values)
        self._is_flag, self._frame_shape = bool(flags), frame_shape
        self._frame = _frame(values, own, what) if self.shared else None
        self._stack = (
            None if self.shared else FrameReader(values, self._is_flag, spatial, checked=False)
        )

    @classmethod
    def of_mask(cls, mask: Any, reader: FrameReader) -> PerPixel | None:
        """Return the map of a mask of where to search; None without a mask."""
        spatial = len(reader.axes)
        return None if mask is None else cls(mask, reader.shape, "mask", "where to search", spatial)

    def read(self, block: NDArray[np.int64]) -> Any:
        """Return the values for some frames, of shape (1, …, Y, X) or (frames, …, Y, X)."""
        if self._stack is None:
            assert self._frame is not None
            values = self._frame[np.newaxis]
        elif len(block):
            values = self._stack.read(block)
        else:
            values = np.empty((0, *self._frame_shape), np.float32)
        return values.astype(np.bool_) if self._is_flag else values


def _frame(values: Any, shape: tuple[int, ...], what: str) -> Any:
    """Return a map that all frames share, as the backends read it."""
    frame = to_native(as_array(values))
    if frame.shape != shape:
        raise ValueError(f"{what} promised the shape {shape}, but came as {frame.shape}")
    return frame
