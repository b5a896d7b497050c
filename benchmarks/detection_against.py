"""Is detection on the CPU as fast as another commit's, and in how much memory?

Both versions detect in turns in processes of their own, on one thread (see against.py), and say how
many spots they find. Ours measures the noise in each call, too. The memory
is what a process has at most while it detects in one large frame, beyond what it had before and
with the frame itself; Linux alone tells it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile

import numpy as np
from against import BASELINE, both, compare, install

from napari_spotfit import simulate_movie

#: Frames and pixels a side: few and large ones, and a movie.
SIZES = {256: 200, 2048: 3}
PIXEL_TYPES = ("uint8", "uint16", "float32")
LARGE = 4096
WANTED, MOST_BYTES = 0.7, 12
#: Detects whenever a line comes in, and answers with the CPU's seconds; before, it writes down
#: what it finds, and the memory that it takes.
DETECTOR = """
import json, sys, time
from pathlib import Path
import numpy as np
from napari_spotfit import detect_spots
given = json.loads(sys.argv[1])
frames = {name: np.load(path) for name, path in given["frames"].items()}

def found(name):
    return detect_spots(frames[name], sigma=1.3, backend="cpu", threads=1)

def resident(what):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) << 10

answers = {name: found(name) for name in frames if name != "large"}
bytes_per_pixel = np.nan
if Path("/proc/self/clear_refs").exists():
    Path("/proc/self/clear_refs").write_text("5")  # from now on, the highest counts
    before = resident("VmRSS")
    found("large")
    large = frames["large"]
    bytes_per_pixel = (resident("VmHWM") - before + large.nbytes) / large.size
np.savez(given["answers"], bytes_per_pixel=bytes_per_pixel, **answers)
print("ready", flush=True)
for line in sys.stdin:
    begin = time.process_time()
    found(line.strip())
    print(time.process_time() - begin, flush=True)
"""


def movie(side: int, frames: int, pixel_type: str) -> np.ndarray:
    spots = 45 * side**2 // 256**2
    counts, _ = simulate_movie(frames, (side, side), spots_per_frame=spots, background=20, seed=1)
    return np.clip(counts, 0, 255).astype(pixel_type)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default=BASELINE, help="what to compare with")
    parser.add_argument("--turns", type=int, default=11)
    options = parser.parse_args()
    other = install(options.commit)
    with tempfile.TemporaryDirectory() as folder:
        frames, pixels = {"large": f"{folder}/large.npy"}, {}
        np.save(frames["large"], movie(LARGE, 1, "uint16")[0])
        for side, count in SIZES.items():
            for pixel_type in PIXEL_TYPES:
                name = f"{count} × {side}², {pixel_type}"
                frames[name], pixels[name] = f"{folder}/{name}.npy", count * side**2
                np.save(frames[name], movie(side, count, pixel_type))
        answers = [f"{folder}/{version}.npz" for version in ("ours", "theirs")]
        given = [json.dumps({"frames": frames, "answers": path}) for path in answers]
        versions = both(other, given, DETECTOR)
        print("million pixels per CPU second, ours and theirs, and the ratio")
        ratios = [compare(versions, name, pixels[name], options.turns) for name in pixels]
        for version in versions:
            version.end()
        print(f"  geometric mean {statistics.geometric_mean(ratios):.2f}", end="")
        print(f", worst {min(ratios):.2f} (wanted {WANTED})")
        ours, theirs = (np.load(path) for path in answers)
        for name in pixels:
            print(f"  {name:20}{len(ours[name]):9} spots, theirs {len(theirs[name])}")
        memory = [float(answer["bytes_per_pixel"]) for answer in (ours, theirs)]
        print(f"  memory, {LARGE}², uint16: {memory[0]:.1f} B/px (at most {MOST_BYTES}), ", end="")
        print(f"theirs {memory[1]:.1f}")


if __name__ == "__main__":
    main()
