"""The kernels of large ROIs on the host, against the CPU's twin: sums, bins, and whole fits."""

from __future__ import annotations

import emulated
import numpy as np
import nvrtc
import pytest
from large_images import EVERY_FUNCTION, cpu_image

from napari_spotfit.engine.cpu import large as cpu
from napari_spotfit.engine.cuda import large, pixelwise
from napari_spotfit.engine.cuda.compile import options, source
from napari_spotfit.engine.large import fit
from napari_spotfit.engine.large.image import sums_of
from napari_spotfit.models.profiles import Profile
from napari_spotfit.settings.settings import Settings

FLAT_TOP = Profile.from_expression(
    "exp(-(((x-x0)**2 + (y-y0)**2) / (2*s**2))**q)", start={"s": "sigma", "q": 1}
)
#: Settings, and a shape in the order of the kernels.
KINDS = {
    "round": (Settings(), (20.3, 17.8, 6.0)),
    "narrow integrated": (Settings(pixel="integrated"), (20.3, 17.8, 1.2)),
    "wide integrated": (Settings(pixel="integrated"), (20.3, 17.8, 11.0)),
    "elliptical": (Settings(model="gaussian_elliptical"), (20.3, 17.8, 6.0, 9.0)),
    "rotated": (Settings(model="gaussian_rotated"), (20.3, 17.8, 9.0, 5.0, 0.4)),
    "lorentzian": (Settings(model="lorentzian"), (20.3, 17.8, 6.0)),
    "custom": (Settings(model=FLAT_TOP), (20.3, 17.8, 6.0, 1.3)),
    "every function": (Settings(model=EVERY_FUNCTION), (20.3, 17.8, 6.0, 1.3)),
}
SHAPE = (41, 75)


class OnHost:
    """Images whose kernels run in the emulator; keeps the memory that they use."""

    def __init__(self, settings: Settings, most: int = 3) -> None:
        self.settings = settings
        self.before = pixelwise.before(settings.profile)
        count = len(settings.profile.shape)
        self.blocks = np.empty(most * sums_of(count))
        self.finished = np.zeros(1, np.uint32)
        self.launcher = large.Launcher(
            self.run, lambda: None, self.blocks, self.finished, np.full(4 * 64 * 64, np.nan), most
        )

    def run(self, name, grid, arguments, macros):
        emulated.launch(
            "large.cu", name, (grid,), (32 * large.WARPS,), arguments, before=self.before, **macros
        )
        assert self.finished[0] == 0

    def image(self, frames, plane=None):
        pixels = large.Place(frames.ctypes.data, frames.shape[2])
        known = large.Place(0, 0)
        if plane is not None:
            known = large.Place(plane.ctypes.data, plane.shape[2])
        shape = frames.shape[1:]
        return large.CudaImage(self.launcher, shape, pixels, known, self.settings, frames.dtype)


def twin(settings, frames, plane=None):
    """Return the same image on the CPU."""
    return cpu_image(settings.changed(threads=1), frames, plane)


def pixels(pixel="u2"):
    return np.random.default_rng(0).poisson(40, (1, *SHAPE)).astype(pixel)


def weights(bad):
    plane = np.random.default_rng(1).uniform(0.5, 3, (1, *SHAPE)).astype(np.float32)
    plane[0, ::7, ::5] = bad
    return plane


def assert_alike(ours, theirs):
    """Up to rounding."""
    size = np.sqrt(np.outer(np.diag(theirs.matrix), np.diag(theirs.matrix)))
    np.testing.assert_allclose(ours.matrix / size, theirs.matrix / size, atol=1e-5)
    size = np.sqrt(np.diag(theirs.matrix) * abs(theirs.total))
    np.testing.assert_allclose(ours.vector / size, theirs.vector / size, atol=1e-5)
    np.testing.assert_allclose(ours.total, theirs.total, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_the_cpu(kind):
    settings, shape = KINDS[kind]
    frames = pixels()
    ours, theirs = OnHost(settings).image(frames), twin(settings, frames)
    for image in (ours, theirs):
        image.set_unit(38.0, 0.05)
    arguments = (np.array(shape), 0.7, 0.1)
    assert_alike(ours.least_squares(*arguments), theirs.least_squares(*arguments))


@pytest.mark.parametrize("pixel", large.PIXEL_TYPES)
def test_pixels_of_any_type(pixel):
    settings, shape = KINDS["round"]
    frames = pixels(pixel)
    ours, theirs = OnHost(settings).image(frames), twin(settings, frames)
    for image in (ours, theirs):
        image.set_unit(38.5, 0.05)
    assert_alike(
        ours.least_squares(np.array(shape), 0.7, 0.1),
        theirs.least_squares(np.array(shape), 0.7, 0.1),
    )


@pytest.mark.parametrize("estimator", ["wlse", "mle"])
def test_sums_with_planes(estimator):
    settings, shape = KINDS["rotated"]
    settings = settings.changed(estimator=estimator)
    frames, plane = pixels("f4"), weights(np.nan if estimator == "mle" else 0)
    frames[0, ::7, ::5] = np.nan
    ours, theirs = OnHost(settings).image(frames, plane), twin(settings, frames, plane)
    for image in (ours, theirs):
        image.set_unit(2.0, 0.5)
    arguments = (np.array(shape), 9.0, 6.0)
    assert_alike(ours.least_squares(*arguments), theirs.least_squares(*arguments))
    if estimator == "mle":
        assert_alike(ours.likelihood(*arguments), theirs.likelihood(*arguments))
    else:
        ours, theirs = (image.noise(*arguments, 0.3) for image in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * abs(theirs).max())


def test_likelihood_without_planes():
    settings, shape = KINDS["round"]
    settings = settings.changed(estimator="mle")
    frames = pixels()
    ours, theirs = OnHost(settings).image(frames), twin(settings, frames)
    for image in (ours, theirs):
        image.set_unit(0.0, 1.0)
    ours, theirs = (image.likelihood(np.array(shape), 15.0, 35.0) for image in (ours, theirs))
    assert_alike(ours, theirs)


@pytest.mark.parametrize("cell", [1, 6])
@pytest.mark.parametrize("plane", [False, True])
def test_bins_are_those_of_the_cpu(cell, plane):
    settings = Settings(estimator="wlse")
    frames, known = pixels("i2"), weights(0) if plane else None
    ours, theirs = OnHost(settings).image(frames, known), twin(settings, frames, known)
    rows, columns = -(-(SHAPE[0] - 2) // cell), -(-(SHAPE[1] - 3) // cell)
    results = zip(
        ours.bins(2, 3, cell, rows, columns), theirs.bins(2, 3, cell, rows, columns), strict=True
    )
    for mine, other in results:
        np.testing.assert_allclose(mine, other)


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_a_whole_fit_is_that_of_the_cpu(estimator):
    settings = Settings(model="gaussian_rotated", estimator=estimator, gain=1.0)
    truth = {"y": 19.4, "x": 36.2, "sigma_x": 9, "sigma_y": 5, "angle": 30}
    y, x = np.indices(SHAPE, float)
    model = settings.profile.evaluate(y, x, truth | {"amplitude": 80, "background": 9})
    frames = np.random.default_rng(2).poisson(model).astype(np.uint16)[None]
    image = OnHost(settings).image(frames)
    ours = fit.fit_rois(lambda _: image, 1, SHAPE, settings, None)
    theirs = cpu.fit_rois(frames, None, SHAPE, settings, None, None)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_compile_without_a_word(kind):
    compiler = nvrtc.compiler()
    known = sorted({75, 90, 120} & compiler.architectures)
    # Generations go round the models.
    architecture = known[list(KINDS).index(kind) % len(known)]
    settings, _ = KINDS[kind]
    code = pixelwise.before(settings.profile) + source("large.cu")
    macros = OnHost(settings).image(pixels()).macros
    for planes, likelihood in ((0, 0), (1, 0), (1, 1)):
        variant = macros | {"PLANES": planes, "LIKELIHOOD": likelihood, "POISSON": likelihood}
        made = compiler.compile(code, architecture, options(**variant))
        assert made.log == ""
        assert not any(usage.spill_stores for usage in made.usage)
