"""A measured PSF: a cubic spline through the average of beads, as a model of fits that finds z."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .calibration import Calibration, Orientation, read_only
from .columns import COLUMNS
from .lattice import Lattice, spline_coefficients
from .profiles import YX, Profile, ShapeParameter

Array = NDArray[np.float64]

#: Pixels along an axis, and planes, that a PSF has at least.
LEAST_PIXELS, LEAST_PLANES = 5, 4
#: Side of the ROIs that bounds of precision are computed for.
ROI_OF_BOUND = 13
#: Heights nearer than this, in nm, are confused by noise and not by being alike; the number of
#: heights of spots, and of those that each is compared with.
_FAR, _OWN, _OTHERS = 150.0, 24, 120


class PsfPrecision(NamedTuple):
    """Standard errors of the best unbiased fits, the Cramér–Rao bound, against z.

    All are in nm but that of the photons; x and y are in pixels where the size of pixels is
    unknown.
    """

    z: Array
    z_stderr: Array
    y_stderr: Array
    x_stderr: Array
    photons_stderr: Array


class PsfBead(NamedTuple):
    """A bead of the stack, and what became of it."""

    y: float
    x: float
    #: Its own height in nm, and its photons, or counts, in its brightest plane.
    z: float
    photons: float
    used: bool
    #: Why it was not used; "used" otherwise.
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredPsf(Calibration):
    """The PSF of a microscope, as :func:`~napari_spotfit.calibrate_psf` measures it on beads.

    ``model=…`` of fits takes it: they find x, y, z in nm, photons and background. z is 0 in the
    reference plane and rises with the number of the plane of the bead stack.

    Threads: it does not change, so that any number may use one.

    Attributes
    ----------
    coefficients : ndarray of float32, shape (planes + 2, rows + 2, columns + 2)
        Those of a cubic B-spline in z, y and x with a knot in each voxel. The spline is the
        fraction of a spot's light in a pixel.
    dz : float
        Distance of two planes in nm.
    plane, y, x : float
        Where the PSF's centre is among the knots: z, y and x of a fit are 0 there.
    pixel_size : float or None
        Side of a pixel in nm, where it is known.
    index_factor : float
        What a nm of the stage is in the sample, for z and its error: below 1 where the sample's
        refractive index is below that of the immersion.
    bead_count, bead_photons : ndarray or None
        How many beads each plane was measured on, and their photons in all, by the gain that the
        calibration was given.
    z_bias, z_scatter : ndarray or None
        By how much z of a bead is off in each plane by the PSF of the others, in nm: on average,
        and as a standard deviation.
    beads : tuple of PsfBead
        Every bead that was found, and why it was left out.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import MeasuredPsf
    >>> z, y, x = np.ogrid[-5:6, -7:8, -7:8]
    >>> wide_y, wide_x = 1.3 + 0.05 * z, 1.3 - 0.05 * z
    >>> beads = np.exp(-((y / wide_y) ** 2 + (x / wide_x) ** 2) / 2) / (wide_y * wide_x)
    >>> psf = MeasuredPsf.from_planes(beads / beads[5].sum(), dz=100, plane=5)
    >>> psf.range
    (-500.0, 500.0)
    >>> bool(psf.precision(photons=1000, background=10).z_stderr[5] < 70)
    True
    """

    kind: ClassVar[str] = "measured psf"

    coefficients: NDArray[Any]
    dz: float
    plane: float
    y: float
    x: float
    pixel_size: float | None = None
    index_factor: float = 1.0
    bead_count: NDArray[np.int64] | None = None
    bead_photons: NDArray[np.float64] | None = None
    z_bias: NDArray[np.float64] | None = None
    z_scatter: NDArray[np.float64] | None = None
    beads: tuple[PsfBead, ...] = ()

    def __post_init__(self) -> None:
        own = read_only(self.coefficients, np.float32)
        if own.ndim != 3 or own.shape[0] < LEAST_PLANES + 2 or min(own.shape) < LEAST_PIXELS + 2:
            raise ValueError(
                f"a measured PSF must have at least {LEAST_PIXELS} planes, rows and columns; its "
                f"coefficients, two more along each axis, have the shape {own.shape}"
            )
        if not np.isfinite(own).all() or not own.max() > 0:
            raise ValueError("the coefficients of a measured PSF must be finite and show light")
        object.__setattr__(self, "coefficients", own)
        for name in ("dz", "plane", "y", "x", "index_factor"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "beads", tuple(PsfBead(*bead) for bead in self.beads))
        for name in ("dz", "index_factor", "pixel_size"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise ValueError(f"{name} of a measured PSF must be above 0; got {value!r}")
        for name, size in zip(("plane", "y", "x"), own.shape, strict=True):
            if not 0 <= getattr(self, name) <= size - 3:
                raise ValueError(
                    f"{name} of the PSF's centre must be from 0 to {size - 3}; "
                    f"got {getattr(self, name)!r}"
                )

    @classmethod
    def from_planes(
        cls,
        planes: Any,
        dz: float,
        *,
        plane: float | None = None,
        ends: str = "not-a-knot",
        **others: Any,
    ) -> MeasuredPsf:
        """Return the PSF whose values in the voxels are given.

        Parameters
        ----------
        planes : array, shape (planes, rows, columns)
            The fraction of a spot's light in each pixel, for a spot in the middle.
        dz : float
            Distance of two planes in nm.
        plane : float, optional
            The reference plane, where z = 0; by default the brightest one.
        ends : {"not-a-knot", "natural"}
            What the spline does at its ends.
        **others
            Other attributes, such as ``pixel_size``.
        """
        values = np.asarray(planes, float)
        if values.ndim != 3:
            raise ValueError(f"planes must have three axes, z, y and x; got {values.shape}")
        if plane is None:
            plane = float(values.max(axis=(1, 2)).argmax())
        y, x = ((size - 1) / 2 for size in values.shape[1:])
        own = {"y": y, "x": x} | others
        return cls(spline_coefficients(values, ends), dz, plane, **own)

    def with_index(self, factor: float) -> MeasuredPsf:
        """Return the same with another refractive-index factor, see above."""
        return replace(self, index_factor=factor)

    def _turned(self, how: Orientation) -> MeasuredPsf:
        y, x = (self.x, self.y) if how.exchanged else (self.y, self.x)
        turned = how.of(self.coefficients)
        y = turned.shape[1] - 3 - y if how.flipped_y else y
        x = turned.shape[2] - 3 - x if how.flipped_x else x
        return replace(self, coefficients=turned, y=y, x=x)

    @property
    def words(self) -> str:
        """What it is, in a few words."""
        planes, rows, columns = (size - 2 for size in self.coefficients.shape)
        used = sum(bead.used for bead in self.beads)
        beads = f", {used} bead{'s' * (used != 1)}" if self.beads else ""
        return f"measured PSF, {planes} planes of {self.dz:g} nm, {rows}×{columns} px{beads}"

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings that fits with it have unless others are given."""
        own: dict[str, Any] = {"roi_size": self.roi_size, "sigma": self.usual_sigma}
        if self.lattice.lobes:
            # Two lobes of one spot are two maxima.
            own["min_distance"] = float(np.ceil(2 * self.lattice.lobes))
        return own

    @property
    def usual_sigma(self) -> float:
        """Width of the Gaussian on as many pixels as the light, in pixels: a quarter have less.

        Spots are detected with it: with the width in focus, those out of focus are found twice.
        """
        planes = np.maximum(self.voxels, 0).reshape(self.coefficients.shape[0] - 2, -1)
        pixels = planes.sum(axis=1) ** 2 / np.maximum((planes**2).sum(axis=1), 1e-30)
        return float(np.clip(np.sqrt(np.quantile(pixels, 0.25) / (4 * np.pi)), 0.5, 10))

    @property
    def roi_size(self) -> int:
        """Side of the ROIs that suit it: 13 px, or what it has, less 2, if that is less."""
        least: int = min(self.coefficients.shape[1:]) - 4
        return max(min(ROI_OF_BOUND, least - 1 + least % 2), LEAST_PIXELS)

    @property
    def nm_per_plane(self) -> float:
        """Distance of two planes in the sample, in nm."""
        return self.dz * self.index_factor

    @property
    def range(self) -> tuple[float, float]:
        """The first and the last z that it has, in nm."""
        return self.lattice.range

    @cached_property
    def lattice(self) -> Lattice:
        """The spline."""
        return Lattice(self.coefficients, self.plane, self.y, self.x, self.nm_per_plane)

    @property
    def voxels(self) -> Array:
        """The fraction of a spot's light in each voxel, (planes, rows, columns)."""
        return self.lattice.voxels

    def precision(
        self, photons: float, background: float, *, z: Any = None, roi_size: int = ROI_OF_BOUND
    ) -> PsfPrecision:
        """Return how precise fits can be: the Cramér–Rao bound.

        Parameters
        ----------
        photons : float
            Photons of a spot.
        background : float
            Photons of the background in a pixel.
        z : array, optional
            Where, in nm; by default in every plane.
        roi_size : int
            Side of the ROI in pixels.
        """
        planes = np.arange(self.coefficients.shape[0] - 2.0)
        z = (planes - self.plane) * self.nm_per_plane if z is None else np.asarray(z, float)
        at = np.arange(roi_size) - (roi_size - 1) / 2
        y, x = at[:, None], at
        z_of = np.atleast_1d(z)[:, None, None]
        value = np.maximum(self.lattice.sample(z_of, y, x), 0)
        slopes = [photons * self.lattice.sample(z_of, y, x, axis) for axis in "zyx"]
        every = np.stack([*slopes, value, np.ones_like(value)], axis=-1).reshape(len(z_of), -1, 5)
        expected = (photons * value + background).reshape(len(z_of), -1, 1)
        covariance = np.linalg.inv(np.swapaxes(every, 1, 2) @ (every / expected))
        errors = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)).T
        pixel = self.pixel_size or 1.0
        return PsfPrecision(z, errors[0], pixel * errors[1], pixel * errors[2], errors[3])

    @cached_property
    def profile(self) -> Profile:
        """The model that is fitted."""
        column = replace(
            COLUMNS["z"], unit="nm", type="float32", group="shape",
            meaning="Place of the spot along the optical axis by the calibration, 0 in its "
            "reference plane and rising with the planes of the bead stack.",
        )  # fmt: skip
        low, high = self.range
        return Profile(
            "measured_psf", (*YX, ShapeParameter(column, (0.0, 0.0), low, high)), self._formula,
            separable=False, lattice=self.lattice, formula="spline(x - x̄, y - ȳ, z̄)",
            words="measured PSF", meaning="as it was measured on beads.",
        )  # fmt: skip

    def _formula(self, y: Array, x: Array, p: Mapping[str, float]) -> Array:
        return self.lattice.sample(p["z"], y - p["y"], x - p["x"]) / self.lattice.height


def share_mirrored(psf: MeasuredPsf, photons: float, background: float) -> float:
    """Return the share of spots, over the range, that are fitted better at a height far away.

    With D the least χ² between a spot's image without noise and what is fitted to it at another
    height, noise prefers the latter with the probability Φ(-√D / 2). Of heights far away, those
    count where D has a minimum along z: there, fits end.

    Parameters
    ----------
    psf : MeasuredPsf
        The PSF.
    photons, background : float
        Photons of a spot, and of the background in a pixel.
    """
    z, heights = np.linspace(*psf.range, _OTHERS), np.linspace(*psf.range, _OWN)
    at = np.arange(psf.roi_size) - (psf.roi_size - 1) / 2
    place = z[:, None, None], at[:, None], at
    light = np.maximum(psf.lattice.sample(*place), 0)
    # The other spot may have another amplitude, background, y and x.
    free = [light, np.ones_like(light), *(psf.lattice.sample(*place, axis) for axis in "yx")]
    others = np.stack(free, axis=-1).reshape(_OTHERS, -1, len(free))
    images = photons * np.maximum(psf.lattice.sample(heights[:, None, None], at[:, None], at), 0)
    shares = []
    for own, image in zip(heights, images.reshape(_OWN, -1), strict=True):
        weight = 1 / np.sqrt(image + background)
        basis = np.linalg.qr(others * weight[:, None])[0]
        target = image * weight
        left = target - np.einsum("zpk,zk->zp", basis, np.einsum("zpk,p->zk", basis, target))
        apart = (left**2).sum(axis=1)
        middle = apart[1:-1]
        ends = (middle <= apart[:-2]) & (middle <= apart[2:]) & (np.abs(z[1:-1] - own) > _FAR)
        least = middle[ends].min(initial=math.inf)
        shares.append(math.erfc(math.sqrt(least / 8)) / 2)
    return float(np.mean(shares))
