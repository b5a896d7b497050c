"""Lengths in another unit than the one that is asked for are refused, or warned of."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from napari_spotfit import (
    Drift,
    Settings,
    SpotFits,
    StageCalibration,
    load_calibration,
    load_fits,
    localization_precision,
    merge_blinks,
    simulate_psf,
    subtract_drift,
)
from napari_spotfit.command_line.main import main
from napari_spotfit.files.exchange.image_info import size_of_layer


def molecules(error: float = 0.1, frames: int = 50, size: float = 128.0) -> SpotFits:
    random = np.random.default_rng(0)
    frame, molecule = np.repeat(np.arange(frames), 20), np.tile(np.arange(20), frames)
    places = random.uniform(0, size, (20, 2))[molecule] + random.normal(0, error, (len(frame), 2))
    errors = np.full(len(frame), error, np.float32)
    stops = np.full(len(frame), 3, np.uint8)
    columns = {"frame": frame, "y": places[:, 0], "x": places[:, 1], "stop_condition": stops}
    return SpotFits(columns | {"y_stderr": errors, "x_stderr": errors}, ["frame"])


LENGTHS: dict[str, Callable[[Any, Path], object]] = {
    "voxel_size": lambda size, _: Settings(voxel_size=(3 * size, size, size)),
    "one side of voxels": lambda size, _: Settings(voxel_size=(size, 100, 100)),
    "save": lambda size, folder: molecules().save(folder / "a.smap.csv", pixel_size=size),
    "both sides": lambda size, folder: molecules().save(
        folder / "a.smap.csv", pixel_size=(100, size)
    ),
    "load_fits": lambda size, folder: load_fits(folder / "b.smap.csv", pixel_size=size),
    "load_calibration": lambda size, folder: load_calibration(
        folder / "none.yaml", pixel_size=size
    ),
    "simulate_psf": lambda size, _: simulate_psf([0], 9, pixel_size=size),
}  # fmt: skip


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("size", [0.1, 1e-7, 1.1e5, 1e9])
def test_the_size_of_a_pixel_is_in_nm(name: str, size: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"_size must be from 1 to 100000 nm; .* 0\.1 µm is 100"):
        LENGTHS[name](size, tmp_path)


@pytest.mark.parametrize("size", [1, 6.5, 108, 9e4])
def test_plausible_sizes_are_taken(size: float) -> None:
    assert Settings(voxel_size=(size, size, size)).voxel_size == (size, size, size)


def test_the_command_line_takes_nm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "a.spots.csv"
    molecules().save(table)
    for command in (
        ["render", table, "-o", tmp_path / "a.ome.tif", "--rendered-pixel", "10"],
        ["precision", table],
        ["convert", table, tmp_path / "a.thunderstorm.csv"],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, command), "--pixel-size", "0.1"])
        assert ended.value.code
        assert "0.1 µm is 100" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.spots.csv"]


def test_layers_in_implausible_units_have_no_known_size() -> None:
    assert size_of_layer((1.0, 0.108, 0.108), ("pixel", "micrometer", "micrometer")) == (108, 108)
    assert size_of_layer((0.108, 0.108), ("nanometer", "nanometer")) is None


def test_a_stage_takes_micrometres() -> None:
    assert StageCalibration.of_pixel_size(0.1).matrix[0, 0] == pytest.approx(10)
    for size in (100, 1e-7):
        with pytest.raises(ValueError, match=r"it is in µm, 100 nm is 0\.1"):
            StageCalibration.of_pixel_size(size)


def test_widths_are_in_pixels() -> None:
    with pytest.warns(UserWarning, match="130 px is wider than spots are: divide nm"):
        localization_precision(500, sigma=130.0)
    localization_precision([500, 400], sigma=[np.nan, 1.3])
    localization_precision([500], sigma=[np.nan])


def test_standard_errors_are_in_pixels() -> None:
    nm = molecules()
    columns = {name: 100 * nm.columns[name] for name in ("y_stderr", "x_stderr")}
    nm = nm.with_columns(nm.columns | columns)
    with pytest.warns(UserWarning, match=r"half of the standard errors are above 10 px"):
        merge_blinks(nm)
    merge_blinks(nm, radius=0.5)
    merge_blinks(molecules())


def drift_of(most: float, frames: int = 50) -> Drift:
    zeros, along = np.zeros(frames), np.linspace(0, most, frames)
    return Drift(along, -along, zeros, zeros, np.ones(frames, int))


def test_a_drift_is_in_pixels() -> None:
    fits, drift = molecules(), drift_of(300.0)
    with pytest.warns(UserWarning, match="a drift is in pixels; divide nm"):
        subtract_drift(fits, drift)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        subtract_drift(fits, drift_of(40.0))
        # One bead, which has moved by all of it.
        bead = fits[::20]
        moved = bead.columns | {"y": 5 + drift.y, "x": 5 - drift.y}
        subtract_drift(bead.with_columns(moved), drift)
