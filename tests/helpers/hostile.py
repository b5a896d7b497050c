"""Files that try to run programs, to read other files, to hang, or to exhaust the memory."""

from __future__ import annotations

import json
import os
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


def secret(folder):
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
    change, message = given
    return _archive(folder, change), message


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
    other, path = secret(folder) / "a.h5", folder / "a_locs.hdf5"
    message = "lies in another file"
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
            message = "promises .* in a file of"
            file.create_dataset("locs", (10**11,), ROWS.dtype, chunks=(1 << 16,))
        elif kind == "unwritten":
            message = "is not complete"
            file.create_dataset("locs", (1000,), ROWS.dtype)
        elif kind == "half":
            message = "is not complete"
            rows = file.create_dataset("locs", (1000,), ROWS.dtype, chunks=(100,))
            rows[:500] = ROWS[0]
        elif kind == "packed":
            message = "promises .* in a file of"
            rows = file.create_dataset(
                "locs", (1 << 27,), "f8,f8", chunks=(1 << 22,), compression="gzip"
            )
            rows[:1] = 0
        else:
            message = "promises .* in a file of"
            rows = file.create_dataset(
                "locs", (3,), ROWS.dtype, chunks=(1 << 27,), maxshape=(None,), compression="gzip"
            )
    return path, message


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
            file[f"saveloc/loc/{name}"] = h5py.ExternalLink(str(secret(folder) / "a.h5"), "numbers")
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
