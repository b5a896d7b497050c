"""``napari-spotfit render``: the image of a table, as OME-TIFF."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile
from click.testing import CliRunner

from napari_spotfit import SpotFits, load_fits, render
from napari_spotfit.command_line.main import main


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    columns = {
        "y": rng.uniform(1, 20, 300), "x": rng.uniform(1, 30, 300),
        "y_stderr": np.full(300, 0.1, np.float32), "x_stderr": np.full(300, 0.2, np.float32),
        "frame": np.arange(300), "flags": np.zeros(300, np.uint32),
        "stop_condition": np.full(300, 2, np.uint8),
    }  # fmt: skip
    columns["flags"][::3] = 1
    path = tmp_path / "movie.spots.csv"
    SpotFits(columns, ("frame",)).save(path)
    return path


def run(*arguments):
    return CliRunner().invoke(main, ["render", *map(str, arguments)])


def test_the_image_of_good_fits_is_written_with_its_pixel_size(table, tmp_path):
    output = tmp_path / "image.ome.tif"
    result = run(table, "-o", output, "--pixel-size", 100, "--rendered-pixel", 12.5)
    assert result.exit_code == 0, result.output
    fits = load_fits(table)
    expected = render(fits[fits.good], 8)
    with tifffile.TiffFile(output) as file:
        assert file.is_ome
        np.testing.assert_array_equal(file.asarray(), expected)
        assert 'PhysicalSizeX="12.5"' in file.ome_metadata
        assert 'PhysicalSizeYUnit="nm"' in file.ome_metadata
    assert "200 localisations" in result.output
    assert f"{expected.shape[0]} × {expected.shape[1]} pixels" in result.output


def test_options(table, tmp_path):
    output = tmp_path / "image.tif"
    arguments = (table, "-o", output, "--shape", 24, 32, "--everything", "--oversampling", 4)
    for by in ("histogram", "0.3"):
        assert run(*arguments, "--by", by).exit_code == 0
        image = tifffile.imread(output)
        assert image.shape == (96, 128)
        assert image.sum() == pytest.approx(300, rel=1e-4)
    assert run(*arguments, "--colour-by", "frame").exit_code == 0
    with tifffile.TiffFile(output) as file:
        assert file.series[0].axes == "YXS"
        assert file.asarray().shape == (96, 128, 3)


def test_those_outside_of_the_image_are_counted_apart(table, tmp_path):
    fits = load_fits(table)
    inside = int((fits.good & (fits.y < 9.5) & (fits.x < 9.5)).sum())
    assert 0 < inside < 200
    result = run(table, "-o", tmp_path / "a.tif", "--shape", 10, 10)
    assert f"{inside} localisations, 100 × 100 pixels; {200 - inside} more" in result.output


def test_slices(table, tmp_path):
    fits = load_fits(table)
    z = np.linspace(0, 1000, 300)
    deep = SpotFits(fits.columns | {"z": z}, fits.index_names, units={"z": "nm"})
    path, output = tmp_path / "deep.spots.csv", tmp_path / "deep.ome.tif"
    deep.save(path)
    assert run(path, "-o", output, "--z", 100, 300, "--by", "psf").exit_code != 0  # no width
    result = run(path, "-o", output, "--z", 100, 350, "--z-step", 100, "--pixel-size", 100)
    assert result.exit_code == 0, result.output
    good = load_fits(path)
    with tifffile.TiffFile(output) as file:
        assert file.series[0].axes == "ZYX"
        np.testing.assert_array_equal(
            file.asarray(), render(good[good.good], 10, z=(100, 350, 100))
        )
        assert 'PhysicalSizeZ="100.0"' in file.ome_metadata
    assert "3 × " in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--z-step", "10"], "pass --z, too"),
        (["--z", "1", "0"], "in rising order"),
        (["--rendered-pixel", "10"], "--pixel-size"),
        (["--by", "sharp"], "by must be"),
        (["--colour-by", "z"], "no column z"),
        (["-o", "image.png"], ".tif"),
        (["--oversampling", "nan"], "finite"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(table, tmp_path, arguments, message):
    output = tmp_path / "image.tif"
    result = run(table, "-o", output, *arguments)
    assert result.exit_code
    assert message in result.output
    assert not output.exists()
