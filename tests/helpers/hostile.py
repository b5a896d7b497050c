"""Files that try to run programs, to read other files, to hang, or to exhaust the memory."""

from __future__ import annotations

import base64
import json
import os
import pickle
import struct
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import tifffile
import zarr
from exchange_cases import localised
from image_kinds import ndtiffs
from nd2_writer import write_nd2
from pyarrow import parquet
from scipy.io import savemat

#: Content of files that must not be read.
SECRET = 54321
#: A file that appears when a pickle was run.
RAN = "ran"
ROWS = np.zeros(3, [("frame", "u4"), ("x", "f4"), ("y", "f4")])
MOVIE = np.arange(6 * 24 * 20, dtype=np.uint16).reshape(6, 24, 20)
#: Writers by name: write into a folder, and return the file and the error, None if it is readable.
HOSTILE = {}


def hostile(write):
    """Register a writer."""
    HOSTILE[write.__name__] = write
    return write


def hostile_kinds(**kinds):
    """Register a writer once for each named argument."""

    def add(write):
        for name, given in kinds.items():
            HOSTILE[f"{write.__name__}_{name}"] = lambda folder, given=given: write(folder, given)
        return write

    return add


def _secret(folder):
    """Write images and tables outside the folder, to which files in it refer."""
    outside = folder.parent / "outside"
    if outside.is_dir():
        return outside
    outside.mkdir()
    tifffile.imwrite(outside / "a.tif", np.full_like(MOVIE, SECRET))
    tifffile.imwrite(outside / "a.ome.tif", np.full_like(MOVIE, SECRET), metadata={"axes": "TYX"})
    with h5py.File(outside / "a.h5", "w") as file:
        file["locs"] = np.full(3, SECRET, ROWS.dtype)
        file["numbers"] = np.full((1, 3), SECRET)
    zarr.create_array(outside / "a.zarr", data=np.full_like(MOVIE, SECRET))
    return outside


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, folder):
        self._path = str(folder / RAN)

    def __reduce__(self):
        return Path.touch, (Path(self._path),)


# Archives


def _archive(folder, change, table=None):
    path = folder / "a.smlm"
    localised(5).save(path, pixel_size=100)
    with zipfile.ZipFile(path) as packed:
        manifest = json.loads(packed.read("manifest.json"))
        table = packed.read("table.bin") if table is None else table
    text = change(manifest) or json.dumps(manifest)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("manifest.json", text)
        packed.writestr("table.bin", table)
    return path


@hostile_kinds(
    twice=(lambda m: m["files"].extend(m["files"] * 199), "names a table twice"),
    rows=(lambda m: m["files"][0].update(rows=10**12), "promises .* in a file of"),
    deep=(lambda m: "[" * 200_000, "recursion"),
    long=(lambda m: json.dumps("x" * (1 << 25)), "bytes instead of"),
    elsewhere=(lambda m: m["files"][0].update(name="../../../etc/passwd"), "damaged"),
    digits=(lambda m: '{"files": [' + "9" * 9000 + "]}", "damaged"),
    shape=(lambda m: m["formats"]["smlm-table(binary)"]["shape"].__setitem__(0, 2**62), "damaged"),
)
def archive(folder, given):
    change, told = given
    return _archive(folder, change), told


@hostile
def archive_bomb(folder):
    def change(manifest):
        kind = manifest["formats"]["smlm-table(binary)"]
        size = sum(np.dtype(one).itemsize for one in kind["dtype"])
        manifest["files"][0]["rows"] = (1 << 27) // size

    return _archive(folder, change, bytes(1 << 27)), "promises|instead of"


# YAML beside a file


def _picasso(folder, text):
    path = folder / "a_locs.hdf5"
    with h5py.File(path, "w") as file:
        file["locs"] = ROWS
    path.with_suffix(".yaml").write_text(text)
    return path


def _laughs(merged=False):
    lines = ["a0: &a0 {x: lol}" if merged else "a0: &a0 [lol, lol]"]
    for n in range(1, 32):
        inside = ", ".join([f"*a{n - 1}"] * 9)
        lines.append(f"a{n}: &a{n} {{<<: [{inside}]}}" if merged else f"a{n}: &a{n} [{inside}]")
    return "\n".join(lines) + "\nFrames: *a31\nHeight: 24\nWidth: 20\nData Type: *a31\n"


@hostile_kinds(
    aliases=(_laughs(), "aliases that make it too long"),
    merged=(_laughs(merged=True), "aliases that make it too long"),
    circle=("a: &a [*a]\n", "aliases that make it too long"),
    long=("a: [" + "1, " * 400_000 + "]\n", "are accepted: shorten it"),
    deep=("[" * 100_000, "damaged"),
    runs=("a: !!python/object/apply:os.mkdir [ran]\n", None),
)
def yaml(folder, given):
    return _picasso(folder, given[0]), given[1]


@hostile_kinds(objects="object", within="u2,O", texts="U3", times="M8[ns]", nothing="V8")
def raw_without_numbers(folder, kind):
    path = folder / "a.raw"
    path.write_bytes(bytes(6 * 24 * 20 * 20))
    path.with_suffix(".yaml").write_text(
        f"Frames: 6\nHeight: 24\nWidth: 20\nByte Order: <\nData Type: '{kind}'\n"
    )
    return path, "instead of numbers"


@hostile
def yaml_of_a_movie(folder):
    path = folder / "a.raw"
    path.write_bytes(MOVIE.tobytes())
    path.with_suffix(".yaml").write_text(_laughs())
    return path, "aliases that make it too long"


# HDF5


@hostile_kinds(
    link="link", soft="soft", virtual="virtual", external="external", pipe="pipe",
    nothing="nothing", unwritten="unwritten", half="half", packed="packed", chunk="chunk",
)  # fmt: skip
def hdf5(folder, kind):
    other, path = _secret(folder) / "a.h5", folder / "a_locs.hdf5"
    told = "lies in another file"
    with h5py.File(path, "w") as file:
        if kind == "link":
            file["locs"] = h5py.ExternalLink(str(other), "locs")
        elif kind == "soft":
            file["other"] = h5py.ExternalLink(str(other), "/")
            file["locs"] = h5py.SoftLink("/other/locs")
        elif kind == "pipe":  # opening it blocks forever
            os.mkfifo(folder / "pipe")
            file["locs"] = h5py.ExternalLink(str(folder / "pipe"), "locs")
        elif kind == "virtual":
            layout = h5py.VirtualLayout((3,), ROWS.dtype)
            layout[:] = h5py.VirtualSource(str(other), "locs", (3,), ROWS.dtype)
            file.create_virtual_dataset("locs", layout)
        elif kind == "external":
            external = [(str(other), 0, h5py.h5f.UNLIMITED)]
            file.create_dataset("locs", (3,), ROWS.dtype, external=external)
        elif kind == "nothing":
            told = "promises .* in a file of"
            file.create_dataset("locs", (10**11,), ROWS.dtype, chunks=(1 << 16,))
        elif kind == "unwritten":
            told = "is not complete"
            file.create_dataset("locs", (1000,), ROWS.dtype)
        elif kind == "half":
            told = "is not complete"
            rows = file.create_dataset("locs", (1000,), ROWS.dtype, chunks=(100,))
            rows[:500] = ROWS[0]
        elif kind == "packed":
            told = "promises .* in a file of"
            rows = file.create_dataset(
                "locs", (1 << 27,), "f8,f8", chunks=(1 << 22,), compression="gzip"
            )
            rows[:1] = 0
        else:
            told = "promises .* in a file of"
            rows = file.create_dataset(
                "locs", (3,), ROWS.dtype, chunks=(1 << 27,), maxshape=(None,), compression="gzip"
            )
    return path, told


@hostile
def hdf5_of_200_names(folder):
    path = folder / "a.decode.h5"
    with h5py.File(path, "w") as file:
        file["data/frame_ix"] = np.zeros(3)
        file.create_group("meta")
        file.create_dataset(
            "data/xyz", data=np.zeros((10**6, 3), "f4"), compression="gzip", chunks=(10**6, 3)
        )
        file["data/phot"] = file["data/frame_ix"]
        for number in range(200):
            file[f"data/a{number}"] = file["data/xyz"]
    return path, "promises .* in a file of"


@hostile
def matlab_link(folder):
    path = folder / "a.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["saveloc/loc/frame"] = np.ones((1, 3))
        for name in ("xnm", "ynm"):
            file[f"saveloc/loc/{name}"] = h5py.ExternalLink(
                str(_secret(folder) / "a.h5"), "numbers"
            )
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: PCWIN64, HDF5 schema 1.00 .".ljust(124))
    return path, "lies in another file"


# MATLAB's files before


def _matlab(folder, content):
    path = folder / "a.mat"
    savemat(path, {})
    path.write_bytes(path.read_bytes()[:128] + content)
    return path


def _matrix(name, kind, shape, content, flags=0):
    def element(kind, data):
        return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)

    head = element(6, struct.pack("<II", kind | flags << 8, 0))
    head += element(5, np.array(shape, "i4").tobytes()) + element(1, name)
    return element(14, head + content)


@hostile
def matlab_bomb(folder):
    numbers = struct.pack("<II", 9, 1 << 27) + bytes(1 << 27)
    content = zlib.compress(_matrix(b"loc", 6, (1 << 24, 1), numbers), 1)
    return _matlab(folder, struct.pack("<II", 15, len(content)) + content), "promises .* in a file"


@hostile
def matlab_sizes(folder):
    names = struct.pack("<HHi", 5, 4, 8) + struct.pack("<II", 1, 8) + b"xnm".ljust(8, b"\0")
    inner = _matrix(b"", 6, (1 << 30, 1 << 20), struct.pack("<II", 9, 8) + bytes(8))
    return _matlab(folder, _matrix(b"loc", 2, (1, 1), names + inner)), "it has 1 numbers for"


@hostile
def matlab_cells(folder):
    return _matlab(folder, _matrix(b"saveloc", 1, (1 << 30, 1 << 30), b"")), "it has no “saveloc"


@hostile
def matlab_deep(folder):
    inner = b""
    for _ in range(3000):
        names = struct.pack("<HHi", 5, 4, 8) + struct.pack("<II", 1, 8) + b"loc".ljust(8, b"\0")
        inner = _matrix(b"loc", 2, (1, 1), names + inner)
    return _matlab(folder, inner), "no column|has no “"


# Our own files


@hostile
def parquet_of_many_rows(folder):
    path, rows = folder / "a.spots.parquet", 1 << 27
    localised(5).save(path)
    schema = parquet.read_schema(path)
    same = pa.table([pa.array(np.zeros(1 << 20, "f4"))], names=["a"])
    about = {name: text for name, text in schema.metadata.items() if b"ARROW" not in name}
    with parquet.ParquetWriter(path, same.schema.with_metadata(about), compression="zstd") as file:
        for _ in range(rows >> 20):
            file.write_table(same.replace_schema_metadata(about), row_group_size=1 << 20)
    return path, "promises .* in a file of"


@hostile
def parquet_of_a_long_text(folder):
    path, rows = folder / "a.spots.parquet", 4000
    localised(rows, file=np.full(rows, "x", object)).save(path)
    table = parquet.read_table(path)
    texts = pa.DictionaryArray.from_arrays(np.zeros(rows, "i4"), ["x" * (1 << 20)])
    table = table.set_column(table.schema.get_field_index("file"), "file", texts)
    about = {name: text for name, text in table.schema.metadata.items() if b"ARROW" not in name}
    with parquet.ParquetWriter(path, table.schema, store_schema=False) as file:
        file.write_table(table)
        file.add_key_value_metadata(about)
    return path, None


@hostile_kinds(
    deep=("[" * 100_000, "damaged"),
    digits=("9" * 9000, "damaged"),
    formula=('{"model": {"expression": "__import__(\'os\').mkdir(\'ran\')"}}', "damaged"),
    power=('{"model": {"expression": "9**9**9**9**9*exp(-x0)"}}', "damaged"),
)
def settings_in_csv(folder, given):
    path = folder / "a.spots.csv"
    localised(5).save(path)
    lines = path.read_text().splitlines(keepends=True)
    changed = [
        f"# settings: {given[0]}\n" if one.startswith("# settings:") else one for one in lines
    ]
    path.write_text("".join(changed))
    return path, given[1]


@hostile_kinds(
    deep="a = " + "[" * 100_000, power="settings = {max_iterations = " + "9" * 9000 + "}"
)
def toml(folder, text):
    (folder / "a.toml").write_text(text)
    return folder / "a.toml", "damaged|digits"


# Texts


@hostile_kinds(
    titles=(
        "x,y," + ",".join(map(str, range(200_000))) + "\n1,2\n",
        "line 1|damaged|values instead",
    ),
    quotes=("x,y\n1,2\n" + '"' * 3_000_001 + "\n", "damaged"),
    wide=("x,y\n" + "1," * 3_000_000 + "1\n", "values instead of"),
    zeros=("x,y\n" + "\0" * 3_000_000, "damaged|values"),
    long=("x,y\n1," + "9" * 3_000_000 + "\n", "is no number|9…"),
)
def text(folder, given):
    (folder / "a.plain.csv").write_text(given[0])
    return folder / "a.plain.csv", given[1]


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
    name = given[0].format(outside=_secret(folder))
    return _ome(folder, _elsewhere(name, given[1])), None


@hostile
def ome_outside_as_micromanager(folder):
    _secret(folder)
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
    _, path = _group(folder, name.format(outside=_secret(folder)))
    return path, "outside of it"


@hostile
def zarr_link(folder):
    _, path = _group(folder, "0")
    (path / "0").symlink_to(_secret(folder) / "a.zarr")
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
        old, new = b"NDTiffStack.tif", name.format(outside=_secret(folder)).encode()
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
