"""The kernels of large ROIs on the host, against the CPU's library; and compiled for GPUs."""

from __future__ import annotations

import large_on_host
import numpy as np
import nvrtc
import pytest
from cpu_fits import fit_rois
from large_requests import EVERY_FUNCTION, assert_alike, on_cpu, prepared

from napari_spotfit.engine.cpu.fit_kind import LargeFit
from napari_spotfit.engine.cpu.layouts import LargeTask
from napari_spotfit.engine.cuda import large_rois
from napari_spotfit.engine.cuda.compile import OPTIONS
from napari_spotfit.engine.kernel_arguments import (
    PIXEL_TYPES,
    Results,
    address,
    fit_results,
    row_bytes,
)
from napari_spotfit.settings.settings import Settings

#: Settings, and a shape in the order of the kernels.
KINDS = {
    "round": (Settings(), (20.3, 17.8, 6.0)),
    "narrow integrated": (Settings(pixel="integrated"), (20.3, 17.8, 1.2)),
    "wide integrated": (Settings(pixel="integrated"), (20.3, 17.8, 11.0)),
    "elliptical": (Settings(model="gaussian_elliptical"), (20.3, 17.8, 6.0, 9.0)),
    "rotated": (Settings(model="gaussian_rotated"), (20.3, 17.8, 9.0, 5.0, 0.4)),
    "lorentzian": (Settings(model="lorentzian"), (20.3, 17.8, 6.0)),
}
SHAPE = (41, 75)
#: Turing, Ada and Blackwell.
ARCHITECTURES = (75, 89, 120)


def frame(pixel="u2"):
    return np.random.default_rng(0).poisson(40, SHAPE).astype(pixel)


def plane(bad):
    values = np.random.default_rng(1).uniform(0.5, 3, SHAPE).astype(np.float32)
    values[::7, ::5] = bad
    return values


def on_both(settings, task, shape, pixels, own=None, variances=None):
    fit = prepared(settings, task, shape, SHAPE, planes=own is not None)
    theirs = on_cpu(fit, pixels, own, variances)
    made = large_on_host.machine(settings, pixels.dtype.str[1:])
    return made.numbers(large_on_host.pixels(pixels, own, variances), fit.request), theirs


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_the_cpu(kind):
    settings, shape = KINDS[kind]
    assert_alike(*on_both(settings, LargeTask.RESIDUALS, shape, frame()), len(shape))


@pytest.mark.parametrize("pixel", PIXEL_TYPES)
def test_pixels_of_any_type(pixel):
    settings, shape = KINDS["round"]
    assert_alike(*on_both(settings, LargeTask.RESIDUALS, shape, frame(pixel)), len(shape))


@pytest.mark.parametrize("task", [LargeTask.RESIDUALS, LargeTask.NOISE])
def test_sums_with_weights(task):
    settings, shape = KINDS["rotated"]
    pixels, own = frame("f4"), plane(0)
    pixels[::7, ::5] = np.nan
    variances = plane(9) if task == LargeTask.NOISE else None
    settings = settings.changed(estimator="wlse")
    assert_alike(*on_both(settings, task, shape, pixels, own, variances), len(shape))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("task", [LargeTask.DEVIANCE, LargeTask.FISHER, LargeTask.RESIDUALS])
def test_sums_of_maximum_likelihood(task, known):
    settings, shape = KINDS["rotated"]
    pixels, own = frame("f4"), plane(np.nan) if known else None
    if known:
        pixels[::7, ::5] = np.nan
    settings = settings.changed(estimator="mle", gain=1.0)
    assert_alike(*on_both(settings, task, shape, pixels, own), len(shape))


@pytest.mark.parametrize("known", [False, True])
def test_cells_are_those_of_the_cpu(known):
    settings, own = Settings(estimator="wlse"), plane(0) if known else None
    fit = LargeFit(settings, SHAPE, planes=known)
    fit.begin(None, 0.0)
    assert fit.request.cell > 1
    theirs = on_cpu(fit, frame("i2"), own)
    pixels = large_on_host.pixels(kept := frame("i2"), own)
    ours = large_on_host.machine(settings, "i2").numbers(pixels, fit.request)
    assert kept is not None
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_a_whole_fit_is_that_of_the_cpu(estimator):
    settings = Settings(model="gaussian_rotated", estimator=estimator, gain=1.0)
    truth = {"y": 19.4, "x": 36.2, "sigma_x": 9, "sigma_y": 5, "angle": 30}
    y, x = np.indices(SHAPE, float)
    model = settings.profile.evaluate((y, x), truth | {"amplitude": 80, "background": 9})
    pixels = np.random.default_rng(2).poisson(model).astype(np.uint16)

    memory = np.empty(row_bytes(settings), np.uint8)
    fit, made = LargeFit(settings, SHAPE, planes=False), large_on_host.machine(settings, "u2")
    fit.begin(None, 0.0)
    while fit.request.task:
        fit.take(made.numbers(large_on_host.pixels(pixels), fit.request), 1)
    fit.write(0, fit_results(address(memory), 1, settings))
    columns = Results.within(memory, 1, settings).columns(settings.profile)
    theirs = fit_rois(pixels[None], None, SHAPE, settings)
    for name, value in columns.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("task", range(LargeTask.RESIDUALS, LargeTask.NOISE + 1))
@pytest.mark.parametrize("kind", [*KINDS, "every function"])
def test_sums_compile_without_a_word(kind, task):
    settings = Settings(model=EVERY_FUNCTION) if kind == "every function" else KINDS[kind][0]
    # Generations go round the models.
    architecture = ARCHITECTURES[([*KINDS, kind].index(kind) + task) % len(ARCHITECTURES)]
    made = compiled(
        large_rois.sums_text(settings.profile, settings.pixel, "u2", task), architecture
    )
    assert made.log == ""
    assert not any(usage.spill_stores for usage in made.usage)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_other_kernels_compile_without_a_word(architecture):
    texts = large_rois.join_text(), *map(large_rois.cells_text, PIXEL_TYPES)
    for text in texts[ARCHITECTURES.index(architecture) :: len(ARCHITECTURES)]:
        assert compiled(text, architecture).log == ""


def compiled(text, architecture):
    compiler = nvrtc.compiler()
    if architecture not in compiler.architectures:
        pytest.skip("NVRTC does not know this GPU")
    return compiler.compile(text, architecture, OPTIONS)
