"""Requests for sums over large ROIs, and a profile with every function."""

from __future__ import annotations

import ctypes

import numpy as np

from napari_spotfit.engine.cpu.fit_kind import LargeFit, planes_of
from napari_spotfit.engine.cpu.layouts import HostRois, LargeTask, PixelMap
from napari_spotfit.engine.kernel_arguments import PIXEL_TYPES, address
from napari_spotfit.models.profiles import Profile

EVERY_FUNCTION = Profile.from_expression(
    "exp(-((x-x0)**2 + abs(y-y0)**q)/(2*s**2)) + 0.3*sin((x-x0)/s)*cos((y-y0)/s)"
    "*erf(s - q)*tanh(x/9)*tan(q/2)/sqrt(1 + (x/s)**2) + log(1 + (y-y0)**2)/99/s**0.5",
    start={"s": "sigma", "q": 1.3},
)
#: The point that sums are asked for, of pixels as (counts - LEVEL) * SCALE; the unit of weights.
AMPLITUDE, BACKGROUND, LEVEL, SCALE, WEIGHT = 0.7, 0.2, 38.0, 0.05, 0.8
#: The same for maximum likelihood, whose pixels are photo-electrons.
ELECTRONS = 15.0, 35.0
#: Variance of a pixel of the profile f: PEAK * f + FLAT, and the unit of a map of more of it.
PEAK, FLAT, MAP_UNIT = 0.28, 0.22, 0.05


def prepared(settings, task, shape, roi_shape, *, planes=False, pieces=2):
    """Return a fit that requests sums at a shape, in the order of the kernels."""
    fit = LargeFit(settings, roi_shape, planes=planes)
    fit.begin(None, 0.0)
    request, count = fit.request, len(shape) + 2
    electrons = task in (LargeTask.DEVIANCE, LargeTask.FISHER)
    request.task, request.pieces = task, pieces
    request.numbers = pieces * (count * (count + 1) // 2 + count + 1)
    request.rows, request.columns = roi_shape
    request.first_row, request.end_row = 0, roi_shape[0]
    request.planes = planes_of(planes, settings.estimator == "mle")
    request.origin_x, request.origin_y = round(shape[0]), round(shape[1])
    for i, value in enumerate(shape):
        request.shape[i] = value - (request.origin_x, request.origin_y, 0)[min(i, 2)]
    request.amplitude, request.background = ELECTRONS if electrons else (AMPLITUDE, BACKGROUND)
    request.level, request.scale = (0.0, 1.0) if electrons else (LEVEL, SCALE)
    request.weight = WEIGHT
    request.peak, request.flat, request.scale_squared = PEAK, FLAT, MAP_UNIT
    return fit


def on_cpu(fit, pixels, plane=None, variances=None):
    """Return the numbers that a fit requests: cells, or sums over all pieces."""
    program = fit.kind.encoded.program if fit.kind.encoded else None
    source = HostRois(
        constants=ctypes.addressof(program) if program else 0,
        frames=address(pixels), depth=1, height=pixels.shape[0], width=pixels.shape[1],
        planes=PixelMap(address(plane), 1), variance=PixelMap(address(variances), 1),
        pixel_type=PIXEL_TYPES[pixels.dtype.str[1:]],
    )  # fmt: skip
    numbers = fit.numbers(source, 0, _one_by_one, 1)
    if fit.request.task == LargeTask.CELLS:
        return numbers
    return numbers.reshape(fit.request.pieces, -1).sum(0)


def _one_by_one(work, pieces):
    for piece in range(pieces):
        work(0, piece)


def to_sums(numbers, shape):
    """Return matrix, vector and total."""
    n = shape + 2
    upper = np.triu_indices(n)
    matrix = np.empty((n, n))
    matrix[upper] = numbers[: len(upper[0])]
    matrix.T[upper] = matrix[upper]
    return matrix, numbers[-n - 1 : -1], numbers[-1]


def assert_alike(ours, theirs, shape, tolerance=1e-5):
    """Compare up to rounding, in units of steps along the shape's parameters."""
    (ours, our_vector, our_total), (theirs, vector, total) = (
        to_sums(numbers, shape) for numbers in (ours, theirs)
    )
    our_size, size = (np.sqrt(np.diag(matrix)) for matrix in (ours, theirs))
    np.testing.assert_allclose(our_size[shape:], size[shape:], rtol=tolerance)
    np.testing.assert_allclose(
        ours / np.outer(our_size, our_size), theirs / np.outer(size, size), atol=tolerance
    )
    unit = np.sqrt(abs(total)) or 1
    np.testing.assert_allclose(our_vector / our_size / unit, vector / size / unit, atol=tolerance)
    np.testing.assert_allclose(our_total, total, rtol=tolerance)
