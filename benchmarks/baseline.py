"""Run two versions of the package alternately, to compare speed and results.

Each version runs this file in its own process, which uses only public names: a case is a public
function, an array and options. The versions alternate call by call, so that other load affects both
equally.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, resolved

#: The baseline's commit, which ``make baseline`` checks out into TREE.
BASELINE = "3b1f252"
TREE = ROOT / "build" / "baseline"


@dataclass
class Case:
    """A call to time with both versions."""

    name: str
    #: A public function, or a method of Fitter.
    call: str
    #: File with the spots or frames.
    array: str
    #: Number of fits, frames or pixels of a call, the unit of speed.
    work: float
    #: Options as in common.KINDS; ``start`` for start values of the first spots.
    options: dict[str, Any] = field(default_factory=dict)
    places: str | None = None
    #: Settings to estimate before: "noise", or "all" that localize needs.
    known: str | None = None
    #: Number of spots or frames (by repetition), and of calls per measurement.
    repeated: int | None = None
    calls: int = 1
    #: Clock: "cpu", "wall", or "device" for the GPU.
    clock: str = "cpu"
    on_device: bool = False


# ---- In a version's process ----


def prepared(case: Case) -> Callable[[], Any]:
    """Return the call of a case."""
    import napari_spotfit as spotfit

    array = np.load(case.array)
    options = resolved(case.options, array.shape[-1])
    if case.known == "all":
        options = {"settings": spotfit.localize(array, **options).settings}
    elif case.known == "noise":
        noise = spotfit.noise_model(array, backend="cpu")
        options = {"settings": spotfit.Settings(noise=noise, **options)}
    start = options.pop("start", None)
    if case.on_device:
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        array = _tiled(cupy.asarray(array), case.repeated, cupy)
        if start is not None:
            options["start"] = _tiled(cupy.asarray(start, cupy.float32), case.repeated, cupy)
    else:
        array = _tiled(array, case.repeated, np)
    more = [] if case.places is None else [np.load(case.places)]
    if case.call.startswith("Fitter."):
        method = getattr(spotfit.Fitter(**options), case.call.removeprefix("Fitter."))
        return lambda: method(array, *more)
    function = getattr(spotfit, case.call)
    return lambda: function(array, *more, **options)


def _tiled(array: Any, count: int | None, module: Any) -> Any:
    if count is None:
        return array
    times = -(-count // len(array))
    return module.tile(array, (times, *[1] * (array.ndim - 1)))[:count]


def digest(answer: Any) -> str:
    """Return the number of rows of a result, and a hash of the first 100,000."""
    columns = getattr(answer, "columns", {"": answer})
    found = hashlib.sha1()
    for name in sorted(columns):
        values = columns[name][:100_000]
        values = values.get() if hasattr(values, "get") else np.asarray(values)
        found.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return f"{len(answer)} {found.hexdigest()}"


def serve() -> None:
    """Prepare the case that a line describes; run it for each empty line."""
    import napari_spotfit

    assert str(Path(napari_spotfit.__file__).resolve()).startswith(os.environ["SPOTFIT_TREE"])
    clocks = {"cpu": time.process_time, "wall": time.perf_counter}
    case, work = None, None
    for line in sys.stdin:
        if line.strip():
            work = None
            case = Case(**json.loads(line))
            work = prepared(case)
            answer = digest(work())
        elif case.clock == "device":
            import cupy

            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            work()
            end.record()
            end.synchronize()
            answer = cupy.cuda.get_elapsed_time(begin, end) / 1e3
        else:
            begun = clocks[case.clock]()
            for _ in range(case.calls):
                work()
            answer = (clocks[case.clock]() - begun) / case.calls
        print(answer, flush=True)


# ---- In the benchmark's process ----


class Version:
    """One version of the package, in its own process."""

    def __init__(self, tree: Path, environment: dict[str, str]) -> None:
        own = {"PYTHONPATH": str(tree / "src"), "SPOTFIT_TREE": str(tree)}
        own["PYTHONWARNINGS"] = "ignore"
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=os.environ | own | environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, line: str = "") -> str:
        """Send a line, and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError("a version of the package has failed")
        return answer

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


@contextmanager
def both(tree: Path = TREE, environment: dict[str, str] | None = None) -> Iterator[list[Version]]:
    """Start this version and that of another checkout."""
    if not (tree / "src").exists():
        sys.exit(f"There is no engine to compare with in {tree}: make baseline")
    versions = [Version(own.resolve(), environment or {}) for own in (ROOT, tree)]
    try:
        yield versions
    finally:
        for version in versions:
            version.end()


def compare(versions: Sequence[Version], cases: Sequence[Case], turns: int) -> list[float]:
    """Print the speeds of both versions; return the median ratio of each case."""
    ratios = []
    for case in cases:
        answers = [version.ask(json.dumps(asdict(case))) for version in versions]
        taken: list[list[float]] = [[], []]
        for turn in range(turns):
            for i in (0, 1) if turn % 2 else (1, 0):
                taken[i].append(float(versions[i].ask()))
        ratios.append(statistics.median(b / a for a, b in zip(*taken, strict=True)))
        ours, theirs = (case.work / statistics.median(times) for times in taken)
        rows = [answer.split()[0] for answer in answers]
        same = "to the bit" if answers[0] == answers[1] else f"{rows[0]} and {rows[1]} rows"
        print(f"  {case.name:40}{ours:12.5g}{theirs:12.5g}{ratios[-1]:8.3f}   {same}", flush=True)
    return ratios


@contextmanager
def arrays() -> Iterator[Callable[[str, np.ndarray], str]]:
    """Yield a function that saves an array for cases, and returns its file."""
    with tempfile.TemporaryDirectory() as folder:

        def saved(name: str, array: np.ndarray) -> str:
            path = Path(folder, f"{name}.npy")
            if not path.exists():
                np.save(path, array)
            return str(path)

        yield saved


def summary(what: str, ratios: Sequence[float], worst: float, mean: float) -> bool:
    """Print the geometric mean and the worst ratio with limits; return whether they are met."""
    own = statistics.geometric_mean(ratios)
    good = min(ratios) >= worst and own >= mean
    print(
        f"{what}: geometric mean {own:.3f} (≥ {mean:.3g}), worst {min(ratios):.3f} (≥ {worst:.3g})"
        f"{'' if good else ': MISSED'}",
        flush=True,
    )
    return good


if __name__ == "__main__":
    serve()
