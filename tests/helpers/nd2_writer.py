"""Write minimal ND2 files like Nikon's programs (version 3)."""

from __future__ import annotations

import struct

import numpy as np

_SIGNATURE = b"ND2 FILE SIGNATURE CHUNK NAME01!"
_MAP = b"ND2 FILEMAP SIGNATURE NAME 0001!"
_END = b"ND2 CHUNK MAP SIGNATURE 0000001!"
_MAGIC = 0x0ABECEDA


def _named(kind, name):
    return bytes([kind, len(name) + 1]) + (name + "\0").encode("utf-16-le")


def _number(name, value):
    return _named(3, name) + struct.pack("<I", value)


def _real(name, value):
    return _named(6, name) + struct.pack("<d", value)


def _level(name, *items):
    inside = b"".join(items)
    head = _named(11, name)
    length = len(head) + 12 + len(inside)
    return head + struct.pack("<IQ", len(items), length) + inside + bytes(8 * len(items))


def write_nd2(path, movie, channels=1):
    """Write frames (n, Y, X); `channels` successive ones form one interleaved image."""
    frames, rows, columns = movie.shape
    pictures = frames // channels
    attributes = {
        "uiWidth": columns,
        "uiHeight": rows,
        "uiWidthBytes": columns * movie.itemsize * channels,
        "uiComp": channels,
        "uiBpcInMemory": 8 * movie.itemsize,
        "uiBpcSignificant": 8 * movie.itemsize,
        "uiSequenceCount": pictures,
        "eCompression": 2,
    }
    times = [_number("uiCount", pictures), _real("dStart", 0.0), _real("dPeriod", 10.0)]
    times += [_real("dDuration", 0.0), _level("sPeriodDiff")]
    chunks = {
        b"ImageAttributesLV!": _level(
            "SLxImageAttributes", *(_number(*pair) for pair in attributes.items())
        ),
        b"ImageMetadataSeqLV|0!": _level(
            "SLxPictureMetadata", _level("sPicturePlanes", _number("uiCount", channels))
        ),
        b"ImageMetadataLV!": _level(
            "SLxExperiment", _number("eType", 1), _level("uLoopPars", *times)
        ),
    }
    for number in range(pictures):
        own = movie[number * channels : (number + 1) * channels]
        pixels = np.ascontiguousarray(np.moveaxis(own, 0, -1)).tobytes()
        chunks[f"ImageDataSeq|{number}!".encode()] = bytes(8) + pixels
    places = {}
    with path.open("wb") as file:
        head = struct.pack("<IIQ", _MAGIC, 32, 64) + _SIGNATURE + b"Ver3.0".ljust(64, b"\0")
        file.write(head.ljust(4096, b"\0"))
        for name, data in chunks.items():
            places[name] = file.tell()
            # What follows a chunk's head begins on a whole number of blocks.
            file.write(struct.pack("<IIQ", _MAGIC, 4072, len(data)) + name.ljust(4072, b"\0"))
            file.write(data + bytes(-(len(data) + 4088) % 4096))
        where = file.tell()
        table = b"".join(
            name + struct.pack("<QQ", place, len(chunks[name])) for name, place in places.items()
        )
        table += _END + struct.pack("<Q", where)
        file.write(struct.pack("<IIQ", _MAGIC, 32, len(table)) + _MAP + table)
