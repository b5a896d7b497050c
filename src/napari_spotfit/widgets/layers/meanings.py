"""What the columns of fitted spots mean, in sentences for those who look at them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...models.profiles import MODELS, ShapeParameter

AXIS = re.compile(r"axis_\d+")
#: The number of the settings that a spot was fitted again with; 0 stands for the layer's.
REFIT = "refit"
_STDERR = "_stderr"
#: The shape parameters of all models.
SHAPE = {shape.name: shape for model in MODELS.values() for shape in model.shape}
_MEANINGS = {
    "y": "Centre of the spot along the image's rows axis; 0 is the centre of the first pixel.",
    "x": "Centre of the spot along the image's columns axis; 0 is the centre of the first pixel.",
    "frame": "Frame of the image; the first is 0.",
    "amplitude": "Height of the spot above the background, in the camera's counts.",
    "background": "Level below the spot, in counts per pixel, without the camera offset.",
    "photons": "Light of the whole spot: the integral of the fitted profile, divided by the "
    "camera gain where it is known. Without a gain, it is in counts. That of a "
    "model of your own is its sum over the pixels of the ROI: light beside it is left out.",
    "chi_square": "χ², what the fit makes as small as it can: the sum of the squared residuals "
    "of all pixels of the ROI, or for maximum likelihood the Poisson deviance.",
    "reduced_chi_square": "χ² divided by the degrees of freedom, which are the pixels of the ROI "
    "less the fitted parameters: for least squares the residual's variance, for maximum "
    "likelihood about 1 if the model is right.",
    "iterations": "How many iterations the fit took.",
    "stop_condition": "Why the fit stopped.",
    "flags": "What may be wrong with the fit, a bit for each reason: Inspect spot says it.",
    "good": "1 for fits that nothing speaks against, 0 for doubtful ones.",
    "roi_y": "First row of the pixels that were fitted.",
    "roi_x": "First column of the pixels that were fitted.",
    "label": "Label of the pixel that the centre lies in, of the Labels layer chosen under Cells; "
    "0 is none.",
    "refit": "0 for a spot with the settings of the layer; else the number, from 1 on, of those "
    "with which it was fitted again in Inspect spot: the layer's metadata list them as refits.",
    "score": "How far the spot stands out of the noise, as a normal deviate: the number of false "
    "spots says how far it must.",
}


def meaning(name: str, shape: Iterable[ShapeParameter] = ()) -> str:
    """Return what a column holds.

    Parameters
    ----------
    name : str
        Name of the column.
    shape : iterable of ShapeParameter
        Those of the model that was fitted, where it is known; else a parameter has its
        meaning in any model.
    """
    if name in _MEANINGS:
        return _MEANINGS[name]
    known = SHAPE | {parameter.name: parameter for parameter in shape}
    if name in known:
        text = known[name].meaning
        return f"{text[0].upper()}{text[1:]}."
    if AXIS.fullmatch(name):
        return f"Index along the image's axis {name.removeprefix('axis_')}; the first is 0."
    if name.endswith(_STDERR):
        return f"Standard error of {name.removesuffix(_STDERR)}."
    return "A feature that was added to the layer."
