"""Settings travel as TOML and as Python, exactly."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from same_fits import assert_same
from settings_cases import OWN, any_settings

import napari_spotfit
from napari_spotfit import Profile, Settings, load_settings, localize, save_settings, simulate_movie
from napari_spotfit.files.settings_file import (
    settings_as_python,
    settings_as_toml,
    settings_of_toml,
)
from napari_spotfit.files.table import UnreadableFileError


@settings(deadline=None)
@given(any_settings())
def test_any_settings_come_back_from_toml(known):
    text = settings_as_toml(known)
    assert settings_of_toml(text) == known
    # What is written is what is said, not what happens to be a default.
    assert tomllib.loads(text)["settings"]["min_step"] == known.min_step


@settings(deadline=None)
@given(any_settings())
def test_any_settings_come_back_from_python(known):
    text = settings_as_python(known)
    assert eval(text, {"napari_spotfit": napari_spotfit}) == known


def test_the_file_is_for_people(tmp_path):
    path = tmp_path / "beads.toml"
    known = Settings(
        sigma=1.7, model=Profile.from_expression(**OWN), fixed={"y": None, "x": 0.5}, gain=2
    )
    save_settings(known, path)
    text = path.read_text(encoding="utf-8")
    for line in (
        "sigma = 1.7 # PSF σ, px",
        "# threshold is not set: by false spots",
        'y = "start"',
        "[settings.model.bounds]",
        "q = [0.2, 5.0]",
        "s = [-inf, inf]",
    ):
        assert f"\n{line}\n" in text
    assert load_settings(path) == known
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_file_by_hand_may_leave_out_all_but_the_heading(tmp_path):
    path = tmp_path / "by hand.toml"
    path.write_text("[settings]\nsigma = 2\nroi_size = [7, 9]\n", encoding="utf-8")
    assert load_settings(path) == Settings(sigma=2, roi_size=(7, 9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[settings\nsigma = 2", "it is damaged, or not a TOML file"),
        ("", r"it has no table \[settings\]"),
        ("settings = 3", r"it has no table \[settings\]"),
        ("format = 2\nversion = '9.1'\n[settings]", "9.1 has written it in the newer format 2"),
        ("format = true\n[settings]", "its format has no number"),
        ("[settings]\nsgima = 2", "unknown setting sgima; the settings are sigma"),
        ("[settings]\nsigma = 'wide'", "sigma must be a finite number from 0.5 to 10 px"),
        ("[settings]\nsigma = nan", "sigma must be a finite number"),
        ("[settings]\nbounds = 3", "bounds must map"),
        ("[settings]\nfixed = [1]", "fixed must map"),
        ("[settings.bounds]\nsigma = [3, 1]", "bounds of sigma must rise"),
        ("[settings.model]\nexpression = 'exit()'", ""),
        ("[settings.noise]\nslope = 1", ""),
        ("[settings]\nroi_size = 8", "roi_size must be odd"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    path = tmp_path / "a.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableFileError, match=f"“a.toml” cannot be opened: .*{message}"):
        load_settings(path)


def test_what_is_no_text_is_refused(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableFileError, match=r"“a.toml” cannot be opened"):
        load_settings(path)
    with pytest.raises(FileNotFoundError):
        load_settings(tmp_path / "b.toml")
    with pytest.raises(ValueError, match=r"must end in \.toml"):
        save_settings(Settings(), tmp_path / "a.txt")


def test_a_fit_with_settings_that_travelled_is_the_same_to_the_bit(tmp_path):
    movie, _ = simulate_movie(6, shape=(96, 96), seed=2)
    fits = localize(movie)
    save_settings(fits.settings, tmp_path / "a.toml")
    assert_same(
        localize(movie[:3], settings=load_settings(tmp_path / "a.toml")), fits[fits.frame < 3]
    )
    made = eval(settings_as_python(fits.settings), {"napari_spotfit": napari_spotfit})
    assert_same(localize(movie[:3], settings=made), fits[fits.frame < 3])
