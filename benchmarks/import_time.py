"""How long a fresh process takes until it can fit: the import beyond NumPy's, and the first fit."""

import os
import statistics
import subprocess
import sys
import tempfile

RUNS = 15
#: Prints the milliseconds of each step.
STEPS = """
import time
import numpy
spots = numpy.random.default_rng(0).poisson(50, (100, 7, 7)).astype(numpy.float32)
times = [time.perf_counter()]
import napari_spotfit
times.append(time.perf_counter())
for _ in range(2):
    napari_spotfit.fit_spots(spots, backend="cpu")
    times.append(time.perf_counter())
print(*(1e3 * (end - begin) for begin, end in zip(times, times[1:])))
"""
#: Each step's name, and the most milliseconds that it may take.
WANTED = {
    "import napari_spotfit, beyond NumPy": 30,
    "first fit of 100 spots, what it imports included": 20,
    "second fit": 2,
}


def milliseconds(environment: dict[str, str]) -> list[float]:
    """Return how long a fresh interpreter takes for each step."""
    command = [sys.executable, "-c", STEPS]
    run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    return [float(time) for time in run.stdout.split()]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # Modules are compiled once, as they are wherever people work.
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        milliseconds(environment)
        runs = [milliseconds(environment) for _ in range(RUNS)]
    print(f"Milliseconds, median of {RUNS} fresh interpreters:")
    for (name, most), times in zip(WANTED.items(), zip(*runs, strict=True), strict=True):
        print(f"  {name:50}{statistics.median(times):6.1f}  (≤ {most})")


if __name__ == "__main__":
    main()
