"""Define the flags of doubtful fits: one bit for each reason, and one table of their rules."""

from __future__ import annotations

from enum import IntFlag
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ..models.estimators import ESTIMATORS
from .cpu.layouts import FlagBit

#: The limits of the table below.
FARTHEST = 1.5
NARROWEST, WIDEST = 0.5, 2.0
LEAST_ERRORS = 3.0
SAME_SPOT, SAME_SPOT_PX = 0.75, 1.0
CROWD = 10.0
MOST_CHI = 5.0
#: In units of σ along z.
HELD_PLANES = 2.5

#: Estimators with a test of χ².
_JUDGED = " or ".join(one.name for one in ESTIMATORS.values() if one.chi_is_judged)


class Flag(IntFlag):
    """Possible problems of a fit; :data:`RULES` says when each flag is set.

    The bits up to 13 are those of fits in two dimensions; 16 to 23 are of depth, 24 to 31 are left
    for groups of spots.

    Examples
    --------
    >>> from napari_spotfit import Flag
    >>> Flag(6)
    <Flag.AT_BOUND|MOVED: 6>
    """

    NOT_CONVERGED = FlagBit.NOT_CONVERGED
    AT_BOUND = FlagBit.AT_BOUND
    MOVED = FlagBit.MOVED
    WIDE = FlagBit.WIDE
    NARROW = FlagBit.NARROW
    WEAK = FlagBit.WEAK
    NEGATIVE = FlagBit.NEGATIVE
    DUPLICATE = FlagBit.DUPLICATE
    NEIGHBOUR = FlagBit.NEIGHBOUR
    POOR_FIT = FlagBit.POOR_FIT
    EDGE = FlagBit.EDGE
    BAD_PIXELS = FlagBit.BAD_PIXELS
    SATURATED = FlagBit.SATURATED
    ELONGATED = FlagBit.ELONGATED
    OUTSIDE_STACK = FlagBit.OUTSIDE_STACK
    SIGMA_Z_HELD = FlagBit.SIGMA_Z_HELD
    Z_AT_LIMIT = FlagBit.Z_AT_LIMIT
    BLOB = 1 << 24
    GROUP_NOT_SETTLED = 1 << 25


class Rule(NamedTuple):
    """The rule of a flag: its meaning, when it is set, and what to try."""

    #: Its meaning in a word or two, and in a sentence.
    word: str
    sentence: str
    #: When it is set, and why.
    limit: str
    reason: str
    #: Whether fits with this flag are not good.
    rejects: bool
    #: What it needs to be known.
    needs: str
    #: What to try, in a sentence.
    advice: str
    #: Whether it applies to all spots that are fitted together.
    of_fit: bool = False


#: Every flag, the most informative first.
RULES = {
    Flag.NOT_CONVERGED: Rule(
        "not converged",
        "The fit did not converge to a minimum.",
        "the stop condition is MAX_ITERATIONS, NO_DECREASE or INVALID",
        "the parameters are those of the last iteration, not of a minimum",
        True,
        "nothing",
        "Check that the ROI has a spot, no neighbour, and a size that suits the spot; "
        "otherwise allow more iterations.",
        of_fit=True,
    ),
    Flag.NEGATIVE: Rule(
        "dark",
        "The amplitude or the light is not above 0: a dark spot.",
        "amplitude ≤ 0 or photons ≤ 0",
        "spots are brighter than the background",
        True,
        "nothing",
        "Allow fewer false spots; for dark spots on a bright background, fit the image's negative.",
    ),
    Flag.WEAK: Rule(
        "too weak",
        "The amplitude is below 3 standard errors of the background's noise: there may be no spot.",
        f"|amplitude| ≤ {LEAST_ERRORS:g} standard errors, computed without the spot's own shot "
        "noise, or the data do not determine its error",
        "noise alone is as high at one position in 700, and a fit moves to the best position that "
        "it finds; where there is no spot, there is no shot noise of one",
        True,
        "standard errors (errors=True)",
        "Allow fewer false spots, or click a place where the image has a spot.",
    ),
    Flag.MOVED: Rule(
        "moved",
        "The centre is far from the initial position.",
        f"more than {FARTHEST:g} σ from the detection's maximum, or from the given position; along "
        "z, in σz",
        "a maximum lies within a fraction of σ of its spot; farther away, something else was "
        "fitted: a neighbour, or an edge",
        True,
        "an image",
        "Look for a brighter neighbour in the ROI, and try a smaller ROI size.",
    ),
    Flag.DUPLICATE: Rule(
        "double",
        "Another fit, which started nearer, ended at the same spot.",
        f"within {SAME_SPOT:g} times the PSF's σ, or {SAME_SPOT_PX:g} px if that is more, of a fit "
        "in the same frame that has moved less",
        "two spots at this distance are one maximum: single-spot fits cannot resolve them",
        True,
        "an image",
        "Keep the other fit; a smaller ROI size keeps fits at their own spots.",
    ),
    Flag.OUTSIDE_STACK: Rule(
        "outside the stack",
        "The spot lies more than half a plane outside the stack, along z.",
        "z ended half a plane before the first or behind the last plane, where ROIs end",
        "the stack has only one side of the spot, which does not determine position, amplitude and "
        "width",
        True,
        "a volume",
        "Take stacks with a few more planes on either side.",
    ),
    Flag.AT_BOUND: Rule(
        "at a bound",
        "A parameter ended at one of its bounds, so it is not determined by the data.",
        "a width, the centre, a parameter of your own or a bounded amplitude or background is "
        "exactly at its lower or upper bound (except the background of 0 of maximum likelihood, "
        "and the exponent of 100 of a Moffat profile)",
        "the best parameters lie beyond it",
        True,
        "nothing",
        "Look for a neighbour or an edge in the ROI, and check that ROI size and bounds suit the "
        "spots.",
    ),
    Flag.Z_AT_LIMIT: Rule(
        "beyond the calibration",
        "z is at an end of the calibration's range, or not determined, or the spot is a part of "
        "one farther out of focus.",
        "z is the calibration's lowest or highest, or NaN; or it lies within 5 % of an end of a "
        "measured PSF's range, and a fit in the same ROI ended there; or, behind a lens, another "
        "spot in the ROI lies along one of its axes, with widths within 20 %, light within 30 %; "
        "or the background is higher than the light 1.6 to 2.1 sides of the ROI away, in all "
        "eighths of this ring but one, by 8 % of the amplitude and by 4 standard errors",
        "the calibration is unknown beyond the planes of its beads, so z is not extrapolated; far "
        "out of focus, a spot is a hump of light with rings and lobes in it, which look like dim "
        "spots",
        True,
        "a calibration as the model",
        "Leave it out; for more depth, calibrate with beads over a longer range.",
    ),
    Flag.GROUP_NOT_SETTLED: Rule(
        "group not settled",
        "The spot, or those around it that were fitted with it, have not come to rest.",
        "a joint fit has used up its iterations",
        "the numbers are those of the last iteration, not of a minimum",
        True,
        "joint fits",
        "Allow more iterations, or look whether there are single spots at all.",
    ),
    Flag.BLOB: Rule(
        "blob",
        "Points do not explain the light here: something extended, or out of focus.",
        "the deviance of the spots that were fitted together is more than 1.5 times what noise and "
        "5 % of the spots' own shape explain; or fewer points 1.35 to 2 times as wide explain the "
        "light as well; or 8 points were hidden for each detection; or, in a part of them, much of "
        "the light would rather be that of wider points. Where it is so of some spots' "
        "own pixels alone, as of hot ones, these count, and spots within 4.5 σ of them",
        "of something extended any number of points is as wrong as the next, and points in a crowd "
        "that are not merged show maxima",
        True,
        "joint fits",
        "Leave it out; if most spots are flagged, check the PSF's σ, the gain and the offset.",
    ),
    Flag.WIDE: Rule(
        "too wide",
        "The spot is more than twice as wide as the PSF.",
        f"width > {WIDEST:g} times the PSF's σ",
        "a point is as wide as the PSF; this is background, several spots or out of focus",
        True,
        "the PSF's σ (localize, or settings=…), no fixed width, a built-in model",
        "If most spots are flagged, set PSF σ, or estimate it from the image; otherwise look for "
        "neighbours and uneven background.",
    ),
    Flag.NARROW: Rule(
        "too narrow",
        "The spot is less than half as wide as the PSF.",
        f"width < {NARROWEST:g} times the PSF's σ",
        "no light is narrower than the PSF: a single bright pixel, or noise",
        True,
        "the PSF's σ (localize, or settings=…), no fixed width, a built-in model",
        "If most spots are flagged, set PSF σ, or estimate it from the image; otherwise mark hot "
        "pixels as bad pixels, or allow fewer false spots.",
    ),
    Flag.ELONGATED: Rule(
        "elongated",
        "The spot is longer in one direction than across: a line, a ring or a scratch, or several "
        "spots.",
        "the residual differs by direction, equally on both sides of the centre: in the spot by "
        "3.3 standard errors, with curvatures along and across that differ by a quarter of both; "
        "or up to 9 σ away by 2.4 standard errors, and by a quarter of the residual of a line as "
        "high as the spot, unless the spot itself is round within two standard errors; and the "
        f"same holds for two thirds of the spots within {CROWD:g} σ, if two of them are round",
        "the image of a point has the same curvature in all directions; light of one neighbour is "
        "on one side only; and on a line all spots are elongated, in a crowd few",
        True,
        "an image, the PSF's σ, and a model as long as it is wide",
        "Fit an elliptical model if spots are elongated; exclude lines, or subtract the local "
        "background to find spots on them.",
    ),
    Flag.SATURATED: Rule(
        "saturated",
        "The camera was saturated: amplitude, light and width are extrapolated from other pixels.",
        "the centre's pixel and another of the 3×3 pixels around it are saturated: they have the "
        "largest value of the image's integer type; or the largest value of the frame if 5 of any "
        "3×3 pixels in the ROI have it, and it is at least 255, or at least 31 with at most half "
        "as many pixels one count lower, or the image has other than integer values",
        "light that the camera did not count is missing, and noise makes no plateau; with a single "
        "saturated pixel, the others determine the light within a standard error",
        True,
        "an image",
        "Expose less: saturated pixels are excluded from the fit, and the light is extrapolated.",
    ),
    Flag.POOR_FIT: Rule(
        "poor fit",
        "The residual exceeds the noise.",
        f"χ² exceeds its expectation by more than {MOST_CHI:g} standard deviations, with 5 % of "
        "error in the spot's shape, and 10 % more noise if that was estimated",
        "the usual reason is light of a neighbour in the ROI, also of many good fits: in dense "
        "images, a quarter to two thirds of all spots would be rejected",
        False,
        "the camera's gain, or an unfiltered image that shows shot noise; "
        f"estimator {_JUDGED}, a built-in model, and 3 photo-electrons of background or read-out "
        "variance per pixel",
        "Look for a neighbour or another shape in the residual, and check gain and offset.",
    ),
    Flag.NEIGHBOUR: Rule(
        "neighbour",
        "Another spot lies in the same ROI.",
        "another detection, or given position, is within half the ROI's side along each axis",
        'the pixels nearer to it are excluded, or with neighbours="ignore" its light shifts the '
        "centre and raises the background, but most such fits are right",
        False,
        "an image",
        "Exclude neighbours, or use a smaller ROI.",
    ),
    Flag.EDGE: Rule(
        "at the edge",
        "The spot lies at the edge of the image.",
        "the ROI was shifted into the image, or the centre is within σ of the outermost pixels' "
        "outer edge",
        "a part of the light may be missing, and the ROI is not centred on the spot",
        False,
        "an image",
        "Leave it out if you need its light.",
    ),
    Flag.SIGMA_Z_HELD: Rule(
        "σz fixed",
        "The stack has few planes on one side of the spot, so its width along z was fixed at that "
        "of the PSF.",
        f"the fit started less than {HELD_PLANES:g} times the PSF's σz from the first or the last "
        "plane",
        "one side of a spot hardly distinguishes width, amplitude and position along z; with the "
        "PSF's width, z is as precise as elsewhere",
        False,
        "a volume, and the PSF's σz",
        "Leave it out if you need the width along z, or take stacks with more planes.",
    ),
    Flag.BAD_PIXELS: Rule(
        "bad pixels",
        "Pixels in the middle of the spot are bad, hot, dead or padding, and were excluded.",
        "a bad, hot or dead pixel, or padding, is among the 3×3 pixels around the centre",
        "they have most of the spot's light, so that errors are larger and depend on the model",
        False,
        "an image, and bad_pixels or the PSF's σ",
        "Leave it out if you need its precision.",
    ),
}

#: Flags that apply to all spots that are fitted together.
OF_FIT = Flag(sum(int(flag) for flag, rule in RULES.items() if rule.of_fit))
#: Flags that make a fit not good.
NOT_GOOD = Flag(sum(int(flag) for flag, rule in RULES.items() if rule.rejects))


def good(flags: Any) -> Any:
    """Return the mask of good fits."""
    return (flags & int(NOT_GOOD)) == 0


def main_reasons(flags: NDArray[Any]) -> dict[Flag, int]:
    """Count the fits that are not good, each under its most informative reason.

    Examples
    --------
    >>> import numpy as np
    >>> main_reasons(np.array([0, 4, 5, 256]))
    {<Flag.NOT_CONVERGED: 1>: 1, <Flag.MOVED: 4>: 1}
    """
    left = flags[~good(flags)]
    reasons: dict[Flag, int] = {}
    for flag, rule in RULES.items():
        if rule.rejects and len(left):
            hit = (left & int(flag)) != 0
            if hit.any():
                reasons[flag] = int(hit.sum())
            left = left[~hit]
    return reasons


def reasons_in_words(flags: NDArray[Any]) -> str:
    """Return the number of doubtful fits as text, by their most informative reasons.

    Examples
    --------
    >>> import numpy as np
    >>> reasons_in_words(np.array([0, 4, 5, 8, 256]))
    '3 doubtful: 1 not converged, 1 moved, 1 too wide'
    """
    reasons = main_reasons(flags)
    words = ", ".join(f"{thousands(count)} {RULES[flag].word}" for flag, count in reasons.items())
    return f"{thousands(sum(reasons.values()))} doubtful: {words}" if reasons else "none doubtful"


def thousands(count: int) -> str:
    """Return an integer with narrow no-break spaces between thousands."""
    return f"{count:,}".replace(",", "\u202f")


def times(ratio: float) -> str:
    """Return a ratio to two digits, without an exponent.

    Examples
    --------
    >>> times(223.7), times(1.26), times(0.0123)
    ('220', '1.3', '0.012')
    """
    return (
        f"{float(f'{ratio:.2g}'):,g}".replace(",", "\u202f") if abs(ratio) < 1e6 else f"{ratio:.1e}"
    )


def flags_of(value: int) -> list[Flag]:
    """Return the flags of one fit, the most informative first."""
    return [flag for flag in RULES if value & flag]
