"""Python's structures agree with the C++ declarations, and with the layout by compilers."""

from __future__ import annotations

import ctypes
import re
import struct
import sys
from pathlib import Path

import pytest
from checkout import ROOT

from napari_spotfit.engine.cpu import layouts as made
from napari_spotfit.engine.cpu.library import load

if not (ROOT / "tools").is_dir():
    pytest.skip("needs the sources of the package", allow_module_level=True)
sys.path.insert(0, str(ROOT / "tools"))

import build_library
import layouts

DECLARED = layouts.read()


@pytest.mark.parametrize("name", DECLARED.structures)
def test_ctypes_lays_structures_out_as_declared(name: str) -> None:
    expected, found = layouts.placed(DECLARED, name), getattr(made, name)
    assert (ctypes.sizeof(found), ctypes.alignment(found)) == (expected.size, expected.alignment)
    assert struct.calcsize(found.FORMAT) == expected.size
    offsets = {member: getattr(found, member).offset for member in expected.offsets}
    assert offsets == expected.offsets


@pytest.mark.parametrize("target", build_library.TARGETS)
def test_every_compiler_lays_structures_out_as_declared(target: str, tmp_path: Path) -> None:
    build_library.WORK.mkdir(parents=True, exist_ok=True)
    compiler = build_library._choose_compiler(target)
    build_library._write_and_check_layouts(compiler, tmp_path)
    assert (tmp_path / layouts.NAME).read_text("utf-8") == Path(made.__file__).read_text("utf-8")


def test_no_header_of_a_system_is_included() -> None:
    """Objects for glibc are linked for musl, too; the compiler's own headers are in both."""
    texts = [path.read_text("utf-8") for path in (ROOT / "kernels").rglob("*.[ch]*")]
    names = {name for text in texts for name in re.findall(r"#\s*include\s*<(.+)>", text)}
    assert names == {"cpuid.h"}


def test_compiler_that_lays_structures_out_otherwise_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_library.WORK.mkdir(parents=True, exist_ok=True)
    compiler = build_library._choose_compiler("")
    monkeypatch.setitem(layouts.BYTES, "q", 16)
    with pytest.raises(build_library.BuildError, match="DetectionSettings::width"):
        build_library._write_and_check_layouts(compiler, tmp_path)


def test_functions_are_those_that_the_library_exports() -> None:
    functions = load().functions
    for name, _, arguments in made.FUNCTIONS:
        assert getattr(functions, name).argtypes == arguments
    assert ("spotfit_lane_width", ctypes.c_int, (ctypes.c_int,)) in made.FUNCTIONS
    taken = next(arguments for name, _, arguments in made.FUNCTIONS if name == "spotfit_feed")
    pointer = ctypes.c_void_p
    assert taken == (pointer, pointer, pointer, ctypes.c_int, pointer)


def read(folder: Path, **headers: str) -> layouts.Interface:
    (folder / "layouts").mkdir()
    for name, text in headers.items():
        (folder / "layouts" / f"{name}.h").write_text(text, "utf-8")
    return layouts.read(folder)


def test_what_is_understood(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        a="""#pragma once
#include "b.h"
namespace outer::inner {
struct Elsewhere;
/* of
   lines */
struct Derived : Base {  // with a comment
    const Base *const *pointers, *other;
    outer::Base bases[2];
    float table[COUNT][SIZES + 1];
    unsigned long long large;
    int (*function)(int, void*);
};
}
""",
        b="""#pragma once
constexpr int COUNT = 2 * (1 + 2) - 1, OTHERS[] = {1, COUNT, 1 << 4};
enum Size : unsigned char { SMALL, LARGE = 4, SIZES };
struct Base { unsigned char byte; double number; };
""",
    )
    assert found.headers == ["b.h", "a.h"]
    assert found.numbers == {"COUNT": 5, "OTHERS": (1, 5, 16)}
    assert found.enumerations["Size"].members == {"SMALL": 0, "LARGE": 4, "SIZES": 5}
    members = [(one.name, one.type, one.lengths) for one in found.structures["Derived"].members]
    assert members == [
        ("pointers", "c_void_p", ()), ("other", "c_void_p", ()), ("bases", "Base", (2,)),
        ("table", "c_float", (5, 6)), ("large", "c_ulonglong", ()), ("function", "c_void_p", ()),
    ]  # fmt: skip
    space: dict[str, type[ctypes.Structure]] = {"__name__": "made"}  # type: ignore[dict-item]
    exec(layouts.module(found), space)
    assert layouts.placed(found, "Derived").offsets["table"] == space["Derived"].table.offset
    assert ctypes.sizeof(space["Derived"]) == 16 + 16 + 32 + 120 + 8 + 8


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("    long x;", "'long' is no type with one size everywhere"),
        ("    bool x;", "'bool' is no type with one size everywhere"),
        ("    std::string x;", "'string' is no type with one size everywhere"),
        ("    Unknown x;", "'Unknown' is no type with one size everywhere"),
        ("    int x : 3;", "':' where ',' should be"),
        ("    int x = 3;", "'=' where ',' should be"),
        ("    int x[SIDE];", "SIDE is no number"),
        ("    int x[sizeof(int)];", "sizeof is no number"),
        ("    int rows() const { return 1; }", "'(' where ',' should be"),
        ("    union { int x; float y; };", "'{' where a name should be"),
        ("    int& x;", "'&' where a name should be"),
        ("    static int x;", "'int' where a name should be"),
        ("    template <class T> T x;", "'<' where a name should be"),
    ],
)
def test_member_that_is_not_understood_names_file_and_line(
    line: str, message: str, tmp_path: Path
) -> None:
    text = f"#pragma once\nstruct One {{\n    int first;\n{line}\n}};\n"
    with pytest.raises(layouts.LayoutError) as error:
        read(tmp_path, one=text)
    assert str(error.value).startswith(f"{tmp_path / 'layouts' / 'one.h'}:4: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inline int one() { return 1; }", "1: 'inline' is no structure, enumeration or whole"),
        ("template <class T> struct A {};", "1: 'template' is no structure"),
        ("constexpr float HALF = 0.5f;", "1: a constant is a whole number, no float"),
        ("enum { A, B };", "1: '{' where a name should be"),
        ("struct A { int x; };\nstruct A { int x; };", "2: A is declared twice"),
        ("struct B : A { int x; };", "1: the base A is no structure of a layout"),
        ("struct A {\n    int x;\n", "2: the file ends within a declaration"),
        ("enum A { ONE };\nenum B { ONE };\nconstexpr int C = ONE;", "3: ONE has several meanings"),
    ],
)
def test_header_that_is_not_understood_names_file_and_line(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(layouts.LayoutError, match=message.replace("{", r"\{")) as error:
        read(tmp_path, one=text)
    assert f"one.h:{message[0]}:" in str(error.value)
