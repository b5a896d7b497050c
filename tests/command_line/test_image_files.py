"""Image files of every kind in the command: data sets, damaged files, and messages."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import of_its_own, run
from ome_files import write_ome_files
from same_fits import assert_same

from napari_spotfit import load_fits, localize, localize_files, open_image

pytest.importorskip("pyarrow")
tifffile = pytest.importorskip("tifffile")


@pytest.mark.parametrize("inputs", [["mf"], ["mf/*.tif"], ["mf/f1.ome.tif", "mf/f0.ome.tif"]])
def test_a_data_set_of_several_files_is_fitted_once(inputs, folder, movies):
    (folder / "mf").mkdir()
    write_ome_files(folder / "mf", movies[0], 2)
    result = run("localize", *inputs, "a.npy", "-o", "all.spots.parquet", "--json")
    first = inputs[0] if len(inputs) == 2 else "mf/f0.ome.tif"
    files = json.loads(result.stdout)["files"]
    assert [(file["file"], file["frames"]) for file in files] == [(first, 8), ("a.npy", 8)]
    assert result.stderr.count("is a data set of several files, and is fitted once") == 1
    fits = load_fits("all.spots.parquet")
    assert len(fits[fits.file == first]) == len(localize(movies[0]))
    assert len(fits) == 2 * len(localize(movies[0]))
    assert [one.frames for one in localize_files(inputs, "out")] == [8]
    assert [path.name for path in (folder / "out").glob("*.parquet")] == [
        first.removeprefix("mf/") + ".spots.parquet"
    ]


def test_a_part_of_a_data_set_that_changes_is_fitted_again(folder, movies):
    (folder / "mf").mkdir()
    files = write_ome_files(folder / "mf", movies[0], 2)
    assert [one.state for one in localize_files("mf", "out")] == ["done"]
    assert [one.state for one in localize_files("mf", "out")] == ["kept"]
    files[1].write_bytes(files[1].read_bytes() + b"\0")
    assert [one.state for one in localize_files("mf", "out")] == ["done"]


def test_nothing_is_said_of_a_healthy_data_set(folder, movies):
    (folder / "mf").mkdir()
    files = write_ome_files(folder / "mf", movies[0], 2)
    process = of_its_own("localize", str(files[0]), "-o", "a.spots.csv", "-q")
    assert process.communicate() == (b"", b"")
    assert_same(load_fits("a.spots.csv"), localize(movies[0]))
    assert np.array_equal(open_image(files[1]), movies[0])


def test_spots_before_a_cut_are_kept(folder, movies):
    data = (folder / "a.npy").read_bytes()
    (folder / "a.npy").write_bytes(data[:-100])
    result = run("localize", "a.npy", "b.npy", "-o", "out", "--format", ".spots.csv", code=1)
    cut = "“a.npy” cannot be read: frame 7 is damaged or missing: it was cut off: it should have 8"
    assert cut in result.stderr
    assert "; 7 frames before it were fitted" in result.stderr
    assert set(load_fits("out/a.npy.spots.csv").frame) == set(range(7))
    assert "b.npy: " in result.stderr
    result = run("localize", "a.npy", "-o", "a.spots.csv", "--frames", ":7")
    assert "cannot be read" not in result.stderr


def test_a_missing_part_of_a_data_set_is_named(folder, movies):
    (folder / "mf").mkdir()
    files = write_ome_files(folder / "mf", movies[0], 4)
    files[2].unlink()
    process = of_its_own("localize", str(files[0]), "-o", "a.spots.csv")
    _, output = process.communicate()
    assert process.returncode == 1
    assert output.decode().splitlines() == [
        "“f0.ome.tif” cannot be read: frame 4 is damaged or missing: of the other files of its "
        "data set, “f2.ome.tif” cannot be read: put complete ones into its folder; "
        "4 frames before it were fitted"
    ]


def test_images_of_one_name_have_tables_of_their_own(folder, movies):
    for number, name in enumerate(("x/a.npy", "y/a.npy", "y/deep/x/a.npy")):
        path = folder / name
        path.parent.mkdir(parents=True)
        np.save(path, movies[0][: number + 1])
    run("localize", "x", "y", "y/deep/x", "b.npy", "-o", "out", "--format", ".spots.csv")
    tables = {path.name: len(set(load_fits(path).frame)) for path in folder.glob("out/*.csv")}
    assert tables == {
        f"{folder.name}_x_a.npy.spots.csv": 1,
        "y_a.npy.spots.csv": 2,
        "deep_x_a.npy.spots.csv": 3,
        "b.npy.spots.csv": 8,
    }


def test_a_z_stack_is_fitted_as_a_volume(folder):
    rng = np.random.default_rng(1)
    z, y, x = np.ogrid[:14, :40, :44]
    light = np.exp(-0.5 * (((z - 6.3) / 1.5) ** 2 + ((y - 19.6) ** 2 + (x - 21.2) ** 2) / 1.3**2))
    stack = rng.poisson(200 * light + 10).astype(np.uint16)
    tifffile.imwrite("stack.ome.tif", stack, metadata={"axes": "ZYX"})
    given = ["--sigma", "1.3", "--sigma-z", "1.5", "--gain", "1", "--variance", "0"]
    given += ["--model", "gaussian_3d", "--voxel-size", "300x100x100", "--roi-size", "7x9x9"]
    run("localize", "stack.ome.tif", "-o", "a.spots.csv", *given)
    fits = load_fits("a.spots.csv")
    known = {"sigma": 1.3, "sigma_z": 1.5, "gain": 1.0, "variance": 0.0, "roi_size": (7, 9, 9)}
    assert_same(fits, localize(stack, model="gaussian_3d", voxel_size=(300, 100, 100), **known))
    brightest = fits[[fits.photons.argmax()]]
    assert abs(brightest.z_nm[0] - 1890) < 30
    wrong = run("localize", "stack.ome.tif", "-o", "b.spots.csv", "--voxel-size", "300", code=2)
    assert "--voxel-size must be three numbers in nm" in wrong.stderr
    wrong = run("localize", "stack.ome.tif", "-o", "b.spots.csv", "--voxel-size", "1xa", code=2)
    assert "is not ZxYxX" in wrong.stderr
