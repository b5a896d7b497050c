"""Hostile images: frames, TIFF, OME, Zarr, Nikon's and Micro-Manager's."""

from __future__ import annotations

import base64
import json
import pickle
import struct
import zlib

import numpy as np
import tifffile
import zarr
from hostile import HOSTILE, MOVIE, Payload, hostile, hostile_kinds, secret
from image_kinds import ndtiffs
from nd2_writer import write_nd2

# NumPy's and plain frames


@hostile_kinds(
    frames=((10**11, 8, 8), "promises 100000000000 frames"),
    pixels=((1, 10**6, 10**6), "was cut off"),
    below=((-1, 8, 8), "no frames of rows"),
)
def npy(folder, given):
    with (folder / "a.npy").open("wb") as file:
        about = {"descr": "<u2", "fortran_order": False, "shape": given[0]}
        np.lib.format.write_array_header_1_0(file, about)
        file.write(bytes(1000))
    return folder / "a.npy", given[1]


@hostile
def npy_pickled(folder):
    np.save(folder / "a.npy", np.array([[Payload(folder)]], object), allow_pickle=True)
    return folder / "a.npy", "Python objects"


@hostile
def npy_deep(folder):
    text = ("{'descr': " + "(" * 9000 + ")" * 9000 + "}").encode()
    (folder / "a.npy").write_bytes(b"\x93NUMPY\x02\0" + struct.pack("<I", len(text)) + text)
    return folder / "a.npy", "damaged"


@hostile_kinds(
    frames="frame dimensions = 8 x 8\nnumber of frames = " + "9" * 9000,
    pixels="frame dimensions = 900000000 x 900000000\nnumber of frames = 3",
)
def dax(folder, text):
    (folder / "a.dax").write_bytes(bytes(1000))
    (folder / "a.inf").write_text(text)
    return folder / "a.dax", "damaged|was cut off"


# TIFF


def _tags(folder, tags, note=b"", pixels=b""):
    """Write a TIFF of one page with tags of one number each, and a description."""
    begin = 8 + 2 + 12 * (len(tags) + 2) + 4
    every = [(270, 2, len(note), begin), (273, 4, 1, begin + len(note)), *tags]
    content = b"II*\0" + struct.pack("<IH", 8, len(every))
    for tag in sorted(every):
        content += struct.pack("<HHII", *tag)
    (folder / "a.tif").write_bytes(content + struct.pack("<I", 0) + note + pixels)
    return folder / "a.tif"


@hostile_kinds(rows=(1 << 31, 20), both=(1 << 31, 1 << 31))
def tiff(folder, size):
    tags = [
        (256, 4, 1, size[1]), (257, 4, 1, size[0]), (258, 3, 1, 16), (259, 3, 1, 8),
        (277, 3, 1, 1), (278, 4, 1, size[0]), (279, 4, 1, 100),
    ]  # fmt: skip
    return _tags(folder, tags, pixels=zlib.compress(bytes(1000))), "promises|damaged"


@hostile
def tiff_tile(folder):
    tags = [
        (256, 4, 1, 16), (257, 4, 1, 16), (258, 3, 1, 16), (259, 3, 1, 8), (277, 3, 1, 1),
        (322, 4, 1, 1 << 20), (323, 4, 1, 1 << 20), (324, 4, 1, 300), (325, 4, 1, 100),
    ]  # fmt: skip
    return _tags(folder, tags, pixels=bytes(500)), "promises|damaged"


@hostile
def tiff_circle(folder):
    path = folder / "a.tif"
    tifffile.imwrite(path, MOVIE[0])
    content = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<I", content, 4)
    (count,) = struct.unpack_from("<H", content, first)
    struct.pack_into("<I", content, first + 2 + 12 * count, first)
    path.write_bytes(content)
    return path, None


@hostile_kinds(
    imagej=("ImageJ=1.54f\nimages={0}\nframes={0}\n", None),
    planes=("ImageJ=1.54f\nimages={0}\nchannels={0}\nslices={0}\n", None),
    shaped=('{{"shape": [{0}, 24, 20]}}', "promises"),
)
def tiff_of_many_frames(folder, given):
    path = folder / "a.tif"
    tifffile.imwrite(path, MOVIE[0], description=given[0].format(10**10), metadata=None)
    return path, given[1]


_OME = (
    '<?xml version="1.0" encoding="UTF-8"?>{before}<OME UUID="urn:uuid:1">{notes}<Image ID="I:0">'
    '<Pixels ID="P:0" DimensionOrder="XYZCT" Type="uint16" SizeX="{x}" SizeY="24" SizeZ="1" '
    'SizeC="1" SizeT="{t}"><Channel ID="C:0" SamplesPerPixel="1"/>{planes}</Pixels></Image></OME>'
)


def _ome(folder, planes="<TiffData/>", t=6, x=20, before="", notes="", more=None):
    path = folder / "a.ome.tif"
    text = _OME.format(planes=planes, t=t, x=x, before=before, notes=notes).encode()
    with tifffile.TiffWriter(path) as file:
        for number, frame in enumerate(MOVIE):
            note, extra = (None, ()) if number else (text, more or ())
            file.write(frame, metadata=None, description=note, extratags=extra, contiguous=False)
    return path


def _elsewhere(name, quote='"'):
    return (
        f"<TiffData FirstT='0' IFD='0' PlaneCount='6'><UUID FileName={quote}{name}{quote}>"
        "urn:uuid:2</UUID></TiffData>"
    )


@hostile_kinds(
    parent=("../outside/a.ome.tif", '"'),
    single=("../outside/a.ome.tif", "'"),
    entity=("&#46;&#46;&#47;outside&#47;a.ome.tif", '"'),
    absolute=("{outside}/a.ome.tif", '"'),
)
def ome_outside(folder, given):
    name = given[0].format(outside=secret(folder))
    return _ome(folder, _elsewhere(name, given[1])), None


@hostile
def ome_outside_as_micromanager(folder):
    secret(folder)
    about = json.dumps({"Summary": {}, "IndexMap": {}, "MajorVersion": 0}).encode()
    more = [(51123, 2, len(about) + 1, about, True)]
    return _ome(folder, _elsewhere("../outside/a.ome.tif"), more=more), None


@hostile_kinds(
    frames={"t": 10**10},
    columns={"x": 10**15},
    planes={"planes": f'<TiffData IFD="0" PlaneCount="{10**10}"/>'},
    places={
        "notes": '<StructuredAnnotations><XMLAnnotation ID="A:0" Namespace="x/modulo"><Value>'
        '<Modulo><ModuloAlongT Type="phase" Start="0" End="10000000000"/></Modulo></Value>'
        "</XMLAnnotation></StructuredAnnotations>"
    },
)
def ome_promises(folder, given):
    return _ome(folder, **given), "its OME metadata promises"


@hostile
def ome_laughs(folder):
    entities = '<!ENTITY a0 "lol">'
    for number in range(1, 20):
        entities += f'<!ENTITY a{number} "{f"&a{number - 1};" * 10}">'
    return _ome(folder, before=f"<!DOCTYPE OME [{entities}]>", notes="<N>&a19;</N>"), None


@hostile_kinds(
    spaces="<UUID FileName='a'>" + " " * 300_000 + "x",
    open="&lt;UUID " * 60_000,
    channels="<Channel " * 60_000,
)
def ome_slow(folder, notes):
    return _ome(folder, notes=notes), None


# Zarr


def _zarr(folder, version, **rest):
    path = folder / "a.zarr"
    zarr.create_array(
        path, shape=MOVIE.shape, chunks=(1, 24, 20), dtype=MOVIE.dtype, zarr_format=version, **rest
    )[:] = MOVIE
    return path


def _changed(path, name, change):
    about = json.loads((path / name).read_text())
    change(about)
    (path / name).write_text(json.dumps(about))
    return path


def _pickle_chunks(folder, path):
    for file in path.rglob("*"):
        if file.is_file() and file.name[:1] not in ".z":
            file.write_bytes(pickle.dumps(Payload(folder)))


_PICKLE = {"id": "pickle", "protocol": 5}
_NEW_PICKLE = {"name": "numcodecs.pickle", "configuration": {}}


@hostile_kinds(
    compressor=(2, lambda a: a.update(compressor=_PICKLE)),
    filter=(2, lambda a: a.update(filters=[_PICKLE])),
    objects=(2, lambda a: a.update(dtype="|O", filters=[_PICKLE])),
    new=(3, lambda a: a.update(codecs=[_NEW_PICKLE])),
    shard=(3, lambda a: a["codecs"].insert(0, {"name": "sharding_indexed", "configuration": {
        "chunk_shape": [1, 24, 20], "codecs": [_NEW_PICKLE], "index_codecs": [],
    }})),
)  # fmt: skip
def zarr_pickle(folder, given):
    path = _zarr(folder, given[0])
    _changed(path, "zarr.json" if given[0] == 3 else ".zarray", given[1])
    _pickle_chunks(folder, path)
    return path, "codec|instead of numbers"


@hostile
def zarr_pickled_fill_value(folder):
    fill = base64.b64encode(pickle.dumps(Payload(folder))).decode()
    about = {"dtype": "|O", "filters": [_PICKLE], "fill_value": fill}
    return _changed(_zarr(folder, 2), ".zarray", lambda a: a.update(about)), "instead of numbers"


def _group(folder, place, version=3):
    path = folder / "a.zarr"
    image = {"axes": [{"name": one} for one in "tyx"], "datasets": [{"path": place}]}
    about = {"multiscales": [image]}
    return zarr.create_group(
        path, zarr_format=version, attributes=about if version == 2 else {"ome": about}
    ), path


@hostile_kinds(new=3, old=2)
def zarr_pickle_in_groups(folder, version):
    group, path = _group(folder, "a/b/0", version)
    group.create_array("a/b/0", data=MOVIE, chunks=(1, 24, 20))
    name, about = ("zarr.json", {"codecs": [_NEW_PICKLE]})
    if version == 2:
        name, about = ".zarray", {"compressor": _PICKLE}
    _changed(path / "a/b/0", name, lambda a: a.update(about))
    _pickle_chunks(folder, path / "a/b/0")
    return path, "codec"


@hostile
def zarr_pickle_in_what_is_said_of_all(folder):
    group, path = _group(folder, "0")
    group.create_array("0", data=MOVIE, chunks=(1, 24, 20))
    zarr.consolidate_metadata(path, zarr_format=3)

    def change(about):
        about["consolidated_metadata"]["metadata"]["0"]["codecs"] = [_NEW_PICKLE]

    return _changed(path, "zarr.json", change), None


@hostile_kinds(parent="../outside/a.zarr", absolute="{outside}/a.zarr")
def zarr_outside(folder, name):
    _, path = _group(folder, name.format(outside=secret(folder)))
    return path, "outside of it"


@hostile
def zarr_link(folder):
    _, path = _group(folder, "0")
    (path / "0").symlink_to(secret(folder) / "a.zarr")
    return path, "leads out of it"


@hostile_kinds(frame=[3, 10**6, 10**6], frames=[10**12, 24, 20], chunk=[3, 10**9, 10**9])
def zarr_size(folder, shape):
    def change(about):
        about["shape"] = shape
        about["chunk_grid"]["configuration"]["chunk_shape"][1:] = shape[1:]

    return _changed(_zarr(folder, 3), "zarr.json", change), "promises"


@hostile
def zarr_chunk_of_many_bytes(folder):
    path = _zarr(folder, 3)
    for file in (path / "c").rglob("*"):
        if file.is_file():  # Zstandard's beginning, and the number of bytes to come
            file.write_bytes(bytes.fromhex("28b52ffde0") + struct.pack("<Q", 1 << 61) + b"\1\0\0")
    return path, "frame 0 is damaged"


# Microscopes


def _ndtiff(folder, change):
    path = folder / "m"
    ndtiffs(path, MOVIE)
    index = path / "NDTiff.index"
    index.write_bytes(change(index.read_bytes()))
    return path


@hostile_kinds(parent="../outside/a.tif", absolute="{outside}/a.tif")
def ndtiff_outside(folder, name):
    def change(index):
        old, new = b"NDTiffStack.tif", name.format(outside=secret(folder)).encode()
        sizes = struct.pack("<I", len(old)) + old, struct.pack("<I", len(new)) + new
        return index.replace(*sizes)

    return _ndtiff(folder, change), "is no name of a file in this folder"


@hostile
def ndtiff_outside_of_one_file(folder):
    path, _ = HOSTILE["ndtiff_outside_parent"](folder)
    return path / "NDTiffStack.tif", "is no name of a file in this folder"


@hostile
def ndtiff_frame(folder):
    size = struct.pack("<II", 20, 24)
    return _ndtiff(folder, lambda i: i.replace(size, struct.pack("<II", *[2**31 - 1] * 2))), "ends"


@hostile
def ndtiff_axes(folder):
    def change(index):
        (length,) = struct.unpack_from("<I", index)
        rest, entries = index[4 + length :][: len(index) // len(MOVIE) - 4 - length], []
        for number in range(60):
            axes = json.dumps({f"a{number}": 1, "time": number}).encode()
            other = json.dumps({f"a{number}": 2, "time": number}).encode()
            entries += [struct.pack("<I", len(one)) + one + rest for one in (axes, other)]
        return b"".join(entries)

    return _ndtiff(folder, change), "frames, more than the"


@hostile_kinds(width=b"uiWidth", height=b"uiHeight")
def nd2(folder, name):
    path = folder / "a.nd2"
    write_nd2(path, MOVIE)
    content = path.read_bytes()
    key = name.decode().encode("utf-16-le") + b"\0\0"
    at = content.index(key) + len(key)
    path.write_bytes(content[:at] + struct.pack("<I", 2**31 - 1) + content[at + 4 :])
    return path, "damaged|promises"
