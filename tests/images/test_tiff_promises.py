"""TIFF files with metadata of other frames or files than exist."""

import struct

import numpy as np
import pytest
import tifffile
from ome_files import write_ome_files

from napari_spotfit import localize_files, open_image, simulate_movie
from napari_spotfit.images.files.image_file import UnreadableImageError

MOVIE, _ = simulate_movie(20, shape=(48, 56), spots_per_frame=5, seed=1)
COUNT, ROWS, COLUMNS = MOVIE.shape


def ome(sizes, planes="<TiffData/>", attributes=""):
    text = "".join(f' Size{axis}="{sizes.get(axis, 1)}"' for axis in "ZCT")
    return (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"'
        f'{attributes}><Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" '
        f'Type="uint16" SizeX="{COLUMNS}" SizeY="{ROWS}"{text}>'
        f'<Channel ID="Channel:0:0" SamplesPerPixel="1"/>{planes}</Pixels></Image></OME>'
    )


def imagej(**counts):
    lines = [f"{name}={count}" for name, count in counts.items()]
    return "\n".join(["ImageJ=1.54f", *lines, "hyperstack=true\n"])


def pages(path, frames, text, **rest):
    with tifffile.TiffWriter(path) as file:
        for place, frame in enumerate(frames):
            description = None if place else text.encode()
            file.write(frame, metadata=None, description=description, contiguous=False, **rest)


def one_page(path, text, share=1.0):
    """Write a stack as ImageJ does above 4 GB: one page before all planes, or a share of them."""
    note, begin = text.encode() + b"\0", 8 + 2 + 12 * 10 + 4
    tags = [
        (254, 4, 1, 0), (256, 4, 1, COLUMNS), (257, 4, 1, ROWS), (258, 3, 1, 16), (262, 3, 1, 1),
        (270, 2, len(note), begin), (273, 4, 1, begin + len(note)), (277, 3, 1, 1),
        (278, 4, 1, ROWS), (279, 4, 1, MOVIE[0].nbytes),
    ]  # fmt: skip
    content = b"MM\0*" + struct.pack(">IH", 8, len(tags))
    for tag, kind, count, value in tags:
        stored = struct.pack(">HH", value, 0) if kind == 3 else struct.pack(">I", value)
        content += struct.pack(">HHI", tag, kind, count) + stored
    content += struct.pack(">I", 0) + note + MOVIE.astype(">u2").tobytes()
    path.write_bytes(content[: int(len(content) * share)])


def of_files(names, each=COUNT, uuids=None):
    uuids = uuids or [f"urn:uuid:{number:032d}" for number in range(len(names))]
    return "".join(
        f'<TiffData IFD="{t % each}" FirstT="{t}" PlaneCount="1">'
        f'<UUID FileName="{names[t // each]}">{uuids[t // each]}</UUID></TiffData>'
        for t in range(each * len(names))
    )


@pytest.mark.parametrize(
    ("text", "share", "shape"),
    [
        (imagej(images=20, frames=20), 0.99, (19,)),
        (imagej(images=20, slices=20), 0.3, (5,)),
        (imagej(images=20, channels=2, frames=10), 0.99, (9, 2)),
    ],
)
def test_imagejs_stack_of_one_page_that_was_cut_off(text, share, shape, tmp_path):
    one_page(tmp_path / "cut.tif", text, share)
    with pytest.warns(UserWarning, match=f"cut off.* 20 frames.* first {np.prod(shape)} are read"):
        image = open_image(tmp_path / "cut.tif")
    assert image.shape == (*shape, ROWS, COLUMNS)
    assert np.array_equal(image, MOVIE[: np.prod(shape)].reshape(image.shape))


@pytest.mark.parametrize("text", [imagej(images=20, frames=20), "ImageJ=1.26t\nimages=20\n"])
def test_imagejs_stack_of_one_page_that_is_whole(text, tmp_path):
    one_page(tmp_path / "whole.tif", text)
    assert np.array_equal(open_image(tmp_path / "whole.tif"), MOVIE)


def test_a_cut_within_the_first_frame(tmp_path):
    one_page(tmp_path / "cut.tif", imagej(images=20, frames=20), 0.04)
    with pytest.raises(UnreadableImageError, match="cut off"):
        open_image(tmp_path / "cut.tif")


@pytest.mark.parametrize("share", [0.99, 0.5])
def test_ome_metadata_behind_a_cut(share, tmp_path):
    path = tmp_path / "cut.ome.tif"
    tifffile.imwrite(path, MOVIE, truncate=True, metadata={"axes": "TYX"})
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(UnreadableImageError, match=r"cut off|damaged"):
        open_image(path)[...]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (ome({"T": 1}), (20,)),
        (ome({"T": 5}), (20,)),
        (ome({"Z": 5}), (4, 5)),
        (ome({"T": 5, "C": 2}), (10, 2)),
        (imagej(images=5, frames=5), (20,)),
        (imagej(images=3, slices=3), (20,)),
    ],
)
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_pages_that_metadata_do_not_name(text, shape, compression, tmp_path):
    pages(tmp_path / "few.tif", MOVIE, text, compression=compression)
    with pytest.warns(UserWarning, match="20 frames, and its metadata name .*: all are read"):
        image = open_image(tmp_path / "few.tif")
    assert np.array_equal(image, MOVIE.reshape(*shape, ROWS, COLUMNS))


def test_pages_that_fill_no_set_of_channels(tmp_path):
    pages(tmp_path / "few.tif", MOVIE, imagej(images=3, channels=3))
    with pytest.raises(UnreadableImageError, match=r"20 pages.*unknown which page belongs"):
        open_image(tmp_path / "few.tif")


def test_a_thumbnail_is_no_frame(tmp_path):
    with tifffile.TiffWriter(tmp_path / "thumb.ome.tif") as file:
        for place, frame in enumerate([*MOVIE, MOVIE[0, ::2, ::2]]):
            text = None if place else ome({"T": 20}, '<TiffData PlaneCount="20"/>').encode()
            file.write(frame, metadata=None, description=text, contiguous=False)
    assert np.array_equal(open_image(tmp_path / "thumb.ome.tif"), MOVIE)


@pytest.mark.parametrize("name", ["original.ome.tif", "/data/original.ome.tif", "..\\x.ome.tif"])
def test_a_renamed_file_beside_one_of_its_former_name(name, tmp_path):
    text = ome({"T": 10}, of_files([name], 10))
    pages(tmp_path / "original.ome.tif", MOVIE[:10], ome({"T": 10}))
    pages(tmp_path / "day2.ome.tif", MOVIE[10:], text)
    assert np.array_equal(open_image(tmp_path / "day2.ome.tif"), MOVIE[10:])
    found = localize_files(tmp_path, tmp_path / "out", sigma=1.3)
    assert [(one.state, one.frames) for one in found] == [("done", 10)] * 2


def test_a_renamed_part_of_a_data_set(tmp_path):
    names = ["a.ome.tif", "b.ome.tif"]
    for name, part in zip(names, (MOVIE[:10], MOVIE[10:]), strict=True):
        pages(tmp_path / name, part, ome({"T": 20}, of_files(names, 10)))
    assert np.array_equal(open_image(tmp_path / names[0]), MOVIE)
    (tmp_path / names[1]).rename(tmp_path / "c.ome.tif")
    with pytest.warns(UserWarning, match="20 frames; its own 10 are read"):
        assert np.array_equal(open_image(tmp_path / "c.ome.tif"), MOVIE[10:])


def test_a_file_of_another_data_set_has_a_named_file_s_name(tmp_path):
    for folder, part in (("one", MOVIE), ("two", MOVIE[::-1])):
        (tmp_path / folder).mkdir()
        write_ome_files(tmp_path / folder, part, 2)
    (tmp_path / "two" / "f1.ome.tif").replace(tmp_path / "one" / "f1.ome.tif")
    with pytest.warns(UserWarning, match="20 frames; its own 10 are read"):
        assert np.array_equal(open_image(tmp_path / "one" / "f0.ome.tif"), MOVIE[:10])


def test_whatever_is_damaged_is_a_data_set_of_its_own(tmp_path, monkeypatch):
    """A folder of images is listed, whatever one of them raises."""
    from napari_spotfit.images.files import tiff
    from napari_spotfit.images.files.opening import data_set

    def fail(text):
        raise RecursionError("too deep")

    tifffile.imwrite(tmp_path / "a.tif", MOVIE)
    monkeypatch.setattr(tiff, "ome_of", fail)
    assert data_set(tmp_path / "a.tif") == [tmp_path / "a.tif"]
