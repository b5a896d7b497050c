"""Images on the CPU that sums over large ROIs are taken of, and a profile with every function."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from napari_spotfit.engine.cpu.kinds import kind_of
from napari_spotfit.engine.cpu.large import CpuImage, Source, source
from napari_spotfit.images.pixel_calibration import Planes
from napari_spotfit.models.profiles import Profile

EVERY_FUNCTION = Profile.from_expression(
    "exp(-((x-x0)**2 + abs(y-y0)**q)/(2*s**2)) + 0.3*sin((x-x0)/s)*cos((y-y0)/s)"
    "*erf(s - q)*tanh(x/9)*tan(q/2)/sqrt(1 + (x/s)**2) + log(1 + (y-y0)**2)/99/s**0.5",
    start={"s": "sigma", "q": 1.3},
)


def cpu_image(settings, frames, plane=None):
    """Return the first of some frames; a turned profile keeps its angle."""
    known = Source(np.empty(0, np.float32), 0, 0) if plane is None else source(plane, 0, 0, 0)
    kind = kind_of(settings, None if plane is None else Planes(plane))
    pixels = source(frames, 0, 0, 0)
    return CpuImage(frames.shape[1:], pixels, known, replace(kind, turns=0), settings)
