"""Settings: defaults, checks, and their use."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import math
import pickle
import re
import typing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from napari_spotfit import (
    NoiseModel,
    Settings,
    detect_spots,
    estimate_sigma,
    fit_at,
    fit_spots,
    localize,
    simulate_spots,
)
from napari_spotfit.models.estimators import ESTIMATORS
from napari_spotfit.models.profiles import (
    ALL_MODELS,
    GAUSSIAN_3D,
    GAUSSIAN_ROTATED,
    MODELS,
    Profile,
    VolumeModelName,
)
from napari_spotfit.settings.bounds import bounds_of, expected_widths
from napari_spotfit.settings.options import Options
from napari_spotfit.settings.settings import parameters
from napari_spotfit.settings.validation import words_of


def test_options_are_the_settings():
    hints = typing.get_type_hints(Settings)
    del hints["roi_size"]
    assert typing.get_type_hints(Options) == hints


def test_every_setting_is_explained():
    for name, parameter in parameters().items():
        assert parameter.label, name
        assert parameter.doc.endswith("."), name
        optional = dataclasses.fields(Settings)
        default = next(f.default for f in optional if f.name == name)
        assert (default is None) <= bool(parameter.none_means), name


def test_functions_show_their_settings():
    signature = inspect.signature(localize)
    assert signature.parameters["false_spots"].default == Settings().false_spots
    assert "false_spots" not in inspect.signature(fit_spots).parameters
    assert "How many false spots to expect" in localize.__doc__
    assert localize.__doc__.index("Other Parameters") < localize.__doc__.index("Returns")


def test_numbers_are_made_plain():
    settings = Settings(sigma=np.float32(2), max_iterations=np.int64(7), roi_size=[7, 9])
    assert type(settings.sigma) is float
    assert type(settings.max_iterations) is int
    assert settings.roi_shape == (7, 9)
    assert Settings(**settings.to_dict()) == settings


def test_changed_changes_one_setting():
    assert Settings().changed(sigma=2).sigma == 2
    with pytest.raises(TypeError, match="unknown setting sgima"):
        Settings().changed(sgima=2)


#: Values that may or may not go together, and some that are wrong.
SEVERAL = {
    "sigma": [None, 0.7, np.float32(1.5), 20, "wide"],
    "roi_size": [None, 9, [7, 9], 8],
    "model": ["gaussian", "gaussian_rotated", "lorentzian", "round", GAUSSIAN_ROTATED],
    "pixel": ["sampled", "integrated"],
    "estimator": ["lse", "mle", "ml"],
    "fixed": [{}, {"sigma": 1.5}, {"x": None, "y": None}, {"width": None}, ["x"]],
    "bounds": [{}, {"sigma": (None, 2)}, {"sigma_x": (3, 1)}, {"x": (-1, 1)}],
    "sigma_min": [None, 1.7, 5],
    "sigma_max": [None, 1.6, 0],
    "amplitude_max": [None, -1, 5],
    "background_min": [None, 3, True],
    "background_max": [None, 2, 8],
    "noise": [None, NoiseModel(1.0, 0.0, 1.0), {"slope": 1, "intercept": 0, "least": 0}, 3],
    "threads": [None, 2, 2.5],
}


def made_or_refused(make):
    try:
        return make()
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@given(
    st.dictionaries(st.sampled_from(sorted(SEVERAL)), st.integers(0, 4), max_size=6),
    st.sampled_from(sorted(SEVERAL)),
    st.integers(0, 4),
)
def test_a_change_is_checked_as_if_all_were_made_again(others, name, number):
    def value(of, i):
        return SEVERAL[of][i % len(SEVERAL[of])]

    options = {of: value(of, i) for of, i in others.items()}
    settings = made_or_refused(lambda: Settings(**options))
    if not isinstance(settings, Settings):
        return
    change = {name: value(name, number)}
    before = settings.to_dict()
    anew = made_or_refused(lambda: Settings(**options | change))
    changed = made_or_refused(lambda: settings.changed(**change))
    assert changed == anew
    assert settings.to_dict() == before
    if isinstance(changed, Settings):
        assert hash(changed) == hash(anew)
        assert repr(changed) == repr(anew)
        assert changed.changed(**{name: getattr(changed, name)}) is changed


def test_a_threshold_takes_the_place_of_false_spots_and_they_of_it():
    by_count = Settings(false_spots=3)
    by_height = by_count.changed(threshold=40)
    assert (by_height.false_spots, by_height.threshold) == (Settings().false_spots, 40)
    assert by_height.changed(sigma=2).threshold == 40
    again = by_height.changed(false_spots=3)
    assert again == by_count
    assert by_height.changed(threshold=None) == Settings()
    assert by_count.changed(threshold=None) == by_count
    assert Settings(**by_height.to_dict()) == by_height


@pytest.mark.parametrize(
    "call",
    [
        lambda: Settings(false_spots=3, threshold=40),
        lambda: Settings().changed(false_spots=3, threshold=40),
        lambda: localize(np.zeros((2, 9, 9)), false_spots=10, threshold=40),
        lambda: detect_spots(np.zeros((2, 9, 9)), false_spots=3, threshold=0),
        lambda: estimate_sigma(np.zeros((2, 9, 9)), false_spots=10, threshold=40),
    ],
)
def test_false_spots_and_threshold_are_not_both_given(call):
    with pytest.raises(ValueError, match="false_spots and threshold were both given"):
        call()


def test_what_is_no_setting_is_named_when_settings_are_made():
    with pytest.raises(TypeError, match="unknown setting sgima; the settings are sigma, sigma_z"):
        Settings(sgima=2)
    assert "false_spots" in inspect.signature(Settings).parameters


def test_words_are_those_that_a_setting_accepts():
    hints = typing.get_type_hints(Settings)
    assert words_of(hints["model"]) == tuple(MODELS)
    assert (*MODELS, *typing.get_args(VolumeModelName)) == tuple(ALL_MODELS)
    assert words_of(hints["estimator"]) == tuple(ESTIMATORS)
    assert words_of(hints["devices"]) == ("one", "all")


def test_a_roi_has_a_side_for_each_axis_of_the_model():
    known = Settings(model="gaussian_3d", roi_size=(5, 7, 9))
    assert known.roi_shape == (5, 7, 9)
    assert Settings(model="gaussian_3d", roi_size=7).roi_shape == (7, 7, 7)
    assert Settings(**known.to_dict()) == known
    assert Settings(**json.loads(json.dumps(known.to_dict()))) == known
    for change in ({"model": "gaussian"}, {"roi_size": (7, 9)}, {"roi_size": (7, 9, 9, 9)}):
        with pytest.raises(TypeError, match=r"roi_size must be a whole number or [23], .*columns"):
            known.changed(**change)
    assert known.changed(model="gaussian", roi_size=(7, 9)).roi_shape == (7, 9)
    assert known.changed(roi_size=(6, 7, 9)).roi_shape == (6, 7, 9)  # all planes of a thin stack
    for wrong in ((), (5, 7, 8), (5, 7, 3), (5, 7, True), (2, 7, 7), (33, 7, 7), (7, 33, 7), 33):
        with pytest.raises((TypeError, ValueError), match="roi_size must be"):
            known.changed(roi_size=wrong)


def test_bounds_in_volumes_follow_each_axis():
    known = Settings(
        model="gaussian_3d", roi_size=(5, 7, 9), fixed={"y": 1.0}, bounds={"z": (-1, 9)}
    )
    ends = {one.name: bounds_of(one.name, known, known.roi_shape) for one in GAUSSIAN_3D.shape}
    assert ends == {
        "z": (1.0, 4.5), "y": (4.0, 4.0), "x": (-0.5, 8.5), "sigma": (0.25, 9), "sigma_z": (0.25, 9)
    }  # fmt: skip
    in_px = known.changed(sigma_min=0.8, sigma_max=3)
    assert bounds_of("sigma", in_px, (5, 7, 9)) == (0.8, 3)
    assert bounds_of("sigma_z", in_px, (5, 7, 9)) == (0.25, 9)
    with pytest.raises(ValueError, match="z is fixed at 3 planes from the middle of the ROI"):
        bounds_of("z", known.changed(fixed={"z": 3.0}, bounds={}), known.roi_shape)
    with pytest.raises(ValueError, match="sigma_z must be above 0"):
        known.changed(fixed={"sigma_z": 0.0})


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("sigma", -1, ValueError, "sigma must be a finite number from 0.5 to 10 px, or None"),
        ("sigma", "wide", TypeError, "sigma must be a finite number"),
        ("min_distance", None, TypeError, "got None"),
        ("sigma", True, TypeError, "got True"),
        ("threshold", math.nan, ValueError, "threshold must be a finite number from 0"),
        ("threshold", -1, ValueError, r"from 0 counts, or None \(by false spots\)"),
        ("false_spots", 0, ValueError, "above 0 and at most 100000 per 10⁶ px; got 0"),
        ("false_spots", 2e5, ValueError, "at most 100000 per 10⁶ px"),
        ("false_spots", None, TypeError, "got None"),
        ("min_delta", math.inf, ValueError, "from 0 to 1"),
        ("max_iterations", 2.5, TypeError, "whole number from 1 to 1000"),
        ("gain", 0, ValueError, r"above 0 counts/e⁻, or None \(unknown\)"),
        ("roi_size", 8, ValueError, "odd, from 5 to 4095"),
        ("roi_size", 4097, ValueError, "odd, from 5 to 4095"),
        ("roi_size", (7, 7, 7), TypeError, r"\(rows, columns\)"),
        ("roi_size", 7.0, TypeError, "whole number"),
        ("errors", 1, TypeError, "True or False"),
        ("model", "lorentz", ValueError, "must be 'gaussian'"),
        ("backend", "gpu", ValueError, "'auto', 'cpu' or 'cuda'"),
        ("backend", None, ValueError, "'auto', 'cpu' or 'cuda'; got None"),
        ("devices", "both", ValueError, "'one' or 'all'; got 'both'"),
        ("threads", 0, ValueError, "from 1 to 1024"),
        ("sigma_min", 0, ValueError, "above 0 px"),
        ("sigma_z", 0.2, ValueError, r"from 0.3 to 64 planes, or None \(estimated from the image"),
        ("voxel_size", 100, TypeError, r"three numbers in nm, \(z, y, x\); got 100"),
        ("voxel_size", (300, 100), TypeError, "three numbers"),
        ("voxel_size", (0, 100, 100), ValueError, "voxel_size must be a finite number above 0"),
        ("voxel_size", (300, None, 100), TypeError, "voxel_size must be a finite number above 0"),
        ("wavelength", 0.6, ValueError, "from 200 to 2000 nm"),
        ("numerical_aperture", 2, ValueError, "from 0.05 to 1.7"),
        ("refractive_index", 0.9, ValueError, "from 1 to 2"),
    ],
)
def test_wrong_values_are_named(name, value, error, words):
    with pytest.raises(error, match=words):
        Settings(**{name: value})


#: NA, refractive index, and σ and σz in nm at a wavelength of 600 nm.
@pytest.mark.parametrize(
    ("aperture", "index", "sigma", "sigma_z"),
    [(1.4, 1.518, 93, 254), (1.2, 1.33, 109, 312), (0.8, 1.0, 165, 587)],
)
def test_widths_follow_from_the_optics(aperture, index, sigma, sigma_z):
    known = Settings(
        voxel_size=[200, 100, 100], numerical_aperture=aperture, wavelength=600,
        refractive_index=index,
    )  # fmt: skip
    widths = expected_widths(known)
    assert widths is not None
    assert (round(100 * widths.sigma), round(200 * widths.sigma_z)) == (sigma, sigma_z)
    guessed = expected_widths(known.changed(refractive_index=None))
    assert guessed == pytest.approx(widths, rel=0.02)
    twice = expected_widths(known.changed(voxel_size=(100, 200, 50), wavelength=1200))
    assert twice == pytest.approx((2 * widths.sigma, 4 * widths.sigma_z))
    for name in ("voxel_size", "numerical_aperture", "wavelength"):
        assert expected_widths(known.changed(**{name: None})) is None
    assert Settings(**json.loads(json.dumps(known.to_dict()))) == known


def test_an_aperture_is_below_the_refractive_index():
    with pytest.raises(ValueError, match=r"numerical_aperture must be below .* 1.33; got 1.4"):
        Settings(numerical_aperture=1.4, refractive_index=1.33)
    known = Settings(numerical_aperture=1.4)
    with pytest.raises(ValueError, match="numerical_aperture must be below"):
        known.changed(refractive_index=1.4)
    assert expected_widths(known.changed(voxel_size=(1, 1, 1), wavelength=500)) is not None


OWN = Profile.from_expression("exp(-abs(x-x0)/w - abs(y-y0)/w)", start={"w": "sigma"}, name="own")


@pytest.mark.parametrize(
    "options",
    [
        {"model": "gaussian_rotated", "fixed": {"angle": 30, "sigma_x": None}},
        {"model": "lorentzian", "bounds": {"width": (0.5, None), "x": (-1, 1)}},
        {"model": GAUSSIAN_ROTATED, "estimator": "mle"},
        {"model": OWN, "fixed": {"w": 1.5}},
    ],
)
def test_models_and_what_is_held_go_through_plain_values(options):
    settings = Settings(**options)
    plain = json.loads(json.dumps(settings.to_dict()))
    assert Settings(**plain) == settings
    assert hash(Settings(**plain)) == hash(settings)
    assert Settings(**plain).profile.sampled is not None


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"fixed": {"sigma_x": 1}}, ValueError, "shape parameters of the model gaussian, y, x, si"),
        ({"fixed": {"sigma": -1}}, ValueError, "sigma must be above 0; got -1"),
        ({"fixed": {"sigma": "wide"}}, TypeError, "fixed of sigma must be a finite number or None"),
        ({"fixed": {"sigma": math.inf}}, ValueError, "fixed of sigma must be a finite"),
        ({"fixed": ["sigma"]}, TypeError, "fixed must map shape parameters to values"),
        ({"fixed": {"y": None, "x": None, "sigma": 1}}, ValueError, "leave one of y, x, sigma"),
        ({"bounds": {"sigma": (2, 1)}}, ValueError, "bounds of sigma must rise; got 2 and 1"),
        ({"bounds": {"sigma": 2}}, TypeError, r"bounds of sigma must be \(lowest, highest\)"),
        ({"bounds": {"sigma": (0, 2)}}, ValueError, "sigma must be above 0; got 0"),
        ({"bounds": [1, 2]}, TypeError, "bounds must map"),
        ({"bounds": {"sigma": (1, 2)}, "fixed": {"sigma": 1}}, ValueError, "fixed and bounded"),
        ({"model": "lorentzian", "pixel": "integrated"}, ValueError, "no formula averaged"),
        ({"model": Profile("mine", GAUSSIAN_ROTATED.shape, GAUSSIAN_ROTATED.sampled)}, ValueError,
         "or of Profile.from_expression"),
        ({"estimator": "ml"}, ValueError, "'lse', 'wlse' or 'mle'; got 'ml'"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_named(options, error, words):
    with pytest.raises(error, match=words):
        Settings(**options)


def test_an_angle_may_be_negative():
    assert Settings(model="gaussian_rotated", fixed={"angle": -20}).fixed == {"angle": -20.0}


def test_bounds_must_be_in_order():
    with pytest.raises(ValueError, match="sigma_max = 1 px must be above sigma_min = 2 px"):
        Settings(sigma_min=2, sigma_max=1)


def test_what_is_held_or_bounded_cannot_be_changed():
    """Settings are shared by a whole process, and are keys of caches."""
    settings = Settings(fixed={"sigma": 1.5}, bounds={"x": (-1, 1)})
    for values, name in (
        (Settings().fixed, "sigma"),
        (settings.fixed, "y"),
        (settings.bounds, "x"),
    ):
        with pytest.raises(TypeError):
            values[name] = 1.0
        with pytest.raises(TypeError):
            del values[name]
        for method in ("update", "clear", "pop", "setdefault", "popitem", "__ior__"):
            assert not hasattr(values, method), method
        with pytest.raises(AttributeError):
            values._items = {}
    assert Settings().fixed == {}
    assert settings.fixed == {"sigma": 1.5} == dict(settings.fixed)
    assert repr(settings.bounds) == "{'x': (-1.0, 1.0)}"


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_settings_are_copied_whole(again):
    settings = Settings(fixed={"sigma": 1.5}, bounds={"x": (-1, None)}, model="gaussian")
    assert again(settings) == settings
    assert hash(again(settings)) == hash(settings)
    with pytest.raises(TypeError):
        again(settings).fixed["sigma"] = 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sigma_max": 0.1}, "sigma_max = 0.1 px must be above the least width, 0.25 px"),
        ({"model": "gaussian_rotated", "sigma_max": 0.2}, "sigma_max = 0.2 px must be above the"),
        ({"bounds": {"sigma": (None, 0.2)}},
         "the upper bound of sigma = 0.2 px must be above the least width, 0.25 px"),
        ({"bounds": {"sigma": (3, None)}, "sigma_max": 2},
         "sigma_max = 2 px must be above the lower bound of sigma = 3 px"),
        ({"bounds": {"sigma": (None, 1)}, "sigma_min": 1},
         "the upper bound of sigma = 1 px must be above sigma_min = 1 px"),
        ({"model": "lorentzian", "bounds": {"width": (None, 0.25)}}, "must be above the least"),
        ({"amplitude_max": -1, "estimator": "mle"},
         "amplitude_max = -1 counts must be above 0, as maximum likelihood needs light that"),
        ({"background_max": 0, "estimator": "mle"}, "background_max = 0 counts must be above 0"),
        ({"amplitude_min": 3, "amplitude_max": 3}, "amplitude_max = 3 counts must be above ampl"),
        ({"model": "lorentzian", "sigma_min": 2, "sigma_max": 1}, "sigma_max = 1 px must be"),
    ],
)  # fmt: skip
def test_bounds_that_leave_nothing_are_named(options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Settings(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fixed": {"y": 100}}, "y is fixed at 100 px from the middle of the ROI, which ends at"),
        ({"fixed": {"x": -5}}, "x is fixed at -5 px from the middle of the ROI, which ends at 4.5"),
        ({"bounds": {"y": (50, 60)}},
         "the ROI's last edge, 3.5 px, must be above the lower bound of y = 50 px"),
        ({"bounds": {"x": (None, -6)}},
         "the upper bound of x = -6 px must be above the ROI's first edge, -4.5 px"),
        ({"sigma_min": 20}, "the ROI's longer side, 9 px, must be above sigma_min = 20 px"),
        ({"model": "lorentzian", "bounds": {"width": (9, None)}},
         "the ROI's longer side, 9 px, must be above the lower bound of width = 9 px"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_bounds_that_leave_nothing_in_a_roi_are_named(options, words, estimator):
    settings = Settings(estimator=estimator, **options)
    with pytest.raises(ValueError, match=re.escape(words)):
        fit_spots(simulate_spots(3, (7, 9), seed=0)[0], settings=settings, backend="cpu")


@pytest.mark.parametrize(
    "name", ["sigma", "threshold", "false_spots", "gain", "max_iterations", "amplitude_min"]
)
@pytest.mark.parametrize("value", [10**400, -(10**400), 1e39])
def test_numbers_that_are_too_large_are_named(name, value):
    with pytest.raises((ValueError, TypeError), match=f"{name} must be a"):
        Settings(**{name: value})
    with pytest.raises(ValueError, match="bounds of sigma must be a finite number"):
        Settings(bounds={"sigma": (None, value)})


@pytest.mark.parametrize("function", [localize, fit_spots, fit_at, detect_spots, estimate_sigma])
def test_settings_must_be_settings(function):
    with pytest.raises(
        TypeError, match=r"settings must be Settings\(…\); got a dict: Settings\(\*\*"
    ):
        function(np.zeros((2, 9, 9)), *([[0, 4, 4]],) * (function is fit_at), settings={"sigma": 2})


@pytest.mark.parametrize(
    ("function", "option", "words"),
    [
        (fit_spots, {"roi_size": 7}, "roi_size has no effect in fit_spots; its settings are model"),
        (fit_spots, {"threshold": 7}, "threshold has no effect in fit_spots"),
        (fit_at, {"min_distance": 2.0}, "min_distance has no effect in fit_at"),
        (detect_spots, {"max_iterations": 2}, "max_iterations has no effect in detect_spots"),
        (localize, {"sgima": 2}, "unknown setting sgima"),
    ],
)
def test_settings_without_effect_are_refused(function, option, words):
    with pytest.raises(TypeError, match=words):
        function(np.zeros((2, 9, 9)), *([[0, 4, 4]],) * (function is fit_at), **option)
