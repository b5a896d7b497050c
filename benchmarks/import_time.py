"""How long `import napari_spotfit` takes on top of NumPy, which it stands on."""

import statistics
import subprocess
import sys
import time

RUNS = 15
BASE = "import numpy"
PACKAGE = f"{BASE}, napari_spotfit"


def seconds(code: str) -> float:
    """Return how long a fresh interpreter takes to run the code."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    for code in (BASE, PACKAGE):
        seconds(code)  # so that every file is compiled and in the disk cache
    # In turns, so that a change of the machine's load meets both.
    times = [(seconds(BASE), seconds(PACKAGE)) for _ in range(RUNS)]
    base, package = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    print(f"Import time, median of {RUNS} fresh interpreters:")
    for code, median in ((BASE, base), (PACKAGE, package)):
        print(f"  {code:40}{median:5.0f} ms")
    print(f"  {'difference':40}{package - base:5.0f} ms")


if __name__ == "__main__":
    main()
