"""Model the noise of an image, and name probable processing of the image."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from ..models.number_checks import one_of

#: Noise at the scale of spots over that of the finest detail above which it is no camera's own:
#: the image was filtered, interpolated or compressed.
FILTERED = 2.0
#: A slope over its standard error: from here on the image shows one, and from there on it is the
#: camera's gain.
SIGNIFICANT, SURE = 4.0, 8.0
#: Noise of some places over that of others at one brightness, or over that of the camera, above
#: which no single camera took the image.
UNLIKE = 1.5
#: Variance in the dark over that of a camera whose read-out noise is unknown, from which on it has
#: some: of crowds of spots without any it is up to 1.05.
_NOISIER = 1.2


#: What of the planes of stacks is corrected.
LIGHT, BACKGROUND = "light", "background"


class Process(StrEnum):
    """Probable processing of an image after a camera took it, judged by its noise."""

    NONE = ""
    CUT = "cut"
    FILTERED = "filtered"
    DENOISED = "denoised"
    DECONVOLVED = "deconvolved"
    MOSAIC = "mosaic"
    ENLARGED = "enlarged"
    THRESHOLDED = "thresholded"
    COMPRESSED = "compressed"
    LEVELLED = "levelled"
    TRANSFORMED = "transformed"
    PROJECTED = "projected"


_RAW = (
    "Give the image as the camera took it; or look at what is found, and set threshold, in counts "
    "of the filtered image"
)
_OR_CROWD = (
    "Give the image as the camera took it or, if this is it, as a crowd of sharp spots looks like "
    "that, too, the camera's gain, offset and variance, and sigma; or look at what is found, and "
    "set threshold, in counts of the filtered image"
)
#: What the image is like, and what to give instead.
_PROCESSES = {
    Process.CUT: ("was filtered, and cut off at its lowest value", _RAW),
    Process.LEVELLED: (
        "is what a top hat, a rolling ball or another subtracted background has left: each place "
        "has pixels of the lowest value",
        "Give the image as the camera took it, with its background, which fits take into account",
    ),
    Process.TRANSFORMED: (
        "has intensities that a logarithm, a gamma below 1 or an equalised histogram has changed: "
        "there is less noise where it is brighter",
        "Give the image as the camera took it; contrast is a matter of display",
    ),
    Process.PROJECTED: (
        "is the brightest of several planes or frames, or was transformed: the noise is more "
        "skewed than that of photons",
        'Give the planes or frames themselves, those of a stack with model="gaussian_3d"',
    ),
    Process.FILTERED: ("was filtered, interpolated or compressed", _OR_CROWD),
    Process.DENOISED: (
        "was denoised: noise is left in some places, and gone from others",
        _OR_CROWD,
    ),
    Process.DECONVOLVED: ("was deconvolved, or lacks its highest frequencies", _RAW),
    Process.MOSAIC: (
        "is a mosaic of colours or polarisers: neighbouring pixels differ in sensitivity",
        "Fit each of them by itself, as image[..., ::2, ::2], or add up each 2×2 pixels",
    ),
    Process.ENLARGED: (
        "was enlarged without interpolation, or has copied rows or columns: neighbouring pixels "
        "are copies of one",
        "Give the image as it was, as image[..., ::2, ::2] for twice the size, or "
        "image[..., ::2, :] where rows are doubled",
    ),
    Process.THRESHOLDED: (
        "keeps only what is above a threshold: nearly all other pixels have one value, so that no "
        "noise is left to measure",
        _RAW,
    ),
    Process.COMPRESSED: (
        "was compressed as JPEG is: it has edges every 8 pixels, and dim spots and noise are gone",
        "Save images without loss, as TIFF or PNG",
    ),
}


#: Names of processes; and the least value of each number.
_NAMES = [one.value for one in Process]
_LOWEST = (
    ("slope", 0.0), ("intercept", -math.inf), ("least", 0.0), ("correlation", 0.0), ("blocks", 0),
    ("blur", 0.0), ("unfiltered", 0.0), ("uneven", 1.0),
)  # fmt: skip


def excess_of(emccd: bool) -> float:
    """Return how many times the variance of shot noise is that of photo-electrons.

    A camera that multiplies them before they are read out doubles it.
    """
    return 2.0 if emccd else 1.0


@dataclass(frozen=True)
class NoiseModel:
    """The variance of a pixel's noise: a line over its mean, as photons have it.

    It is ``correlation² · max(slope · counts + intercept, least)`` in counts², where
    ``correlation`` says how much stronger noise as coarse as spots is than that of independent
    pixels.

    Threads: it does not change, so that any number may use one.

    Examples
    --------
    >>> from napari_spotfit import NoiseModel, localize, simulate_movie
    >>> noise = NoiseModel(slope=0.5, intercept=9.0, least=4.0)  # a gain of 0.5, and read-out noise
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> localize(movie, noise=noise).settings.noise == noise
    True
    """

    #: Counts² per count: the gain in counts per electron, where pixels are independent. Of a flat
    #: image, it is that of the residuals of bright spots, or else of the noise's skewness.
    slope: float
    #: Variance at 0 counts, and the least there is, in counts².
    intercept: float
    least: float
    correlation: float = 1.0
    #: The standard error of the slope, None where the image has too little light and shade for a
    #: slope; and in how many blocks of 16×16 pixels the noise was measured.
    slope_error: float | None = None
    blocks: int = 0
    #: Of a filtered image: the σ in pixels of the Gaussian filter that white noise seems to have
    #: gone through, and how many times stronger than the line's it was before. Errors go by it.
    blur: float = 0.0
    unfiltered: float = 1.0
    #: How many times the line's variance some frames, or parts of all, have that of others.
    uneven: float = 1.0
    #: Probable processing, as the noise of the finest detail is not that at the scale of spots.
    process: str = Process.NONE.value
    #: Of a flat image whose camera's gain was given: the counts where its noise was measured, and
    #: the counts² per count that its spots suggest. Fits of several spots together go by the
    #: camera's noise or by these, whichever is more.
    level: float | None = None
    slope_of_spots: float | None = None
    #: What of the planes of stacks differs, and is corrected before fits: "light", of the spots and
    #: of what is around them, or the "background" alone; empty where planes are as they are.
    planes: str = ""
    #: Counts without light, from which the light of planes that differ counts: those that spots in
    #: them show. None where they are those at which noise ends, or known.
    dark: float | None = None

    def __post_init__(self) -> None:
        one_of("what differs in planes", self.planes, ["", LIGHT, BACKGROUND])
        one_of("the noise's process", self.process, _NAMES)
        object.__setattr__(self, "process", Process(self.process).value)
        for name, low in _LOWEST:
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and low <= value < math.inf):
                raise ValueError(f"the noise's {name} must be a number from {low:g}; got {value!r}")

    @classmethod
    def of_camera(
        cls, gain: float, offset: float = 0.0, variance: float = 0.0, *, emccd: bool = False
    ) -> NoiseModel:
        """Return the noise of a camera.

        Parameters
        ----------
        gain, offset, variance : float
            Counts per electron, counts without light, and the variance of these.
        emccd : bool, default False
            Whether electrons are multiplied, which doubles the variance of their number.

        Examples
        --------
        >>> float(NoiseModel.of_camera(2.0, 100.0, 9.0).variance(150))
        109.0
        """
        slope = gain * excess_of(emccd)
        return cls(slope, variance - slope * offset, variance)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NoiseModel:
        """Return the model of a dictionary from :meth:`to_dict`."""
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the model as a dictionary of plain values."""
        return asdict(self)

    @property
    def is_known(self) -> bool:
        """Whether there is any noise: images that are constant, or all bad, show none."""
        return self.slope > 0 or self.intercept > 0

    @property
    def is_filtered(self) -> bool:
        """Whether the image was filtered after the camera took it, or otherwise processed."""
        return self.correlation > FILTERED or bool(self.process)

    @property
    def process_in_words(self) -> tuple[str, str]:
        """Probable processing, and what to give instead; empty texts for a raw image."""
        return _PROCESSES.get(Process(self.process), ("", ""))

    @property
    def is_flat(self) -> bool:
        """Whether the noise is known only where the image is as bright as most of it."""
        return self.gain is None and not (self.is_filtered or self.is_uneven)

    def contradicting(self, camera: NoiseModel) -> NoiseModel:
        """Return the noise of a camera, at least as much as a flat image of it has.

        Examples
        --------
        >>> dim = NoiseModel(0.5, -40.0, 5.0, level=110.0, slope_of_spots=1.0)
        >>> dim.contradicting(NoiseModel.of_camera(1.0, 100.0))  # there is read-out noise, too
        NoiseModel(slope=1.0, intercept=-95.0, ...)
        """
        if self.level is None:
            return camera
        found, known = (float(one.variance(self.level)) for one in (self, camera))
        slope = self.slope_of_spots or 0.0
        is_steeper = slope > UNLIKE * camera.slope
        if not is_steeper and found < _NOISIER * known:
            return camera
        slope = slope if is_steeper else camera.slope
        # In the dark no less than the camera: the image may be darker than its level in places.
        dark = (camera.least - camera.intercept) / camera.slope
        intercept = max(max(found, known) - slope * self.level, camera.least - slope * dark)
        return replace(camera, slope=slope, intercept=intercept)

    @property
    def is_uneven(self) -> bool:
        """Whether no one camera with one gain took all of the image as it is."""
        return self.uneven > UNLIKE and not self.is_filtered

    @property
    def gain(self) -> float | None:
        """Counts per electron as the image suggests; None if it is flat, uneven or filtered."""
        if self.slope_error is None or self.is_filtered or self.is_uneven:
            return None
        return self.slope if self.slope > SURE * self.slope_error else None

    @property
    def offset(self) -> float | None:
        """Counts without light, if the camera's read-out noise is small; None without a gain."""
        return None if self.gain is None else -self.intercept / self.slope

    def variance(self, counts: Any) -> Any:
        """Return the variance of pixels in counts², by their mean counts."""
        import numpy as np

        line = np.maximum(self.slope * np.asarray(counts, float) + self.intercept, self.least)
        return self.correlation**2 * line

    def __str__(self) -> str:
        if self.planes:
            differs = "light" if self.planes == LIGHT else "background"
            return f"planes of the stack differ in {differs}, for which fits are corrected; " + str(
                replace(self, planes="")
            )
        if not self.blocks:
            return (
                "no noise of the image was measured: its camera's is given, or its pixels are "
                "constant or bad"
            )
        if self.process:
            done, instead = self.process_in_words
            return f"the image probably {done}; photons and standard errors mean little. {instead}"
        if self.is_filtered:
            return (
                f"the image was filtered or interpolated: its noise is {self.correlation:.1f} "
                "times that of its finest detail; photons and standard errors mean little"
            )
        if self.is_uneven:
            return (
                f"parts of the image have {self.uneven:.2g} times the noise of others that are as "
                "bright, as channels have, and frames that were scaled: no one noise model is "
                "right for all"
            )
        if self.gain is None and self.slope_error is not None:
            return (
                f"the image determines the camera's gain no better than {self.slope:.2g} "
                f"± {self.slope_error:.1g} counts per electron, too little to go by"
            )
        if self.gain is None:
            return (
                "the image is too flat to estimate the camera's gain; its noise is known where it "
                f"is as bright as now (variance {self.slope:.3g} · counts {self.intercept:+.4g})"
            )
        return (
            f"the image suggests {self.gain:.3g} ± {self.slope_error:.1g} counts per electron and "
            f"{self.offset:.4g} counts without light, if read-out noise is small"
        )
