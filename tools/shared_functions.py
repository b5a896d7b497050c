"""Find functions that the linker would share between instruction sets.

An inline function outside its instruction set's namespace has the same name in every object, and
the linker keeps one: maybe that of AVX-512, which crashes on a processor without it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from pathlib import Path

_SYMBOLS, _WEAK, _FUNCTION = 2, 2, 2


def shared_functions(compiled: Collection[Path], namespaces: Collection[str]) -> set[str]:
    """Return inline functions by linker name that are outside the instruction sets' namespaces.

    Parameters
    ----------
    compiled : collection of Path
        Object files; other formats than ELF (64 bits, little-endian) are ignored.
    namespaces : collection of str
        Namespaces of the instruction sets, and of code that is compiled once.
    """
    own = [f"7spotfit{len(name)}{name}" for name in namespaces]
    names = {name for path in compiled for name in _weak_functions(path.read_bytes())}
    return {name for name in names if not any(one in name for one in own)}


def _weak_functions(content: bytes) -> Iterator[str]:
    if content[:6] != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    # Of each section: name, type, flags, address, offset, size, link, info, alignment, entry.
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, table + i * size) for i in range(count)]
    for section in sections:
        if section[1] != _SYMBOLS:
            continue
        names = sections[section[6]][4]
        for place in range(section[4], section[4] + section[5], section[9]):
            name, info, _, defined = struct.unpack_from("<IBBH", content, place)
            if info == (_WEAK << 4 | _FUNCTION) and defined:
                begin = names + name
                yield content[begin : content.index(b"\0", begin)].decode()
