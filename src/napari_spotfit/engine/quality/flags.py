"""Define the flags of doubtful fits: one bit for each reason, and one table of their rules."""

from __future__ import annotations

from enum import IntFlag
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ...models.estimators import ESTIMATORS
from ..cpu.layouts import FlagBit

#: The limits of the table below.
FARTHEST = 1.5
NARROWEST, WIDEST = 0.5, 2.0
LEAST_ERRORS = 3.0
SAME_SPOT, SAME_SPOT_PX = 0.75, 1.0
CROWD = 10.0
MOST_CHI = 5.0
#: In units of σ along z.
HELD_PLANES = 2.5

#: The estimators whose χ² is judged.
_JUDGED = " or ".join(one.name for one in ESTIMATORS.values() if one.chi_is_judged)


class Flag(IntFlag):
    """What may be wrong with a fit; :data:`RULES` says when each is set.

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


class Rule(NamedTuple):
    """When a flag is set, what it means, and what to try."""

    #: What it says of a fit, in a word or two, and in a sentence.
    word: str
    sentence: str
    #: When it is set, and why there.
    limit: str
    reason: str
    #: Whether a fit with it is not good.
    spoils: bool
    #: What must be known for it to be set.
    needs: str
    #: What to try, in a sentence.
    advice: str
    #: Whether it is of the whole fit, where several spots are fitted together.
    of_fit: bool = False


#: Every flag, the most informative first.
RULES = {
    Flag.NOT_CONVERGED: Rule(
        "not converged",
        "The fit has not ended in a minimum.",
        "the stop condition is MAX_ITERATIONS, NO_DECREASE or INVALID",
        "the numbers are those of the way, not of its end",
        True,
        "nothing",
        "See whether there is a spot at all, whether a neighbour is in the ROI, and whether "
        "the ROI's size suits the spot; else allow more iterations.",
        of_fit=True,
    ),
    Flag.NEGATIVE: Rule(
        "dark",
        "The amplitude, or the light, is not above 0: a dark place, no spot.",
        "amplitude ≤ 0 or photons ≤ 0",
        "spots are brighter than what is around them",
        True,
        "nothing",
        "Allow fewer false spots; for dark spots on a bright background, fit the image's negative.",
    ),
    Flag.WEAK: Rule(
        "too weak",
        "The amplitude is not above 3 standard errors of one that noise makes: there may be no "
        "spot here.",
        f"|amplitude| ≤ {LEAST_ERRORS:g} of the standard errors that it has without the spot's own "
        "shot noise, or the data do not tell its error",
        "noise alone comes as high at one place in 700, and a fit takes the best place it finds; "
        "where there is no spot, it has no shot noise",
        True,
        "standard errors (errors=True)",
        "Allow fewer false spots, or click a place where the image has a spot.",
    ),
    Flag.MOVED: Rule(
        "moved",
        "The centre has left the place where the fit began.",
        f"more than {FARTHEST:g} σ from the detection's maximum, or from the given place; along z, "
        "σz counts as σ does",
        "a maximum lies within a fraction of σ of its spot; farther away, something else was "
        "fitted: a neighbour, or an edge",
        True,
        "an image",
        "Look for a brighter neighbour in the ROI, and try a smaller ROI size.",
    ),
    Flag.DUPLICATE: Rule(
        "double",
        "Another fit, which began nearer, has ended at the same spot.",
        f"within {SAME_SPOT:g} times the PSF's σ, or {SAME_SPOT_PX:g} px if that is more, of a fit "
        "in the same frame that has moved less",
        "two spots so near are one maximum: no fit of a single spot could tell them apart",
        True,
        "an image",
        "Keep the other fit; a smaller ROI size keeps fits at their own spots.",
    ),
    Flag.OUTSIDE_STACK: Rule(
        "outside the stack",
        "The spot lies more than half a plane before the first plane of the stack, or behind the "
        "last one.",
        "z has ended half a plane from the first or the last plane, where ROIs end",
        "the stack has one side of the spot's light only, from which place, height and width do "
        "not follow",
        True,
        "a volume",
        "Take stacks with a few more planes on either side.",
    ),
    Flag.AT_BOUND: Rule(
        "at a bound",
        "A parameter has ended at one of its bounds, so it does not follow the data.",
        "a width, the centre, a parameter of your own or a bounded amplitude or background is "
        "exactly at its lower or upper bound (the background of 0 that maximum likelihood keeps, "
        "and the exponent of 100 of a Moffat profile, are no such bounds)",
        "the best parameters lie beyond it",
        True,
        "nothing",
        "Look for a neighbour or an edge in the ROI, and whether ROI size and bounds suit "
        "the spots.",
    ),
    Flag.Z_AT_LIMIT: Rule(
        "beyond the calibration",
        "The height is at an end of the range of the calibration, or not determined.",
        "z is the calibration's lowest or highest, or no number",
        "the calibration says nothing beyond the planes of its beads, so z is not extrapolated",
        True,
        "a calibration as the model",
        "Leave it out; for more depth, calibrate with beads over a longer range.",
    ),
    Flag.WIDE: Rule(
        "too wide",
        "The spot is more than twice as wide as the PSF.",
        f"width > {WIDEST:g} times the PSF's σ",
        "a point is as wide as the PSF; this is background, several spots or out of focus",
        True,
        "the PSF's σ (localize, or settings=…), no width held, none of one's own models",
        "If most spots are flagged, set PSF σ, or leave it to the image; else look for neighbours "
        "and uneven background.",
    ),
    Flag.NARROW: Rule(
        "too narrow",
        "The spot is less than half as wide as the PSF.",
        f"width < {NARROWEST:g} times the PSF's σ",
        "no light is narrower than the PSF: a single bright pixel, or noise",
        True,
        "the PSF's σ (localize, or settings=…), no width held, none of one's own models",
        "If most spots are flagged, set PSF σ, or leave it to the image; else name hot pixels in "
        "bad pixels, or allow fewer false spots.",
    ),
    Flag.ELONGATED: Rule(
        "elongated",
        "The spot is longer in one direction than across: a line, a ring or a scratch, or several "
        "spots.",
        "what the fit leaves differs by direction, the same on both sides of the centre: in the "
        "spot by 3.3 standard errors, and its curvature along one direction from that across by a "
        "quarter of both; or up to 9 σ from it by 2.4 standard errors, and by a quarter of what "
        "a line as high as the spot leaves, unless the spot itself is round to two standard "
        f"errors; and so for two thirds of the spots within {CROWD:g} σ, if two of them are round",
        "the image of a point is curved alike in all directions; light of one neighbour is on one "
        "side only, and on a line all spots are long, in a crowd few",
        True,
        "an image, the PSF's σ, and a model as long as it is wide",
        "Fit an elliptical model where spots are elongated; leave lines out, or look for spots on "
        "them in an image less its local background.",
    ),
    Flag.SATURATED: Rule(
        "saturated",
        "The camera was saturated here: height, light and width are guesses from what is around.",
        "the centre's pixel and another of the 3×3 pixels there are saturated: they have the "
        "largest value of the image's integer type; or the highest of the frame, where at least 5 "
        "of some 3×3 pixels of the ROI have it: at least 255, or at least 31 with half as many "
        "pixels one count lower at most, or in an image of other than whole numbers",
        "light that the camera did not count is missing, and noise makes no plateau; of a spot "
        "with a single such pixel, the others tell the light to less than a standard error",
        True,
        "an image",
        "Expose less: what the camera did not count is left out of the fit, and the light is a "
        "guess.",
    ),
    Flag.POOR_FIT: Rule(
        "poor fit",
        "The pixels differ from the model by more than noise does.",
        f"χ² is more than {MOST_CHI:g} of its standard deviations above what the noise and 5 % of "
        "the spot's own shape explain; where the noise was measured, above 10 % more of it",
        "most often light of a neighbour is in the ROI, which many good fits have: in dense images "
        "it would take one spot of four to two of three away",
        False,
        "the camera's gain, or an image that was not filtered and shows that light has noise; "
        f"estimator {_JUDGED}, one of the built-in models, and 3 photo-electrons of background or "
        "read-out variance in a pixel",
        "Look for a neighbour or another shape in the residual, and check gain and offset.",
        of_fit=True,
    ),
    Flag.NEIGHBOUR: Rule(
        "neighbour",
        "Another spot lies in the same ROI.",
        "another detection, or given place, is within half the ROI's side along each axis",
        'the pixels nearer to it are excluded, or with neighbours="ignore" its light draws the '
        "centre and raises the background, but most such fits are right",
        False,
        "an image",
        "Exclude neighbours; a smaller ROI size takes in less of them.",
    ),
    Flag.EDGE: Rule(
        "at the edge",
        "The spot lies at the edge of the image.",
        "the ROI was shifted into the image, or the centre is within σ of the outermost pixels' "
        "outer edge",
        "a part of the light may be missing, and the ROI is not around the spot",
        False,
        "an image",
        "Leave it out where the light counts.",
    ),
    Flag.SIGMA_Z_HELD: Rule(
        "σz held",
        "The stack has few planes on one side of the spot: its width along z is that of the PSF, "
        "and was not fitted.",
        f"the fit began less than {HELD_PLANES:g} times the PSF's σz from the first or the last "
        "plane",
        "with one side of a spot alone, width, height and place along z are hard to tell apart; "
        "with the PSF's width, z is as precise as elsewhere",
        False,
        "a volume, and the PSF's σz",
        "Leave it out where the width along z counts, or take stacks with more planes.",
    ),
    Flag.BAD_PIXELS: Rule(
        "bad pixels",
        "Some of the pixels in the middle of the spot are bad, hot, dead or no data, and were left "
        "out.",
        "a bad or a lone pixel, or padding, is among the 3×3 around the centre",
        "they have most of the spot's light, so that the errors are larger and rest on the model",
        False,
        "an image, and bad_pixels or the PSF's σ",
        "Leave it out where precision counts.",
    ),
}

#: Flags of all spots that are fitted together, if one of them has it.
OF_FIT = Flag(sum(int(flag) for flag, rule in RULES.items() if rule.of_fit))
#: Flags that make a fit not good.
NOT_GOOD = Flag(sum(int(flag) for flag, rule in RULES.items() if rule.spoils))


def good(flags: Any) -> Any:
    """Return which fits are good: a mask of the same kind as the flags."""
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
        if rule.spoils and len(left):
            hit = (left & int(flag)) != 0
            if hit.any():
                reasons[flag] = int(hit.sum())
            left = left[~hit]
    return reasons


def reasons_in_words(flags: NDArray[Any]) -> str:
    """State how many fits are not good, and why, each by its most informative reason.

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
    """Return a whole number with narrow no-break spaces between its thousands."""
    return f"{count:,}".replace(",", "\u202f")


def flags_of(value: int) -> list[Flag]:
    """Return the flags of one fit, the most informative first."""
    return [flag for flag in RULES if value & flag]
