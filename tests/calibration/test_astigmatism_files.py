"""Astigmatism calibrations of other programs are read, and Picasso's written."""

from __future__ import annotations

import math

import numpy as np
import pytest
from real_files import FOLDER

from napari_spotfit import AstigmatismCalibration, load_calibration
from napari_spotfit.calibration.astigmatism_files import save_for_picasso
from napari_spotfit.models.calibration import Curve

pytest.importorskip("yaml")
Z = np.linspace(-400, 400, 81)


def widths(z: np.ndarray, focus: float) -> np.ndarray:
    return 1.3 * np.sqrt(1 + ((z - focus) / 400) ** 2)


LENS = AstigmatismCalibration(
    *(Curve("huang", (1.3, focus, 400.0, 0.0, 0.0)) for focus in (250.0, -250.0)), -500.0, 450.0
)


def test_a_file_of_picasso_is_read():
    path = FOLDER / "3d" / "peers" / "picasso_0.11.3_astigmatism.yaml"
    if not path.exists():
        pytest.skip(f"needs the file {path}")
    lens = load_calibration(path)
    assert lens.x(Z) == pytest.approx(widths(Z, 250), abs=0.02)
    assert lens.y(Z) == pytest.approx(widths(Z, -250), abs=0.02)
    assert lens.index_factor == 0.79
    assert -600 <= lens.low < -450
    assert 450 < lens.high <= 600
    assert lens.range == (0.79 * lens.low, 0.79 * lens.high)


def test_picassos_format_comes_back(tmp_path):
    path = tmp_path / "lens.yaml"
    apart = save_for_picasso(LENS.with_index(0.8), path)
    assert apart < 0.02
    lens = load_calibration(path)
    assert lens.index_factor == 0.8
    assert (lens.low, lens.high) == pytest.approx((-450, 450))
    assert lens.x(Z) == pytest.approx(LENS.x(Z), abs=0.02)
    assert lens.y(Z) == pytest.approx(LENS.y(Z), abs=0.02)


def test_newer_files_of_picasso_are_in_nm(tmp_path):
    path = tmp_path / "lens.yaml"
    save_for_picasso(LENS, path)
    text = path.read_text()
    in_nm = "\n".join(
        f"- {float(line[2:]) * 130!r}" if line.startswith("- ") else line
        for line in text.splitlines()
    )
    path.write_text(in_nm + "\npicasso_format: '1.0'\n")
    with pytest.raises(ValueError, match=r"widths are in nm: give pixel_size=…"):
        load_calibration(path)
    for lens in (load_calibration(path, pixel_size=130), _with_key(path, "pixelsize: 130")):
        assert lens.x(Z) == pytest.approx(LENS.x(Z), abs=0.02)
        assert lens.pixel_size == 130


def _with_key(path, line):
    path.write_text(f"{path.read_text()}\n{line}\n")
    return load_calibration(path)


def test_files_of_thunderstorm_are_read(tmp_path):
    path = tmp_path / "storm.yaml"
    text = (
        "!!cz.cuni.lf1.lge.ThunderSTORM.calibration.{kind}\nname: {name}\nangle: 0.2\n"
        "a1: {a}\na2: {a}\nb1: {b}\nb2: {b}\nc1: 250.0\nc2: -250.0\nd1: {d}\nd2: {d}\n"
        "w01: 2.6\nw02: 2.6\n"
    )
    path.write_text(text.format(kind="DaostormCalibration", name="Huang '08", a=0, b=0, d=400))
    lens = load_calibration(path)
    assert lens.x(Z) == pytest.approx(widths(Z, 250))
    assert lens.angle == pytest.approx(math.degrees(0.2))
    assert lens.profile.name == "gaussian_rotated"
    assert (lens.low, lens.high) == pytest.approx((-500, 500))
    path.write_text(
        text.format(kind="PolynomialCalibration", name="ThunderSTORM", a=4e-6, b=1.3, d=0)
    )
    lens = load_calibration(path)
    assert lens.y(Z) == pytest.approx(1.3 + 4e-6 * (Z + 250) ** 2)


def test_parameters_of_daostorm_are_read(tmp_path):
    path = tmp_path / "storm.xml"
    text = (
        "<settings><wx_wo>260.0</wx_wo><wx_c>250.0</wx_c><wx_d>400.0</wx_d><wxA>0.0</wxA>"
        "<wy_wo>260.0</wy_wo><wy_c>-250.0</wy_c><wy_d>400.0</wy_d><wyC>{c}</wyC>"
        "<min_z>-0.4</min_z><max_z>0.4</max_z><pixel_size>100.0</pixel_size></settings>"
    )
    path.write_text(text.format(c=0))
    lens = load_calibration(path)
    assert lens.x(Z) == pytest.approx(widths(Z, 250))
    assert (lens.low, lens.high) == (-400, 400)
    path.write_text(text.format(c=0.01))
    u = (Z + 250) / 400
    expected = 1.3 * np.sqrt(1 + u**2 + 0.01 * u**5)
    assert load_calibration(path).y(Z) == pytest.approx(expected, rel=1e-5)
    path.write_text('<!DOCTYPE a [<!ENTITY b "c">]>' + text.format(c=0))
    with pytest.raises(ValueError, match="declares types"):
        load_calibration(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1", "no calibration of Picasso, which has “X Coefficients”, nor"),
        ("- 1", "it has no values by name"),
        ("X Coefficients: [1, 2]\nY Coefficients: [1, 2]", "7 coefficients each; got 2"),
        ("X Coefficients: {", "damaged, or something else"),
        ("X Coefficients: [1,2,3,4,5,6,7]\nY Coefficients: [1,2,3,4,5,6,7]", "Number of frames"),
    ],
)
def test_wrong_files_are_named(text, words, tmp_path):
    path = tmp_path / "lens.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"“lens.yaml” cannot be opened: .*{words}"):
        load_calibration(path)


def test_what_picasso_cannot_have_is_named(tmp_path):
    turned = AstigmatismCalibration(LENS.x, LENS.y, -400.0, 400.0, angle=10.0)
    with pytest.raises(ValueError, match="no turned lens, and this one is by 10"):
        save_for_picasso(turned, tmp_path / "a.yaml")
    above = AstigmatismCalibration(LENS.x, LENS.y, 10.0, 400.0)
    with pytest.raises(ValueError, match="Picasso's z is around 0"):
        save_for_picasso(above, tmp_path / "a.yaml")
