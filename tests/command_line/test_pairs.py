"""The command ``pairs``: cells by channel and pairs of files, errors, registration, resuming."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import run

from napari_spotfit import ChannelRegistration, load_fits

tifffile = pytest.importorskip("tifffile")
pytest.importorskip("pyarrow")


def scene(seed):
    """Return an image of three channels; the second has half of the spots of the first."""
    random, side = np.random.default_rng(seed), 200
    y, x = np.indices((side, side))
    a = random.uniform(10, 190, (70, 2))
    b = np.concatenate([a[:35] + random.normal(0, 0.1, (35, 2)), random.uniform(10, 190, (35, 2))])
    channels = []
    for places in (a, b, random.uniform(10, 190, (20, 2))):
        image = np.full((side, side), 50.0)
        for row, column in places:
            image += 900 / (2 * np.pi * 1.69) * np.exp(-((y - row) ** 2 + (x - column) ** 2) / 3.38)
        channels.append(random.poisson(image))
    labels = 1 + (y > 99) + 2 * (x > 99)
    return np.array(channels, np.uint16), labels.astype(np.uint16)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "masks").mkdir()
    for number, name in enumerate("ab"):
        image, labels = scene(number)
        names = {"axes": "CYX", "Channel": {"Name": ["GFP", "RFP", "DAPI"]}}
        tifffile.imwrite(f"{name}.ome.tif", image, metadata=names)
        tifffile.imwrite(f"masks/{name}_cells.tif", labels)
    return tmp_path


def test_tables_of_each_file_and_of_all(folder):
    Path("bad.tif").write_bytes(b"nothing")
    result = run("pairs", ".", "-o", "out", "--channels", "0,1", "--labels", "masks", "--json",
                 "--sigma", "1.3", code=1)  # fmt: skip
    summary = json.loads(result.stdout)
    assert [file["state"] for file in summary["files"]] == ["done", "done", "failed"]
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "_batch.json",
        *(f"{name}.ome.tif.{what}" for name in "ab" for what in
          ("channel_0+channel_1.cells.csv", "channel_0+channel_1.pairs.csv", "spots.parquet")),
        "channel_0+channel_1.cells.csv",
    ]  # fmt: skip
    table = pd.read_csv("out/channel_0+channel_1.cells.csv")
    assert table["file"].tolist() == ["a.ome.tif"] * 4 + ["b.ome.tif"] * 4
    assert table["label"].tolist() == [1, 2, 3, 4] * 2
    own = pd.read_csv("out/a.ome.tif.channel_0+channel_1.cells.csv")
    pd.testing.assert_frame_equal(own, table[:4].drop(columns="file"))
    pairs = pd.read_csv("out/a.ome.tif.channel_0+channel_1.pairs.csv")
    assert len(pairs) == own["channel_0+channel_1_pairs"].sum()
    assert 30 <= len(pairs) <= 40
    assert (pairs["distance"] <= 2).all()
    np.testing.assert_allclose(
        np.hypot(pairs.y_a - pairs.y_b, pairs.x_a - pairs.x_b), pairs.distance, atol=1e-9
    )
    counts = summary["pairs"][0]["pairs"]["channel_0+channel_1"]
    assert counts["observed"] == len(pairs)
    assert counts["excess"] > 5 * counts["stderr"]
    # The third channel was not fitted.
    assert set(load_fits("out/a.ome.tif.spots.parquet").channel) == {0, 1}


def test_an_earlier_run_is_kept_and_masks_may_change(folder):
    run("pairs", "a.ome.tif", "-o", "out", "--channels", "GFP,RFP,2", "-q")
    names = {path.name for path in Path("out").iterdir()}
    assert {"a.ome.tif.GFP+RFP.pairs.csv", "a.ome.tif.GFP+channel_2.pairs.csv",
            "a.ome.tif.RFP+channel_2.pairs.csv", "GFP+RFP+channel_2.cells.csv"} < names  # fmt: skip
    table = pd.read_csv("out/GFP+RFP+channel_2.cells.csv")
    assert "label" not in table
    assert len(table) == 1
    again = run("pairs", "a.ome.tif", "-o", "out", "--channels", "GFP,RFP,2", "--labels", "masks")
    assert "kept from an earlier run" in again.stderr
    assert "pairs of GFP and RFP" in again.stderr
    table = pd.read_csv("out/GFP+RFP+channel_2.cells.csv")
    assert table["label"].tolist() == [1, 2, 3, 4]


def test_a_missing_mask_or_channel_fails_its_file_only(folder):
    Path("masks/a_cells.tif").unlink()
    result = run("pairs", ".", "-o", "out", "--channels", "0,1", "--labels", "masks", code=1)
    assert "“a.ome.tif” has no mask" in result.stderr
    assert pd.read_csv("out/channel_0+channel_1.cells.csv")["file"].unique() == ["b.ome.tif"]
    image, _ = scene(3)
    tifffile.imwrite("c.ome.tif", image[:1], metadata={"axes": "CYX"})
    result = run("pairs", ".", "-o", "out", "--channels", "0,1", code=1)
    assert "“c.ome.tif”" in result.stderr
    table = pd.read_csv("out/channel_0+channel_1.cells.csv")
    assert table["file"].tolist() == ["a.ome.tif", "b.ome.tif"]


def test_files_without_spots_have_none(folder):
    dark = np.random.default_rng(0).poisson(50, (2, 64, 64)).astype(np.uint16)
    tifffile.imwrite("dark.ome.tif", dark, metadata={"axes": "CYX"})
    run("pairs", "dark.ome.tif", "-o", "out", "--channels", "0,1", "--sigma", "1.3",
        "--false-spots", "0.001")  # fmt: skip
    table = pd.read_csv("out/channel_0+channel_1.cells.csv")
    assert table[["channel_0_count", "channel_0+channel_1_pairs"]].values.tolist() == [[0, 0]]


def test_a_registration_maps_the_second_channel(folder):
    hull = np.array([[0.0, 0.0], [0.0, 120.0], [199.0, 120.0], [199.0, 0.0]])
    moved = ChannelRegistration(
        "translation", 0.1, 9, hull, np.array([[0.0, 30.0]]), np.zeros((2, 1, 1)), np.zeros(2), 1.0
    )
    moved.save("moved.json")
    result = run("pairs", "a.ome.tif", "-o", "out", "--channels", "0,1", "--registration",
                 "moved.json", "--json")  # fmt: skip
    found = json.loads(result.stdout)["pairs"][0]
    assert found["outside"] > 10
    counts = found["pairs"]["channel_0+channel_1"]
    assert abs(counts["excess"]) < 4 * counts["stderr"] + 1


@pytest.mark.parametrize(("options", "why"), [
    (["--channels", "0"], "two different channels"),
    (["--channels", "0,0"], "two different channels"),
    (["--channels", "0,1", "--radius", "0"], "radius"),
    (["--channels", "0,1,2", "--registration", "a.json"], "must be 2 times"),
    (["--channels", "0,1", "--registration", "masks/a_cells.tif"], "is no registration"),
])  # fmt: skip
def test_wrong_options_are_named(options, why, folder):
    hull = np.array([[0.0, 0.0], [0.0, 99.0], [99.0, 0.0]])
    ChannelRegistration(
        "translation", 0.1, 9, hull, np.zeros((1, 2)), np.zeros((2, 1, 1)), np.zeros(2), 1.0
    ).save("a.json")
    result = run("pairs", "a.ome.tif", "-o", "out", *options, code=2)
    assert why in result.stderr


def test_the_output_is_a_folder(folder):
    result = run("pairs", "a.ome.tif", "-o", "all.spots.csv", "--channels", "0,1", code=1)
    assert "must be a folder" in result.stderr
