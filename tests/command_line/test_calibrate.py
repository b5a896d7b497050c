"""A calibration is made on the command line, and fits take it."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile
from click.testing import CliRunner

from napari_spotfit import load_calibration, load_fits, simulate_beads, simulate_movie
from napari_spotfit.command_line.main import main

pytest.importorskip("h5py")
OPTICS = {"zernike": {"astigmatism": 0.1}}
CAMERA = ["--gain", "1", "--offset", "100"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lens")
    stack, _ = simulate_beads(range(-500, 501, 25), (128, 128), count=9, seed=0, **OPTICS)
    tifffile.imwrite(folder / "beads.tif", stack)
    movie, _ = simulate_movie(
        5, (64, 64), spots_per_frame=3, photons=4000, z=(-250, 250), optics=OPTICS, seed=1
    )
    tifffile.imwrite(folder / "movie.tif", movie, photometric="minisblack")
    return folder


def run(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_a_calibration_is_made_and_used(folder):
    lens = folder / "lens.h5"
    made = run("calibrate", folder / "beads.tif", "--dz", 25, "-o", lens, *CAMERA,
               "--pixel-size", 100, "--index-factor", 0.8)  # fmt: skip
    assert made.exit_code == 0, made.output
    assert "9 beads" in made.output
    found = load_calibration(lens)
    assert (found.index_factor, found.pixel_size) == (0.8, 100)
    fitted = run("localize", folder / "movie.tif", "-o", folder / "a.spots.csv", "--model", lens,
                 *CAMERA)  # fmt: skip
    assert fitted.exit_code == 0, fitted.output
    fits = load_fits(folder / "a.spots.csv")
    assert fits.settings.model == found
    assert fits.units["z"] == "nm"
    assert np.isfinite(fits.z[fits.good]).all()


def test_a_psf_is_measured_and_used(folder):
    psf = folder / "psf.h5"
    made = run("calibrate", folder / "beads.tif", "--dz", 25, "-o", psf, "--measured-psf", *CAMERA)
    assert made.exit_code == 0, made.output
    assert "measured PSF" in made.output
    assert "beads scatter by" in made.output
    fitted = run("localize", folder / "movie.tif", "-o", folder / "b.spots.csv", "--model", psf,
                 *CAMERA)  # fmt: skip
    assert fitted.exit_code == 0, fitted.output
    fits = load_fits(folder / "b.spots.csv")
    assert fits.settings.model == load_calibration(psf)
    assert fits.units["z"] == "nm"
    assert np.isfinite(fits.z[fits.good]).all()


def test_picassos_file_is_written(folder):
    pytest.importorskip("yaml")
    made = run("calibrate", folder / "beads.tif", "--dz", 25, "-o", folder / "lens.yaml", *CAMERA)
    assert made.exit_code == 0, made.output
    assert load_calibration(folder / "lens.yaml").high > 200


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["localize", "movie.tif", "-o", "b.spots.csv", "--model", "gausian"], "not one of gauss"),
        (["localize", "movie.tif", "-o", "b.spots.csv", "--model", "no.h5"], "No such file"),
        (["calibrate", "movie.tif", "--dz", "25", "-o", "c.h5"], "7 planes at least; got 5"),
        (["calibrate", "beads.tif", "--dz", "0", "-o", "c.h5"], "0.0 is not in the range"),
        (["calibrate", "beads.tif", "--dz", "25", "-o", "c.txt"], "must end in .h5"),
    ],
)
def test_wrong_arguments_are_named(folder, arguments, words, monkeypatch):
    monkeypatch.chdir(folder)
    result = run(*arguments)
    assert result.exit_code != 0
    assert words in " ".join(result.output.split())
