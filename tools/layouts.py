"""Write the Python module of the library's structures, enumerations, constants and functions.

usage: python tools/layouts.py [--if-changed]

They are read from the headers in kernels/layouts/ and from the functions with SPOTFIT_EXPORT in
kernels/cpu/. Declarations whose layout could differ in Python or between platforms are errors that
name file and line. The compiler checks the sizes and offsets found here in each build
(`assertions`).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NoReturn

from library_sources import KERNELS, LAYOUTS, digest, is_current

#: Types with the same size everywhere: their names in ctypes and letters in `struct`.
SCALARS = {
    "unsigned char": ("c_ubyte", "B"),
    "short": ("c_short", "h"),
    "unsigned short": ("c_ushort", "H"),
    "int": ("c_int", "i"),
    "unsigned": ("c_uint", "I"),
    "long long": ("c_longlong", "q"),
    "unsigned long long": ("c_ulonglong", "Q"),
    "float": ("c_float", "f"),
    "double": ("c_double", "d"),
}
POINTER = ("c_void_p", "Q")
BYTES = {"B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "f": 4, "d": 8}

#: The module's file.
NAME = Path(LAYOUTS).name

_WORDS = {*" ".join(SCALARS).split(), "signed", "void", "bool"}
_TOKEN = re.compile(
    r"(?P<nothing>\s+|//[^\n]*|/\*.*?\*/)"
    r'|#[^\n]*|"[^"\n]*"|0x[0-9a-fA-F]+|\d+|[A-Za-z_]\w*|<<|::|.',
    re.DOTALL,
)


class LayoutError(Exception):
    """A declaration has no layout in Python; the message says which and where."""


@dataclass(frozen=True)
class Member:
    """A member of a structure: a scalar, a pointer or a structure, or an array of them."""

    name: str
    #: Type in ctypes, or name of a structure.
    type: str
    #: Letter in `struct`; empty for a structure.
    letter: str
    lengths: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of elements of an array."""
        count = 1
        for length in self.lengths:
            count *= length
        return count


@dataclass(frozen=True)
class Structure:
    """A structure, with the members that it adds to its base, if any."""

    name: str
    header: str
    base: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Enumeration:
    """An enumeration with its members."""

    name: str
    header: str
    members: dict[str, int]


@dataclass(frozen=True)
class Function:
    """A function of the library, with types of ctypes."""

    name: str
    result: str
    arguments: tuple[str, ...]


@dataclass
class Interface:
    """All declarations."""

    headers: list[str] = field(default_factory=list)
    structures: dict[str, Structure] = field(default_factory=dict)
    enumerations: dict[str, Enumeration] = field(default_factory=dict)
    numbers: dict[str, int | tuple[int, ...]] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)

    def read_header(self, folder: Path, name: str) -> None:
        """Read a header of a folder, after those that it includes."""
        if name not in self.headers:
            reader = _Reader(folder / name, self)
            reader.read_header(lambda included: self.read_header(folder, included))
            self.headers.append(name)


def read(kernels: Path = Path(KERNELS)) -> Interface:
    """Read the declarations in a folder of kernels."""
    interface = Interface()
    for path in sorted((kernels / "layouts").glob("*.h")):
        interface.read_header(path.parent, path.name)
    for path in sorted((kernels / "cpu").glob("*.cpp")):
        _Reader(path, interface).read_functions()
    return interface


class _Reader:
    """Reads a file's declarations into an interface."""

    def __init__(self, path: Path, interface: Interface) -> None:
        self._path, self._interface = path, interface
        self._tokens: list[tuple[str, int]] = []
        self._place, line = 0, 1
        for match in _TOKEN.finditer(path.read_text(encoding="utf-8")):
            if not match["nothing"]:
                self._tokens.append((match[0], line))
            line += match[0].count("\n")

    def read_header(self, include: Callable[[str], None]) -> None:
        """Read a whole header; `include` is called with each header that it includes."""
        declarations = {
            "struct": self._structure,
            "enum": self._enumeration,
            "constexpr": self._numbers,
        }
        depth = 0
        while self._left():
            token = self._next()
            if found := re.fullmatch(r'#include "([\w.]+)"', token):
                include(found[1])
            elif token == "namespace":
                depth += self._skip_to("{")
            elif token == "}" and depth:
                depth -= 1
            elif token in declarations:
                declarations[token]()
            elif token != "#pragma once":
                self._fail(f"{token!r} is no structure, enumeration or whole number")

    def read_functions(self) -> None:
        """Read the functions that the library exports."""
        while self._left():
            if self._next() == "SPOTFIT_EXPORT":
                result = self._value(result=True)
                name, arguments = self._name(), []
                self._expect("(")
                while not self._skip(")"):
                    arguments.append(self._value())
                    self._name()
                    self._skip(",")
                function = Function(name, result, tuple(arguments))
                self._interface.functions.append(function)

    def _value(self, *, result: bool = False) -> str:
        """Parse the type of an argument or result."""
        words = self._type()
        if self._pointers():
            return "c_char_p" if result and words == "char" else POINTER[0]
        return "None" if result and words == "void" else self._scalar(words)[0]

    def _structure(self) -> None:
        name, base, members = self._name(), "", list[Member]()
        if self._skip(";"):  # only pointers to it are needed
            return
        if self._skip(":"):
            base = self._name()
            if base not in self._interface.structures:
                self._fail(f"the base {base} is no structure of a layout")
        self._expect("{")
        while not self._skip("}"):
            members += self._members()
        self._expect(";")
        self._check_new(name)
        self._interface.structures[name] = Structure(name, self._path.name, base, tuple(members))

    def _members(self) -> Iterator[Member]:
        """Parse the members of one declaration."""
        words = self._type()
        while True:
            is_pointer = self._pointers()
            if self._skip("("):  # to a function
                self._expect("*")
                name, is_pointer = self._name(), True
                self._expect(")")
                self._skip_to(")")
            else:
                name = self._name()
            if is_pointer:
                kind, letter = POINTER
            elif words in self._interface.structures:
                kind, letter = words, ""
            else:
                kind, letter = self._scalar(words)
            lengths = []
            while self._skip("["):
                lengths.append(self._number("]"))
                self._expect("]")
            yield Member(name, kind, letter, tuple(lengths))
            if self._skip(";"):
                return
            self._expect(",")

    def _enumeration(self) -> None:
        name, members, value = self._name(), dict[str, int](), 0
        if self._skip(":"):
            self._scalar(self._type())
        self._expect("{")
        while not self._skip("}"):
            member = self._name()
            if self._skip("="):
                value = self._number(",}", members)
            members[member] = value
            value += 1
            if not self._skip(",") and self._peek() != "}":
                self._fail(f"{self._peek()!r} follows the member {member}")
        self._expect(";")
        self._check_new(name)
        self._interface.enumerations[name] = Enumeration(name, self._path.name, members)

    def _numbers(self) -> None:
        """Read constants, each one number or several."""
        words = self._type()
        if self._scalar(words)[1] in "fd":
            self._fail(f"a constant is a whole number, no {words}")
        while True:
            name, value = self._name(), None
            if self._skip("["):
                for mark in "]={":
                    self._expect(mark)
                several = []
                while not self._skip("}"):
                    several.append(self._number(",}"))
                    self._skip(",")
                value = tuple(several)
            else:
                self._expect("=")
            self._check_new(name)
            self._interface.numbers[name] = self._number(",;") if value is None else value
            if self._skip(";"):
                return
            self._expect(",")

    def _number(self, ends: str, own: dict[str, int] | None = None) -> int:
        """Evaluate an expression of integers, constants, and operators."""
        words: list[str] = []
        while self._left() and self._peek() not in ends:
            word = self._next()
            if re.fullmatch(r"[A-Za-z_]\w*", word):
                words.append(str(self._value_of(word, own or {})))
            elif re.fullmatch(r"0x[0-9a-fA-F]+|\d+|[-+*()]|<<", word):
                words.append(word)
            else:
                self._fail(f"{word!r} in a number")
        try:
            return int(eval(" ".join(words), {"__builtins__": {}}))
        except (SyntaxError, TypeError, ValueError):
            self._fail(f"{' '.join(words)!r} is no number")

    def _value_of(self, name: str, own: dict[str, int]) -> int:
        """Return the value of a constant, or of a member that only one enumeration has."""
        if name in own:
            return own[name]
        found = [self._interface.numbers[name]] if name in self._interface.numbers else []
        for enumeration in self._interface.enumerations.values():
            found += [enumeration.members[name]] if name in enumeration.members else []
        if len(found) == 1 and isinstance(found[0], int):
            return found[0]
        self._fail(f"{name} is no number" if not found else f"{name} has several meanings")

    def _type(self) -> str:
        """Parse a type, without const and namespaces."""
        words: list[str] = []
        while self._left():
            word = self._peek()
            if words and word not in _WORDS and word != "const":
                break
            self._next()
            if self._skip("::"):
                continue
            if word != "const":
                words.append(word)
                if word not in _WORDS:
                    break
        return " ".join(words)

    def _pointers(self) -> bool:
        """Skip asterisks of pointers; return whether there were any."""
        found = False
        while self._peek() in ("*", "const"):
            found |= self._next() == "*"
        return found

    def _scalar(self, words: str) -> tuple[str, str]:
        if words not in SCALARS:
            self._fail(f"{words!r} is no type with one size everywhere: {', '.join(SCALARS)}")
        return SCALARS[words]

    def _check_new(self, name: str) -> None:
        known = self._interface
        if name in {**known.structures, **known.enumerations, **known.numbers}:
            self._fail(f"{name} is declared twice")

    def _left(self) -> bool:
        return self._place < len(self._tokens)

    def _peek(self) -> str:
        if not self._left():
            self._fail("the file ends within a declaration")
        return self._tokens[self._place][0]

    def _next(self) -> str:
        token = self._peek()
        self._place += 1
        return token

    def _skip(self, token: str) -> bool:
        found = self._peek() == token
        self._place += found
        return found

    def _skip_to(self, token: str) -> int:
        """Skip all up to a token; return 1."""
        while self._next() != token:
            pass
        return 1

    def _expect(self, token: str) -> None:
        if self._next() != token:
            self._fail(f"{self._tokens[self._place - 1][0]!r} where {token!r} should be")

    def _name(self) -> str:
        name = self._next()
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in _WORDS:
            self._fail(f"{name!r} where a name should be")
        return name

    def _fail(self, what: str) -> NoReturn:
        line = self._tokens[max(self._place - 1, 0)][1] if self._tokens else 1
        raise LayoutError(f"{self._path}:{line}: {what}")


@dataclass(frozen=True)
class Placed:
    """The layout of a structure by a compiler."""

    size: int
    alignment: int
    #: Offsets of the members that the structure adds to its base.
    offsets: dict[str, int]
    #: Letters of `struct`, including padding bytes.
    letters: str


def placed(interface: Interface, name: str) -> Placed:
    """Compute the layout of a structure: each member at the next multiple of its alignment."""
    structure = interface.structures[name]
    size, alignment, offsets, letters = 0, 1, dict[str, int](), ""
    if structure.base:
        base = placed(interface, structure.base)
        size, alignment, letters = base.size, base.alignment, base.letters
    for member in structure.members:
        if member.letter:
            own = Placed(BYTES[member.letter], BYTES[member.letter], {}, member.letter)
        else:
            own = placed(interface, member.type)
        gap = -size % own.alignment
        offsets[member.name] = size + gap
        size += gap + own.size * member.count
        letters += gap * "x" + own.letters * member.count
        alignment = max(alignment, own.alignment)
    gap = -size % alignment
    return Placed(size + gap, alignment, offsets, letters + gap * "x")


def assertions(interface: Interface, folder: Path) -> str:
    """Return C++ assertions that all members have the offsets of Python."""
    lines = [f'#include "{folder.as_posix()}/{header}"' for header in interface.headers]
    lines += ["namespace spotfit::SPOTFIT_ISA {"]
    for name in interface.structures:
        layout = placed(interface, name)
        lines.append(f'static_assert(sizeof({name}) == {layout.size}, "{name}");')
        lines.append(f'static_assert(alignof({name}) == {layout.alignment}, "{name}");')
        for member, offset in layout.offsets.items():
            place = f"__builtin_offsetof({name}, {member})"
            lines.append(f'static_assert({place} == {offset}, "{name}::{member}");')
    return "\n".join([*lines, "}", ""])


def module(interface: Interface) -> str:
    """Return the Python module."""
    used = {"Structure"} | {member.type for one in interface.structures.values()
                            for member in one.members if member.letter}  # fmt: skip
    for function in interface.functions:
        used |= {function.result, *function.arguments} - {"None"}
    parts = [
        '"""Made by tools/layouts.py from kernels/, where all of this is explained and changed."""',
        "",
        "from __future__ import annotations",
        "",
        "from ctypes import (",
        *(f"    {name}," for name in sorted(used, key=lambda name: (name != "Structure", name))),
        ")",
        "from typing import Any, ClassVar",
        "",
        "#: Of all that the library is built from.",
        f'DIGEST = "{digest()}"',
        "",
    ]
    parts += [f"{name} = {value!r}" for name, value in interface.numbers.items()]
    for enumeration in interface.enumerations.values():
        parts += ["", "", f"class {enumeration.name}:", *_docstring(enumeration.header)]
        parts += [f"    {name} = {value}" for name, value in enumeration.members.items()]
        # Classes of `enum` take ten times as long to import.
        members = f"NAMES: ClassVar[tuple[str, ...]] = {tuple(enumeration.members)!r}"
        parts.append(textwrap.indent(textwrap.fill(members, 92), "    "))
    for structure in interface.structures.values():
        parts += ["", "", *_class(interface, structure)]
    parts += ["", "", "#: What each function returns and takes.",
              "FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = ("]  # fmt: skip
    for function in interface.functions:
        arguments = "".join(f"{argument}, " for argument in function.arguments)
        line = f'("{function.name}", {function.result}, ({arguments.rstrip()})),'
        parts.append(textwrap.indent(textwrap.fill(line, 92), "    "))
    return "\n".join([*parts, ")", ""])


def _docstring(header: str) -> list[str]:
    return [f'    """Explained in kernels/layouts/{header}."""', ""]


def _class(interface: Interface, structure: Structure) -> Iterator[str]:
    """Yield the lines of a structure's class."""
    yield f"class {structure.name}({structure.base or 'Structure'}):"
    yield from _docstring(structure.header)
    groups = groupby(placed(interface, structure.name).letters)
    form = "".join(f"{len([*group])}{letter}" for letter, group in groups)
    yield f'    FORMAT = "={form}"'
    yield "    _fields_: ClassVar[tuple[tuple[str, Any], ...]] = ("
    for member in structure.members:
        lengths = "".join(f" * {length}" for length in reversed(member.lengths))
        yield f'        ("{member.name}", {member.type}{lengths}),'
    yield "    )"


def write(path: Path = Path(LAYOUTS)) -> Interface:
    """Write the module of the current kernels; return their declarations."""
    interface = read()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may write at once.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(module(interface), encoding="utf-8")
    unfinished.replace(path)
    # Python would not notice a change of the same size within the same second.
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink(missing_ok=True)
    return interface


def main() -> None:
    """Write the module of a checkout."""
    parser = argparse.ArgumentParser(description="Write Python's side of the library's interface.")
    parser.add_argument("--if-changed", action="store_true", help="only if the sources did")
    options = parser.parse_args()
    if options.if_changed and is_current(LAYOUTS):
        return
    try:
        write()
    except LayoutError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
