"""Masks of a batch: each belongs to the right image, or causes an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
from click.testing import CliRunner

from napari_spotfit import load_fits, localize_files, simulate_movie
from napari_spotfit.batch.masks import mask_of, without_masks
from napari_spotfit.command_line.main import main

pytest.importorskip("pyarrow")
SHAPE = 48, 56


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(2, shape=SHAPE, spots_per_frame=5, photons=3000, seed=1)[0]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touched(*names):
    for name in names:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    return [Path(name) for name in names]


def test_a_mask_is_of_the_longest_name_it_begins_with(folder, movie):
    Path("mk").mkdir()
    for name in ("day1.tif", "day1_2.tif"):
        tifffile.imwrite(name, movie, metadata={"axes": "TYX"})
    tifffile.imwrite("mk/day1_2.tif", np.ones(SHAPE, np.uint8))
    outcomes = localize_files("day*.tif", "out", labels="mk", sigma=1.3)
    assert [one.state for one in outcomes] == ["failed", "done"]
    assert "“day1.tif” has no mask: there is no file “mk/day1.tif”" in outcomes[0].error
    # The other image is not in the batch, but in the same folder.
    (alone,) = localize_files("day1.tif", "alone", labels="mk", sigma=1.3)
    assert "has no mask" in alone.error


@pytest.mark.parametrize("joint", "_-")
def test_masks_of_names_that_begin_alike_are_kept_apart(folder, joint):
    images = touched("im/day1.tif", f"im/day1{joint}2.tif", "im/day10.tif")
    masks = touched("mk/day1_cells.tif", f"mk/day1{joint}2_cells.tif", "mk/day10-c.tif")
    assert [mask_of(image, "mk", images) for image in images] == masks
    assert [mask_of(image, "mk") for image in images] == masks
    assert without_masks([*images, *masks], "mk") == images
    # Images of several folders, too.
    (other,) = touched(f"other/day1{joint}2.tif")
    assert mask_of(Path("x/day1.tif"), "mk", [other]) == masks[0]


def test_masks_beside_their_images(folder):
    images = touched("day1.tif", "night.tif")
    masks = touched("day1_cells.tif", "night_cells.tif")
    assert without_masks([*images, *masks], ".") == images
    assert [mask_of(image, ".", images) for image in images] == masks
    touched("day1_2.tif")  # an image or a mask: ambiguous
    with pytest.raises(ValueError, match=r"“day1.tif” has several masks: .*choose one by a p"):
        mask_of(images[0], ".", images)


@pytest.mark.parametrize("labels", [".tif", "a.tif", "*.tif", "link.tif"])
def test_an_image_is_never_its_own_mask(folder, labels):
    (image,) = touched("a.tif")
    Path("link.tif").symlink_to("a.tif")
    with pytest.raises(ValueError, match=r"“a.tif” would be its own mask; name the masks by"):
        mask_of(image, labels)
    assert without_masks([image], labels) == [image]


def test_masks_of_the_images_names_may_be_among_the_inputs(folder, movie):
    for place, pixels in (("im", movie), ("masks", np.ones(SHAPE, np.uint8))):
        Path(place).mkdir()
        for name in "ab":
            tifffile.imwrite(f"{place}/{name}.tif", pixels)
    arguments = ["localize", "im", "masks", "-o", "out", "--sigma", "1.3", "-q"]
    found = CliRunner().invoke(main, [*arguments, "--labels", "masks/*.tif"])
    assert found.exit_code == 0, found.output
    assert (load_fits("out/b.tif.spots.parquet").label == 1).all()
    # Without them, they are images as well, whose tables have their folders' names.
    arguments[4] = "all"
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0, found.output
    names = [f"{place}_{name}.tif.spots.parquet" for place in ("im", "masks") for name in "ab"]
    assert sorted(path.name for path in Path("all").glob("*.spots.parquet")) == names
    assert len(load_fits("all/im_b.tif.spots.parquet")) > len(load_fits(f"all/{names[3]}"))


def test_cells_of_an_earlier_run_do_not_stay_beside_other_spots(folder, movie):
    np.save("a.npy", movie)
    np.save("m.npy", np.ones(SHAPE, np.uint8))
    localize_files("a.npy", "out", labels="m.npy", sigma=1.3)
    assert Path("out/a.npy.cells.csv").exists()
    (outcome,) = localize_files("a.npy", "out", sigma=1.3)
    assert (outcome.state, outcome.cells) == ("done", "")
    assert not Path("out/a.npy.cells.csv").exists()


def test_a_label_that_is_too_large_is_named_with_its_mask(folder, movie):
    np.save("a.npy", movie)
    mask = np.zeros(SHAPE, np.uint64)
    mask[0, 0] = 2**64 - 1
    np.save("m.npy", mask)
    (outcome,) = localize_files("a.npy", "out", labels="m.npy", sigma=1.3)
    assert "the mask “m.npy” cannot be used: labels must be at most" in outcome.error
