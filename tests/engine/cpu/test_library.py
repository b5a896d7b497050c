"""The compiled library is found, checked and opened; a changed checkout builds it again."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import ROOT, share_compiled

from napari_spotfit.engine.cpu import layouts, library
from napari_spotfit.version import __version__

LOAD = "from napari_spotfit.engine.cpu.library import load; print(load().functions.{}())"

in_a_checkout = pytest.mark.skipif(
    not (ROOT / "src").is_dir(), reason="needs the sources of the package"
)


def test_chooses_the_best_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.INSTRUCTION_SET, raising=False)
    found = library.load()
    assert found.instruction_set == found.instruction_sets[-1]
    assert found.description == f"library {__version__}, {found.instruction_set}"


def test_variable_chooses_any_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = []
    for name in library.load().instruction_sets:
        monkeypatch.setenv(library.INSTRUCTION_SET, name)
        found = library.load()
        assert found.instruction_set == name
        widths.append(found.functions.spotfit_lane_width(found.index))
    assert widths == sorted(widths)
    assert widths[0] >= 4


def test_unknown_instruction_set_is_an_error_that_lists_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = ", ".join(library.load().instruction_sets)
    monkeypatch.setenv(library.INSTRUCTION_SET, "abacus")
    with pytest.raises(ValueError, match=f"abacus: this machine has {every}"):
        library.load()


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs Linux")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86-64")
def test_instruction_sets_are_those_the_system_knows() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).split())
    wanted = {
        "sse42": {"sse4_2", "ssse3", "popcnt", "cx16", "lahf_lm"},
        "avx2": {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"},
        "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    }
    expected = tuple(name for name, needs in wanted.items() if needs <= flags)
    assert library.load().instruction_sets == expected


def test_missing_library_is_an_error_that_says_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(library.LIBRARY, str(tmp_path / "nothing.so"))
    with pytest.raises(ImportError, match=r"nothing\.so.*(build_library\.py|pip install)"):
        library.load()


def test_library_of_other_sources_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = Path(library.load().path)
    content = path.read_bytes()
    digest = layouts.DIGEST.encode()
    assert content.count(digest) == 1
    other = tmp_path / path.name
    other.write_bytes(content.replace(digest, b"others" + digest[6:]))
    monkeypatch.setenv(library.LIBRARY, str(other))
    with pytest.raises(ImportError, match=rf"other sources \(others.*{layouts.DIGEST}"):
        library.load()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the package and of the sources of its library."""
    for name in ("kernels", "tools", "src"):
        made = ("kernels", "layouts.py", "*.so", "*.dll", "*.dylib", "__pycache__")
        ignored = shutil.ignore_patterns(*made)
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored if name == "src" else None)
    share_compiled(tmp_path)
    return tmp_path


@pytest.fixture
def call(checkout: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start a Python that loads the checkout's library and prints a function's result."""

    def start(function: str, **environment: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if name != library.LIBRARY}
        return subprocess.Popen(
            [sys.executable, "-c", LOAD.format(function)],
            env={**kept, "PYTHONPATH": str(checkout / "src"), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@in_a_checkout
def test_changed_layout_with_the_library_from_before_is_an_error(
    checkout: Path, call: Callable[..., subprocess.Popen[str]]
) -> None:
    before = {library.LIBRARY: library.load().path}
    assert call("spotfit_digest", **before).communicate()[1] == ""
    header = checkout / "kernels" / "layouts" / "fit_settings.h"
    text = header.read_text("utf-8")
    header.write_text(text.replace("    int held;", "    int added;\n    int held;"), "utf-8")
    messages = call("spotfit_digest", **before).communicate()[1]
    assert "ImportError" in messages
    assert "was built from other sources" in messages
    layout = (checkout / "src" / "napari_spotfit" / "engine" / "cpu" / "layouts.py").read_text()
    assert '("added", c_int),\n        ("held", c_int),' in layout


@in_a_checkout
def test_layout_that_is_not_understood_is_an_error_that_says_where(
    checkout: Path, call: Callable[..., subprocess.Popen[str]]
) -> None:
    header = checkout / "kernels" / "layouts" / "spots.h"
    lines = header.read_text("utf-8").splitlines()
    line = next(i for i, text in enumerate(lines) if "double top;" in text)
    header.write_text("\n".join([*lines[:line], "    long top;", *lines[line + 1 :]]), "utf-8")
    messages = call("spotfit_digest").communicate()[1]
    assert "ImportError: the library's layouts could not be read" in messages
    assert f"spots.h:{line + 1}: 'long' is no type with one size everywhere" in messages


def add_function(checkout: Path, name: str, result: int) -> None:
    with (checkout / "kernels" / "cpu" / "dispatch.cpp").open("a", encoding="utf-8") as file:
        file.write(f"\nSPOTFIT_EXPORT int {name}() {{ return {result}; }}\n")


@in_a_checkout
def test_changed_checkout_builds_its_library_once_for_all_processes(
    checkout: Path, call: Callable[..., subprocess.Popen[str]]
) -> None:
    add_function(checkout, "spotfit_added", 7)
    answers = [process.communicate() for process in [call("spotfit_added") for _ in range(3)]]
    assert [answer[0] for answer in answers] == ["7\n"] * 3, answers
    add_function(checkout, "spotfit_added_later", 8)
    output, messages = call("spotfit_added_later").communicate()
    assert output == "8\n", messages
    assert "building the library from its changed sources" in messages
    assert call("spotfit_added_later").communicate() == ("8\n", "")


@in_a_checkout
def test_changed_checkout_without_a_compiler_says_what_to_do(
    checkout: Path, call: Callable[..., subprocess.Popen[str]]
) -> None:
    messages = call("spotfit_digest", CXX=str(checkout / "no-clang")).communicate()[1]
    assert "ImportError: the library could not be built" in messages
    assert "no-clang" in messages
    # Without other packages, such as ziglang.
    builder = [sys.executable, "-E", "-S", checkout / "tools" / "build_library.py"]
    environment = {name: value for name, value in os.environ.items() if name != "CXX"}
    done = subprocess.run(builder, capture_output=True, text=True, env=environment)
    assert "-m pip install ziglang" in done.stderr


@in_a_checkout
def test_broken_sources_show_what_the_compiler_says(
    checkout: Path, call: Callable[..., subprocess.Popen[str]]
) -> None:
    with (checkout / "kernels" / "cpu" / "dispatch.cpp").open("a", encoding="utf-8") as file:
        file.write("\nint unused_parameter(int x) { return 0; }\n")
    messages = call("spotfit_digest").communicate()[1]
    assert "error: unused parameter 'x'" in messages


@in_a_checkout
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, whose objects are looked at")
def test_inline_functions_that_instruction_sets_would_share_are_an_error(
    checkout: Path, call: Callable[..., subprocess.Popen[str]]
) -> None:
    """The linker keeps one of them, perhaps with instructions that the processor lacks."""
    with (checkout / "kernels" / "cpu" / "near.h").open("a", encoding="utf-8") as file:
        file.write("namespace spotfit { __attribute__((used)) inline int one() { return 1; } }\n")
    messages = call("spotfit_digest").communicate()[1]
    assert "namespace spotfit::SPOTFIT_ISA" in messages
    assert "_ZN7spotfit3oneEv" in messages
