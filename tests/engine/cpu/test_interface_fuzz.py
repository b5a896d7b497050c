"""Random arguments of public functions never reach the library in an invalid form.

Either there are results, as long as they should be, or an error that says what is wrong. A crash
ends the tests.
"""

from __future__ import annotations

import contextlib
import math
import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from napari_spotfit import Camera, StopCondition, detect_spots, fit_at, fit_spots, localize
from napari_spotfit.models.profiles import MODELS

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
EVERY = settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
#: Types of pixels that the library reads, others that are converted, and the other byte order.
DTYPES = st.sampled_from(
    ["u1", "u2", "i2", "f4", "f8", "i1", "u4", "i8", "f2", ">u2", ">f4", ">f8"] * 3 + ["?", "c8"]
)
NUMBERS = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e-45, 1e-39, 3e38, 1e39]
    ),
    st.floats(-1e4, 1e4),
    st.none(),
)


@st.composite
def pixels(draw, *shape):
    """Return an array of any type, content and memory layout."""
    dtype = np.dtype(draw(DTYPES))
    kind = draw(st.sampled_from(["spot", "noise", "constant", "anything", "bits"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    with np.errstate(all="ignore"):
        if kind == "anything":
            own = hnp.from_dtype(np.dtype("f8"), allow_subnormal=True)
            few = np.array(draw(st.lists(own, min_size=1, max_size=8)))
            array = few[rng.integers(0, len(few), shape)].astype(dtype)
        elif kind == "bits":
            array = np.frombuffer(rng.bytes(math.prod(shape) * dtype.itemsize), dtype).reshape(
                shape
            )
            array = (array.view("u1") & 1).view(bool) if dtype.kind == "b" else array
        else:
            rows, columns = np.indices(shape[-2:]) - np.array(shape[-2:]).reshape(2, 1, 1) / 2
            light = 100 * np.exp(-(rows**2 + columns**2) / 4) if kind == "spot" else 3.0
            noise = 0 if kind == "constant" else rng.normal(0, 2, shape)
            array = np.broadcast_to(light + 5 + noise, shape).astype(dtype)
    layout = draw(
        st.sampled_from(["plain", "reversed", "fortran", "strided", "broadcast", "offset"])
    )
    if layout == "reversed":
        return array[::-1, ..., ::-1]
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "strided":
        return np.repeat(array, 2, -1)[..., ::2]
    if layout == "broadcast":
        return np.broadcast_to(array[:1], shape)
    if layout == "offset":  # not at a multiple of its size
        memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
        moved = memory.view(dtype).reshape(shape)
        moved[...] = array
        return moved
    return array


def maybe(strategy):
    return st.none() | strategy


HALF = st.floats(0.3, 4)
#: Values of settings, some of them invalid.
RIGHT = {
    "pixel": st.sampled_from(["sampled", "integrated"]),
    "errors": st.booleans(),
    "max_iterations": st.integers(1, 60),
    "sigma_min": HALF,
    "sigma_max": HALF,
    "amplitude_min": st.floats(-10, 50),
    "amplitude_max": st.floats(-10, 50) | st.just(3e38),
    "background_min": st.floats(-10, 10) | st.just(-3e38),
    "background_max": st.floats(-10, 10),
    "max_error": st.floats(0, 3e38),
    "min_delta": st.floats(0, 1),
    "min_step": st.floats(0, 1),
    "offset": st.floats(-100, 10) | st.sampled_from([1e-45, 3e38, -3e38]),
    "gain": st.floats(0.1, 3) | st.sampled_from([1e-45, 1e-30, 3e38]),
    "variance": st.floats(0, 20) | st.sampled_from([1e-45, 3e38]),
    "threads": st.integers(1, 3),
}


@st.composite
def options(draw):
    """Return settings, most of them valid."""
    model = draw(st.sampled_from(list(MODELS)))
    chosen = {"model": model, "estimator": draw(st.sampled_from(["lse", "lse", "mle", "wlse"]))}
    if chosen["estimator"] == "wlse":
        chosen["variance"] = draw(st.floats(1, 20))
    for name in draw(st.lists(st.sampled_from(list(RIGHT)), max_size=3, unique=True)):
        chosen[name] = draw(RIGHT[name])
    shape = st.sampled_from([parameter.name for parameter in MODELS[model].shape])
    if draw(st.booleans()):
        chosen["fixed"] = draw(st.dictionaries(shape, maybe(HALF), max_size=2))
        ends = st.tuples(maybe(HALF), maybe(st.floats(4, 6)))
        bounds = draw(st.dictionaries(shape, ends, max_size=2))
        chosen["bounds"] = {n: e for n, e in bounds.items() if n not in chosen["fixed"]}
    if draw(st.integers(0, 5)) == 0:
        wrong = draw(st.sampled_from(["fixed", "bounds", *list(RIGHT)[2:]]))
        mapped = {"fixed": NUMBERS, "bounds": st.tuples(NUMBERS, NUMBERS)}
        one = st.dictionaries(shape, mapped[wrong], max_size=3) if wrong in mapped else NUMBERS
        chosen[wrong] = draw(one)
    return chosen


@st.composite
def known(draw, *shape):
    """Return per-pixel maps, often none."""
    chosen = {}
    if draw(st.integers(0, 5)) == 0:
        of_frame = shape[-2:] if draw(st.booleans()) else shape
        drawn = draw(pixels(*of_frame)) if draw(st.booleans()) else np.ones(of_frame)
        chosen["weights"] = np.abs(drawn)
    if draw(st.integers(0, 3)) == 0:
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        chosen["bad_pixels"] = rng.random(shape[-2:]) < draw(st.sampled_from([0.05, 0.5, 1.0]))
    if draw(st.integers(0, 3)) == 0:
        with contextlib.suppress(TypeError, ValueError):
            maps = st.floats(0.5, 4) | pixels(*shape[-2:]) | NUMBERS
            chosen["camera"] = Camera(*(draw(maybe(maps)) for _ in range(3)))
    return chosen


def check(fits, count):
    """Check that results are consistent."""
    assert len(fits) == count
    assert (fits.stop_condition <= max(StopCondition)).all()
    for name, values in fits.columns.items():
        if name.endswith("_stderr"):
            assert not np.isinf(values).any(), name
            assert not (values < 0).any(), name
        if name in ("y", "x", "amplitude", "background", "chi_square"):
            assert np.isnan(values[~fits.valid]).all(), name
            assert not np.isnan(values[fits.valid]).any(), name


def results_or_reasons(run):
    """Return the result of a function; None if it raises a documented error.

    Doubts about an image that no camera took are right, whichever there are.
    """
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return run()
    except (TypeError, ValueError) as error:
        said = str(error)
    assert len(said) > 10
    return None


@EVERY
@given(st.data())
def test_spots(data):
    shape = data.draw(st.integers(0, 40)), *data.draw(st.tuples(*(2 * [st.integers(4, 12)])))
    spots = data.draw(pixels(*shape)) if shape[0] else np.zeros(shape)
    chosen, more = data.draw(options()), data.draw(known(*shape))
    if "weights" in more:
        chosen["estimator"] = "wlse"
    start = None
    if data.draw(st.booleans()):
        columns = len(MODELS[chosen["model"]].shape)
        values = data.draw(st.lists(st.floats(width=32), min_size=1, max_size=6))
        start = np.resize(np.array(values, np.float32), (shape[0], columns))
    fits = results_or_reasons(
        lambda: fit_spots(spots, start=start, backend="cpu", **chosen, **more)
    )
    if fits is not None:
        check(fits, shape[0])


@EVERY
@given(st.data())
def test_places(data):
    shape = data.draw(st.tuples(st.integers(0, 3), st.integers(7, 20), st.integers(9, 20)))
    image = data.draw(pixels(*shape)) if shape[0] else np.zeros(shape)
    place = st.floats(-3, 25) | st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -0.5])
    centers = data.draw(st.lists(st.tuples(place, place, place), max_size=12))
    roi = data.draw(st.sampled_from([5, 7, (5, 9), (7, 5), 11]))
    chosen, more = data.draw(options()), data.draw(known(*shape))
    if "weights" in more:
        chosen["estimator"] = "wlse"
    fits = results_or_reasons(lambda: fit_at(image, centers, roi, backend="cpu", **chosen, **more))
    if fits is not None:
        check(fits, len(centers))


@settings(EVERY, max_examples=40)
@given(st.data())
def test_images(data):
    shape = data.draw(st.tuples(st.integers(0, 3), st.integers(6, 24), st.integers(7, 24)))
    image = data.draw(pixels(*shape)) if shape[0] else np.zeros(shape)
    chosen, more = data.draw(options()), data.draw(known(*shape))
    if "weights" in more:
        chosen["estimator"] = "wlse"
    found = {
        "sigma": data.draw(st.floats(0.5, 4)),
        "threshold": data.draw(st.sampled_from([0.0, 3.0, 1e30])),
        "min_distance": data.draw(st.floats(1, 8)),
    }
    fits = results_or_reasons(lambda: localize(image, 7, backend="cpu", **found, **chosen, **more))
    if fits is not None:
        check(fits, len(fits))
    more.pop("weights", None)
    places = results_or_reasons(lambda: detect_spots(image, backend="cpu", **found, **more))
    if places is not None:
        assert places.shape[1] == 3
        assert np.isfinite(places).all()
        assert (places >= 0).all()
        assert (places < shape).all()
