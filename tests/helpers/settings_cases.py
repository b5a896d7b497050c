"""Arbitrary valid settings for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from napari_spotfit import NoiseModel, Profile, Settings

#: An own model.
OWN = {
    "expression": "exp(-(((x-x0)**2 + (y-y0)**2) / (2*s**2))**q)",
    "start": {"s": "sigma", "q": 1},
    "bounds": {"q": (0.2, 5)},
}
_MODELS = ("gaussian", "gaussian_elliptical", "moffat")
_ODD = Profile.from_expression(
    "exp(-((x-cx)**2 + (y-cy)**2) / (2*σ_1**2))",
    start={"σ_1": "0.9*sigma + 0.1"},
    center=("cy", "cx"),
    bounds={"σ_1": (None, 7.1)},
    name='odd "name"\t\x7f\\ σ #',
)


def _numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_subnormal=False)


@st.composite
def any_settings(draw: st.DrawFn) -> Settings:
    """Return consistent settings, with numbers of any digits."""
    model = draw(st.sampled_from([*_MODELS, Profile.from_expression(**OWN), _ODD]))
    options = {
        "model": model,
        "sigma": draw(st.none() | _numbers(0.5, 10)),
        "roi_size": draw(st.sampled_from([None, 9, (7, 11), 4095])),
        "min_distance": draw(_numbers(1, 64)),
        "offset": draw(_numbers(-1e6, 1e6)),
        "gain": draw(st.none() | _numbers(1e-9, 1e9)),
        "max_error": draw(_numbers(0, 1e30)),
        "background_max": draw(st.none() | _numbers(1, 1e30)),
        "emccd": draw(st.booleans()),
        "threads": draw(st.none() | st.integers(1, 1024)),
        "neighbours": draw(st.sampled_from(["exclude", "ignore"])),
    }
    if draw(st.booleans()):
        options["threshold"] = draw(_numbers(0, 1e9))
    else:
        options["false_spots"] = draw(_numbers(1e-9, 1e5))
    options["fixed"] = draw(
        st.dictionaries(st.sampled_from(["y", "x"]), st.none() | _numbers(-2, 2), max_size=2)
    )
    if model == "gaussian":
        options["bounds"] = draw(
            st.dictionaries(st.just("sigma"), st.tuples(_numbers(0.5, 1), st.just(None)))
        )
    if draw(st.booleans()):
        options["noise"] = NoiseModel(
            draw(_numbers(0, 1e3)), draw(_numbers(-1e9, 1e9)), draw(_numbers(0, 1e9)),
            draw(_numbers(0.1, 9)), draw(st.none() | _numbers(0, 1e3)), draw(st.integers(0, 999)),
        )  # fmt: skip
    return Settings(**options)
