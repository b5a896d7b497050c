"""From the CUDA C++ in ``kernels/`` to kernels on a device.

A kernel is compiled when it is first used, for the GPU at hand and for the numbers that
it is built around (a ROI's size, say). CuPy keeps the result on disk. The constants
that decide where a fit stops come from :mod:`napari_spotfit.stopping`, as macros.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from ...models import stopping

#: Fused multiply-adds, fast reciprocals and roots; NaN and infinity stay what they are.
#: Denormal numbers become 0. The namespace of the kernels. Constants that a kernel has no use
#: for are no reason to say something.
OPTIONS = (
    "--std=c++17", "-default-device", "--prec-div=false", "--prec-sqrt=false", "--ftz=true",
    "-DSPOTFIT_ISA=cuda", "-diag-suppress=177",
)  # fmt: skip

#: What kernels take from :mod:`napari_spotfit.stopping`, besides the conditions' codes.
_CONSTANTS = (
    "INITIAL_DAMPING", "DAMPING_DECREASE", "DAMPING_INCREASE", "MAX_DAMPING",
    "SKIPPED_STEP", "SKIPPED_DAMPING", "ROUNDING", "ROUNDING_FLOOR", "SINGULAR",
    "LIKELIHOOD_DELTA", "FIRST_AMPLITUDE", "FIRST_BACKGROUND", "LEAST_BACKGROUND",
    "SHORTEST_STRETCH", "LONGEST_STRETCH", "LEAST_CURVATURE",
)  # fmt: skip

_INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)


def kernel(file: str, name: str, before: str = "", **macros: float | str) -> Any:
    """Return a kernel for the current device.

    Parameters
    ----------
    file : str
        The file in ``kernels/`` that defines it.
    name : str
        The kernel's name; it is ``extern "C"``.
    before : str
        C++ that comes before the file: what it asks for and does not define.
    **macros : int, float or str
        What the file takes as compile-time constants, by name; a str is C++ text.

    Returns
    -------
    cupy.RawKernel
        It is called with grid, block and arguments.
    """
    import cupy

    return _compiled(file, name, before, tuple(sorted(macros.items())), cupy.cuda.Device().id)


@lru_cache(maxsize=512)
def _compiled(
    file: str, name: str, before: str, macros: tuple[tuple[str, float | str], ...], device: int
) -> Any:
    import cupy

    code = before + source(file)
    return cupy.RawModule(code=code, options=options(**dict(macros))).get_function(name)


@lru_cache(maxsize=16)
def source(file: str) -> str:
    """Return the text of a kernel file, with the files that it includes in their places."""
    return with_includes(f'#include "{file}"\n')


def with_includes(text: str) -> str:
    """Return C++ with the files of ``kernels/`` that it includes, each once.

    In one piece, as CuPy's cache on disk knows a kernel by its text.
    """
    folder = files("napari_spotfit") / "kernels"
    included = set()

    def included_from(place: PurePosixPath, text: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            parts: list[str] = []
            for part in (place / match[1]).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            path = PurePosixPath(*parts)
            if path in included:
                return ""
            included.add(path)
            own = folder.joinpath(*parts).read_text("utf-8")
            return included_from(path.parent, own.replace("#pragma once\n", ""))

        return _INCLUDE.sub(replaced, text)

    return included_from(PurePosixPath(), text)


def options(**macros: float | str) -> tuple[str, ...]:
    """Return the compiler's options: ours, the constants of the stop conditions, macros."""
    constants = {name: getattr(stopping, name) for name in _CONSTANTS}
    conditions = {f"STOP_{condition.name}": int(condition) for condition in stopping.StopCondition}
    defined = constants | conditions | macros
    return OPTIONS + tuple(f"-D{name}={_literal(value)}" for name, value in defined.items())


def _literal(value: float | str) -> str:
    return f"{value!r}f" if isinstance(value, float) else str(value)
