"""Every kernel compiles for every generation of GPUs, without a word, and fits their registers.

The compiler needs no GPU. Which pixel types and which kind of memory access a ROI's size
is compiled for goes round, so that each occurs at several sizes for each generation.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import nvrtc
import pytest

from napari_spotfit import Settings
from napari_spotfit.engine import threads
from napari_spotfit.engine.cuda import detect, layout, pixelwise
from napari_spotfit.engine.cuda.compile import options, source
from napari_spotfit.models.profiles import Profile
from napari_spotfit.settings.validation import ROI_MAX, ROI_MIN

#: Turing, Ampere, Ada, Hopper and Blackwell.
ARCHITECTURES = (75, 86, 89, 90, 120)

#: Up to this size a fit's pixels stay in registers.
ALL_IN_REGISTERS = 16

KINDS = list(product(layout.PIXEL_TYPES, (False, True)))
SQUARE = [(size, size) for size in range(ROI_MIN, ROI_MAX + 1)]
OTHERS = [
    (4, 32), (32, 4), (31, 6), (5, 8), (11, 7), (16, 13), (17, 16), (21, 30), (13, 14), (24, 25),
]  # fmt: skip
#: What most people fit.
COMMON = list(product([(7, 7), (9, 9)], ("u2", "f4"), (False, True)))

#: Models that are fitted by either kernel, and what makes fits visit every pixel.
ROUND = Settings()
PRODUCTS = [
    {"model": model, "pixel": pixel, **held}
    for model, pixel in [
        ("gaussian", "integrated"), ("gaussian_elliptical", "sampled"),
        ("gaussian_elliptical", "integrated"), ("lorentzian", "sampled"),
    ]
    for held in ({}, {"fixed": {"x": None}})
]  # fmt: skip
OWN = Profile.from_expression(
    "exp(-((x - x0)**2 + (y - y0)**2)**p / (2 * w**(2 * p)))", start={"w": "sigma", "p": 1}
)
VISITED = [
    (options | {"estimator": estimator}, planes)
    for options in [
        {}, *PRODUCTS[::2], {"model": "gaussian_rotated"}, {"model": OWN},
        {"model": "gaussian_rotated", "fixed": {"angle": 0}},
    ]
    for estimator, planes in (("lse", False), ("wlse", True), ("mle", False), ("mle", True))
]  # fmt: skip


def build(architecture, file, variants, before=None):
    """Compile variants of a file, some at a time; return what came of each."""
    compiler = nvrtc.compiler()
    if architecture not in compiler.architectures:
        pytest.skip(f"NVRTC {compiler.version[0]}.{compiler.version[1]} does not know this GPU")

    def one(variant):
        text = before[variant] if before else ""
        return compiler.compile(text + source(file), architecture, options(**variants[variant]))

    with ThreadPoolExecutor(threads.available()) as pool:
        return dict(zip(variants, pool.map(one, variants), strict=True))


def crowded(pixel, count):
    """Return shapes of which two warps just share a block."""
    shapes = product(range(ROI_MIN, ROI_MAX + 1), repeat=2)
    both = [shape for shape in shapes if layout.warps_per_block(shape, pixel, ROUND) == 2]
    both.sort(key=lambda shape: math.prod(shape) / math.prod(layout.lanes(*shape)))
    return both[-count:]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def fits(request):
    """The fit kernel for ROIs of all sizes, by (shape, pixel type, gather)."""
    turn = ARCHITECTURES.index(request.param)
    shapes = SQUARE + OTHERS[turn :: len(ARCHITECTURES)]
    kinds = [(shape, *KINDS[(3 * turn + i) % len(KINDS)]) for i, shape in enumerate(shapes)]
    if request.param == 90:
        kinds += COMMON + [(shape, "f8", False) for shape in crowded(np.dtype("f8"), 4)]
    variants = {
        (shape, pixel, gather): layout.macros(shape, np.dtype(pixel), gather, ROUND)
        for shape, pixel, gather in kinds
    }
    return build(request.param, "fit.cu", variants)


def test_fits_of_all_sizes_compile_without_a_word(fits):
    assert {variant: made.log for variant, made in fits.items() if made.log} == {}


def test_fits_in_small_rois_use_no_memory_of_their_own(request, fits):
    small = {
        variant: made.usage for variant, made in fits.items() if max(variant[0]) <= ALL_IN_REGISTERS
    }
    assert len(small) > 10
    assert all(len(usage) == 1 for usage in small.values())
    assert {variant: usage for variant, usage in small.items() if usage[0].stack} == {}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_other_products_compile_without_a_word(architecture):
    """Sizes, pixel types and kinds of memory access go round here, too."""
    turn = ARCHITECTURES.index(architecture)
    variants = {}
    for i, given in enumerate(PRODUCTS):
        shape = (*SQUARE[::3], *OTHERS)[(5 * turn + 3 * i) % 20]
        pixel, gather = KINDS[(3 * turn + i) % len(KINDS)]
        settings = Settings(**given)
        for size in (shape, (7, 7)):
            variants[size, i] = layout.macros(size, np.dtype(pixel), gather, settings)
    made = build(architecture, "fit.cu", variants)
    assert {variant: one.log for variant, one in made.items() if one.log} == {}
    small = [one.usage for variant, one in made.items() if max(variant[0]) <= 13]
    assert not any(usage.stack for usages in small for usage in usages)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_fits_that_visit_every_pixel_compile_without_a_word(architecture):
    turn = ARCHITECTURES.index(architecture)
    variants, before = {}, {}
    for i, (given, planes) in enumerate(VISITED):
        if architecture != 90 and i % 4 != turn % 4:
            continue
        settings = Settings(**given, gain=1.0)
        shapes = [(9, 9), (*SQUARE[::3], *OTHERS)[(3 * turn + i) % 20]]
        pixel, gather = KINDS[(3 * turn + i) % len(KINDS)]
        for shape in shapes[: 2 if i % len(ARCHITECTURES) == turn else 1]:
            variant = shape, i
            before[variant] = pixelwise.before(settings.profile)
            variants[variant] = pixelwise.macros(shape, np.dtype(pixel), gather, planes, settings)
    made = build(architecture, "fit_pixelwise.cu", variants, before)
    assert {variant: one.log for variant, one in made.items() if one.log} == {}
    small = {variant: one.usage for variant, one in made.items() if max(variant[0]) <= 16}
    assert {variant: usage for variant, usage in small.items() if usage[0].spill_stores} == {}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_detection_compiles_without_a_word(architecture):
    variants = {pixel: detect.MACROS | {"PIXEL": pixel} for pixel in layout.PIXEL_TYPES.values()}
    made = build(architecture, "cuda/detection.cu", variants)
    assert {variant: one.log for variant, one in made.items() if one.log} == {}
    for variant, one in made.items():
        assert len(one.usage) == len(detect.THREADS_OF), variant
        assert not any(usage.stack for usage in one.usage), variant
