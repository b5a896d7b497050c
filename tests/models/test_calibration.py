"""Calibrations are compared by their content, and come back from settings and files."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import napari_spotfit
from napari_spotfit import (
    AstigmatismCalibration,
    Settings,
    fit_spots,
    load_calibration,
    load_fits,
    load_settings,
    save_settings,
    simulate_spots,
)
from napari_spotfit.files.settings_file import settings_as_python
from napari_spotfit.models.astigmatism import Bead, Quality
from napari_spotfit.models.calibration import Calibration, Curve, read_only
from napari_spotfit.models.profiles import GAUSSIAN

X, Y = (Curve("huang", (1.3, focus, 400.0, 0.0, 0.0)) for focus in (250.0, -250.0))
LENS = AstigmatismCalibration(
    X, Y, -400.0, 400.0,
    wobble_x=Curve("spline", (0.0, 0.1, 0.3), (-400.0, 0.0, 400.0)),
    roi_size=(13, 13),
    quality=Quality((0.0,), (1.0,), (2.0,), (3.0,)),
    beads=(Bead(1.0, 2.0, 3.0, 4.0, 5.0, True, "used"),),
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Lattice(Calibration):
    """A kind with an array, as a measured PSF has."""

    kind: ClassVar[str] = "lattice of a test"
    values: Any
    step: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", read_only(self.values))

    @property
    def profile(self):
        return GAUSSIAN

    @property
    def words(self):
        return "a lattice"


LATTICE = Lattice(np.arange(24, dtype=np.float32).reshape(2, 3, 4), 0.1 + 0.2)


@pytest.mark.parametrize("model", [LENS, LATTICE], ids=["lens", "lattice"])
def test_settings_with_a_calibration_come_back_exactly(model, tmp_path):
    settings = Settings(model=model, gain=2.0)
    restored = [
        Settings(**json.loads(json.dumps(settings.to_dict()))),
        pickle.loads(pickle.dumps(settings)),
        eval(settings_as_python(settings), {"napari_spotfit": napari_spotfit}),
    ]
    save_settings(settings, tmp_path / "a.toml")
    restored.append(load_settings(tmp_path / "a.toml"))
    for same in restored:
        assert same == settings
        assert hash(same) == hash(settings)
        assert same.model.digest == model.digest
        assert same.profile is settings.profile


@pytest.mark.parametrize("model", [LENS, LATTICE], ids=["lens", "lattice"])
def test_a_file_has_all_of_a_calibration(model, tmp_path):
    pytest.importorskip("h5py")
    model.save(tmp_path / "a.h5")
    same = load_calibration(tmp_path / "a.h5")
    assert type(same) is type(model)
    assert same == model
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]


def test_calibrations_are_equal_by_content():
    assert replace(LENS) == LENS
    assert replace(LENS, low=-399.0) != LENS
    assert hash(replace(LENS, low=-399.0)) != hash(LENS)
    assert LENS != "gaussian_elliptical"
    whole = [Curve("huang", (1.3, int(one.numbers[1]), 400, 0, 0)) for one in (X, Y)]
    same = AstigmatismCalibration(*whole, -400, 400, pixel_size=100)
    assert same == AstigmatismCalibration(X, Y, -400.0, 400.0, pixel_size=100.0)
    assert replace(LATTICE, values=LATTICE.values + 1) != LATTICE
    with pytest.raises(ValueError, match="read-only"):
        LATTICE.values[0] = 1


def test_damaged_calibrations_are_named(tmp_path):
    plain = LATTICE.to_dict()
    with pytest.raises(ValueError, match=r"must be 'astigmatism', .*got 'fisheye'"):
        Calibration.from_dict({**plain, "calibration": "fisheye"})
    with pytest.raises(ValueError, match="the calibration is damaged"):
        Calibration.from_dict({**plain, "values": {**plain["values"], "shape": [2, 3, 5]}})
    with pytest.raises(ValueError, match="the calibration is damaged"):
        Calibration.from_dict({**plain, "values": {**plain["values"], "shape": [1 << 40, 3, 5]}})
    with pytest.raises(ValueError, match="the calibration is damaged"):
        Calibration.from_dict({**plain, "colour": "red"})
    with pytest.raises(ValueError, match=r"must end in \.h5 or \.hdf5; got “a.txt”"):
        LENS.save(tmp_path / "a.txt")
    (tmp_path / "a.h5").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"“a\.h5” cannot be opened: it is no HDF5 file"):
        load_calibration(tmp_path / "a.h5")
    with pytest.raises(ValueError, match=r"ends in one of \.h5, \.hdf5, \.yaml"):
        load_calibration(tmp_path / "a.txt")
    with pytest.raises(FileNotFoundError):
        load_calibration(tmp_path / "b.h5")


def test_newer_files_are_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    LENS.save(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file.attrs["format_version"] = 99
    with pytest.raises(ValueError, match="newer format 99"):
        load_calibration(tmp_path / "a.h5")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": Curve("huang", (1.3,))}, "the curve x must be 'huang' with 5 numbers"),
        ({"x": Curve("line", (1.3,))}, "the curve x must be"),
        ({"wobble_y": Curve("spline", (1.0, 2.0), (1.0, 1.0))}, "the curve wobble_y must be"),
        ({"y": X}, "the widths do not determine z"),
        ({"x": Curve("polynomial", (0.001, 0.0)), "low": -1.0}, "must be above 0 px"),
        ({"low": 400.0}, "low must be below high; got 400 and 400 nm"),
        ({"index_factor": 0}, "index_factor must be a finite number above 0"),
        ({"pixel_size": -1}, "pixel_size must be a finite number above 0"),
    ],
)
def test_wrong_numbers_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(LENS, **changes)


def test_settings_of_the_beads_fits_are_kept():
    settings = Settings(model=LENS)
    assert (settings.estimator, settings.roi_size) == ("mle", (13, 13))
    assert settings.sigma == pytest.approx(1.55, abs=0.1)
    assert settings.changed(roi_size=13, sigma=None, sigma_min=None).model is LENS
    for wrong in (
        {"estimator": "lse"}, {"roi_size": 11}, {"pixel": "integrated"},
        {"fixed": {"sigma_x": 1.0}}, {"bounds": {"sigma_y": (1.0, None)}}, {"sigma_max": 2.0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"as in the fits of the beads|cannot be fixed"):
            settings.changed(**wrong)


def test_other_pixels_are_refused():
    lens = replace(LENS, pixel_size=100.0)
    assert Settings(model=lens, voxel_size=(50, 100, 100)).model is lens
    with pytest.raises(ValueError, match="pixels of 100 nm, the image has 130 × 130 nm"):
        Settings(model=lens, voxel_size=(50, 130, 130))
    spots, _ = simulate_spots(3, 11, seed=1)
    with pytest.raises(ValueError, match=r"roi_size must be \(13, 13\).*got \(11, 11\)"):
        fit_spots(spots, model=LENS, gain=1.0)


def test_files_of_fits_keep_their_calibration(tmp_path):
    spots, _ = simulate_spots(20, 13, photons=2000, sigma=1.3, sigma_y=2.0, seed=1)
    fits = fit_spots(spots, model=LENS, gain=1.0)
    for name in ("a.spots.csv", "a.spots.parquet"):
        fits.save(tmp_path / name)
        same = load_fits(tmp_path / name)
        assert same.settings == fits.settings
        assert same.settings.model == LENS
        assert same.units == fits.units
