"""Every kernel compiles for every generation of GPUs, without warnings or register spills.

The compiler needs no GPU. No kernel asks for which generation it is compiled, so generations go
round the kernels, as pixel types and kinds of memory access do: each kernel is compiled once, and
each pixel type, size, model and estimator occurs for several generations. Those of large sizes,
whose usage is not asked for, are not assembled.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import nvrtc
import pytest
from psfs import measured_psf

from napari_spotfit import Settings
from napari_spotfit.engine import cell_index, threads
from napari_spotfit.engine.cuda import crowd_fits, detect, detect_volumes, roi_kernels
from napari_spotfit.engine.cuda.compile import OPTIONS, PIXEL_TYPES, options, source
from napari_spotfit.engine.cuda.fit_kernel import FitCode, kernel_text, threads_for, warp_bytes
from napari_spotfit.models.profiles import Profile
from napari_spotfit.settings.validation import ROI_MAX, ROI_MIN

#: Hopper, then Turing, Ampere, Ada and Blackwell.
ARCHITECTURES = (90, 75, 86, 89, 120)

#: Largest size without local memory of a fit.
ALL_IN_REGISTERS = 16

KINDS = list(product(PIXEL_TYPES, (False, True)))
SQUARE = [(size, size) for size in range(ROI_MIN, ROI_MAX + 1)]
#: Every way to share a fit, also unevenly; the most common fits.
SHAPES = [(7, 7), (9, 9), (13, 13), (16, 16), (32, 32), (4, 32), (11, 7), (21, 30)]

OWN = Profile.from_expression(
    "exp(-((x - x0)**2 + (y - y0)**2)**p / (2 * w**(2 * p)))", start={"w": "sigma", "p": 1}
)
MODELS = [
    {}, {"model": "gaussian_elliptical"}, {"pixel": "integrated"},
    {"model": "gaussian_elliptical", "pixel": "integrated"}, {"model": "lorentzian"},
    {"model": "gaussian_rotated"}, {"model": OWN}, {"model": measured_psf()},
]  # fmt: skip
#: Estimator, whether there are planes, and whether a map of read-out variances.
ESTIMATORS = [
    ("lse", False, False), ("lse", False, True), ("wlse", True, False), ("wlse", True, True),
    ("mle", False, False), ("mle", True, False),
]  # fmt: skip


def is_small(code):
    """Whether a fit's usage is asked for."""
    return code.rows <= ALL_IN_REGISTERS


def build(architecture, texts, given=OPTIONS, *, assembled=lambda name: True):
    """Compile programs in parallel; return the results."""
    compiler = nvrtc.compiler()
    if architecture not in compiler.architectures:
        pytest.skip(f"NVRTC {compiler.version[0]}.{compiler.version[1]} does not know this GPU")

    def one(name):
        return compiler.compile(texts[name], architecture, given, assembled=assembled(name))

    with ThreadPoolExecutor(threads.available()) as pool:
        return dict(zip(texts, pool.map(one, texts), strict=True))


def code_of(model, estimator, planes, variance_map, shape, pixel, gather):
    settings = Settings(**model, estimator=estimator, gain=1.0)
    return FitCode.of(
        settings, shape, pixel, gather=gather, planes=planes, variance_map=variance_map
    )


def codes(turn):
    """Return kinds of fits: each model with each estimator, and the most common in small sizes."""
    found = []
    for i, (model, estimator) in enumerate(product(MODELS, ESTIMATORS)):
        if i % len(ARCHITECTURES) == turn:
            shape = SHAPES[(5 * i + 3 * turn) % len(SHAPES)]
            found.append(code_of(model, *estimator, shape, *KINDS[(3 * turn + i) % len(KINDS)]))
    return found + [code for code in common(turn) if is_small(code)]


def common(turn):
    """Return the most common kind of fit at some sizes."""
    oblong = [(rows, columns) for rows, columns in SHAPES if rows != columns]
    return [code_of({}, *ESTIMATORS[0], shape, *KINDS[(turn + i) % len(KINDS)])
            for i, shape in enumerate((SQUARE + oblong)[turn :: len(ARCHITECTURES)])]  # fmt: skip


def of_pixels(architecture):
    """Return the pixel types for a generation."""
    return [*PIXEL_TYPES.values()][ARCHITECTURES.index(architecture) :: len(ARCHITECTURES)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_fits_compile_without_a_word(architecture):
    turn = ARCHITECTURES.index(architecture)
    texts = {code: kernel_text(code, threads_for(code)) for code in codes(turn)}
    made = build(architecture, texts, assembled=is_small)
    assert {code: one.log for code, one in made.items() if one.log} == {}
    small = {code: one.usage for code, one in made.items() if is_small(code)}
    assert len(small) >= 9
    assert all(len(usage) == 1 for usage in small.values())
    assert {code: usage for code, usage in small.items() if usage[0].stack} == {}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_large_sizes_compile_without_a_word(architecture):
    large = [code for code in common(ARCHITECTURES.index(architecture)) if not is_small(code)]
    texts = {code: kernel_text(code, threads_for(code)) for code in large}
    made = build(architecture, texts, assembled=is_small)
    assert len(made) >= 3
    assert {code: one.log for code, one in made.items() if one.log} == {}


def test_blocks_have_room_on_every_gpu():
    for shape, (pixel, gather), model, estimator in product(SQUARE, KINDS, MODELS, ESTIMATORS):
        code = code_of(model, *estimator, shape, pixel, gather)
        own = threads_for(code)
        assert own.block // 32 * warp_bytes(code, own.lanes_x, own.lanes_y) <= 48 << 10
        assert 32 % (own.lanes_x * own.lanes_y) == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_errors_of_filtered_images_compile_without_a_word(architecture):
    given = options(THREADS=roi_kernels.THREADS)
    made = build(architecture, {"errors": source("cuda/filtered_errors.cu")}, given)["errors"]
    assert (made.log, len(made.usage)) == ("", 1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_cutting_out_compiles_without_a_word(architecture):
    text = source("cuda/cut_out.cu")
    texts = {number: f"#define PIXEL {number}\n{text}" for number in roi_kernels.NUMBERS.values()}
    made = build(architecture, texts, options(THREADS=roi_kernels.THREADS))
    assert [(one.log, len(one.usage)) for one in made.values()] == len(texts) * [("", 1)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("channels", "gaussian"), [(1, True), (3, True), (1, False), (3, False)])
def test_rendering_compiles_without_a_word(architecture, channels, gaussian):
    given = options(**cell_index.macros(channels, gaussian=gaussian))
    made = build(architecture, {"pictures": source("cuda/rendering.cu")}, given)["pictures"]
    assert (made.log, len(made.usage)) == ("", len(cell_index.KERNELS))
    assert not any(usage.stack for usage in made.usage)


@pytest.mark.parametrize(
    ("architecture", "axes", "has_psf"), [(90, 2, False), (75, 3, False), (120, 2, True)]
)
def test_joint_fits_compile_without_a_word(architecture, axes, has_psf):
    given = options(**crowd_fits.macros(axes, has_psf=has_psf))
    made = build(architecture, {"crowds": source("cuda/joint.cu")}, given)["crowds"]
    assert (made.log, len(made.usage)) == ("", 1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_looking_for_flat_areas_compiles_without_a_word(architecture):
    text = source("cuda/flat_areas.cu")
    texts = {pixel: f"#define PIXEL {pixel}\n{text}" for pixel in of_pixels(architecture)}
    made = build(architecture, texts, options(THREADS=roi_kernels.SPOT_THREADS))
    assert [(one.log, len(one.usage)) for one in made.values()] == len(texts) * [("", 1)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_looking_for_long_spots_compiles_without_a_word(architecture):
    text = source("cuda/elongation.cu")
    texts = {pixel: f"#define PIXEL {pixel}\n{text}" for pixel in of_pixels(architecture)}
    made = build(architecture, texts, options(THREADS=roi_kernels.SPOT_THREADS))
    assert [(one.log, len(one.usage)) for one in made.values()] == len(texts) * [("", 1)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_detection_in_volumes_compiles_without_a_word(architecture):
    text = source("cuda/volume_detection.cu")
    texts = {pixel: f"#define PIXEL {pixel}\n{text}" for pixel in of_pixels(architecture)}
    made = build(architecture, texts, options(THREADS=detect_volumes.THREADS))
    names = len(detect_volumes.KERNELS)
    assert [(one.log, len(one.usage)) for one in made.values()] == len(texts) * [("", names)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("file", ["detection", "hot_pixels"])
def test_detection_compiles_without_a_word(architecture, file):
    text = source(f"cuda/{file}.cu")
    texts = {pixel: f"#define PIXEL {pixel}\n{text}" for pixel in of_pixels(architecture)}
    made = build(architecture, texts, options(**detect.MACROS))
    names = len(detect.THREADS_OF) if file == "detection" else 1
    assert {variant: one.log for variant, one in made.items() if one.log} == {}
    for variant, one in made.items():
        assert len(one.usage) == names, variant
        assert not any(usage.stack for usage in one.usage), variant
