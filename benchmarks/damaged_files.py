"""Read damaged files of every format, and count how that ends: read, or a proper error.

    python benchmarks/damaged_files.py --tables 3000 --images 3000

It fails if one ends in another error, takes more than 5 s of the processor, or 1 GB of memory.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

import damage  # noqa: E402

SECONDS, MEMORY = 5, 1 << 30


def peak() -> int:
    """Return the peak memory since the last call in bytes; 0 if the system does not report it."""
    status, forget = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not forget.exists():
        return 0
    line = next(one for one in status.read_text().splitlines() if one.startswith("VmHWM"))
    forget.write_text("5")
    return int(line.split()[1]) << 10


def too_slow(*_: object) -> None:
    """Stop reading a file after a time limit."""
    raise TimeoutError(f"more than {SECONDS} s")


def count(kind: str, number: int, first: int) -> bool:
    """Read damaged files of a kind; print the outcomes, and return whether all are proper."""
    writers, read = damage.KINDS[kind]
    found: Counter[str] = Counter()
    slowest, largest, odd = 0.0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        files = damage.Damage(Path(folder), writers)
        peak()
        for seed in range(first, first + number):
            path = files.path(seed)
            begun = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            how = damage.outcome(path, read)
            signal.setitimer(signal.ITIMER_PROF, 0)
            slowest = max(slowest, time.process_time() - begun)
            memory = peak()
            largest = max(largest, memory)
            if how not in damage.GOOD or memory > MEMORY:
                odd.append(f"  seed {seed}, {path.name}: {how[:200]}, {memory >> 20} MB")
            found[how if how in damage.GOOD else "other errors"] += 1
    counts = ", ".join(f"{found[how]} {how}" for how in (*damage.GOOD, "other errors"))
    print(
        f"{number} damaged {kind} of {len(writers)} formats: {counts}; "
        f"{slowest:.1f} s of the processor and {largest >> 20} MB at most"
    )
    print(*odd, sep="\n", end="\n" if odd else "")
    return not odd


def main() -> int:
    """Run with the arguments of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=3000)
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    signal.signal(signal.SIGPROF, too_slow)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tables = count("tables", given.tables, given.first)
    images = count("images", given.images, given.first)
    return 0 if tables and images else 1


if __name__ == "__main__":
    sys.exit(main())
