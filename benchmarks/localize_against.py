"""Is localize on sparse movies as fast as another commit's, and what do its estimates cost?

Both versions work in turns in processes of their own, on one thread (see against.py). The other one
takes the PSF's σ for 1.3 px unless it is told and, at the commit that is compared by default, has
thresholds for each frame; ours measures the image's noise and, where it is not told, the σ. With
the settings of a result, neither is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from against import both, compare, install

from napari_spotfit import simulate_movie

#: The last commit before spots were found by the noise of the image.
BEFORE = "8cdd4e2"
#: Frames and pixels a side, from short movies to a long one and a single large frame.
SIZES = ((50, 256), (60, 256), (1000, 256), (1, 2048))
#: Spots in 256² pixels, and their σ.
SPOTS, SIGMA = 20, 1.3
#: What is told: the σ and what a result's settings have, the σ, or nothing; and the least speed
#: over that of the other version.
KINDS = {"all known": None, "σ given": 0.85, "nothing given": 0.85}
#: Localizes whenever a line comes in, and answers with the CPU's seconds.
LOCALIZER = """
import json, sys, time
import numpy as np
import napari_spotfit
movies, answers = json.loads(sys.argv[1])
movies = {name: np.load(path) for name, path in movies.items()}
run = {"backend": "cpu", "threads": 1}
given = {name: {"roi_size": 9, "sigma": 1.3} for name in movies}
known = {name: napari_spotfit.localize(movie, **given[name], **run).settings
         for name, movie in movies.items()}

def work(name, kind):
    if kind == "nothing given":
        return napari_spotfit.localize(movies[name], **run)
    if kind == "all known":
        return napari_spotfit.localize(movies[name], settings=known[name])
    return napari_spotfit.localize(movies[name], **given[name], **run)

found = {name: [len(work(name, kind)) for kind in ("σ given", "nothing given")] for name in movies}
json.dump(found, open(answers, "w"))
print("ready", flush=True)
for line in sys.stdin:
    name, kind = line.strip().split(", ")
    begin = time.process_time()
    work(name, kind)
    print(time.process_time() - begin, flush=True)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default=BEFORE, help="what to compare with")
    parser.add_argument("--turns", type=int, default=21)
    options = parser.parse_args()
    other = install(options.commit)
    worst = dict.fromkeys(KINDS, np.inf)
    with tempfile.TemporaryDirectory() as folder:
        movies = {}
        for frames, side in SIZES:
            name = f"{frames} × {side}²"
            movies[name] = f"{folder}/{frames}-{side}.npy"
            spots = SPOTS * side**2 // 256**2
            movie, _ = simulate_movie(
                frames, (side, side), spots_per_frame=spots, sigma=SIGMA, seed=1
            )
            np.save(movies[name], movie)
        answers = [f"{folder}/{version}.json" for version in ("ours", "theirs")]
        given = [json.dumps([movies, answer]) for answer in answers]
        versions = both(other, given, LOCALIZER)
        print("million pixels per CPU second, ours and theirs, and the ratio")
        for (frames, side), name in zip(SIZES, movies, strict=True):
            for kind in KINDS:
                count = frames * side**2
                ratio = compare(versions, f"{name}, {kind}", count, options.turns)
                worst[kind] = min(worst[kind], ratio)
        for version in versions:
            version.end()
        ours, theirs = (json.loads(Path(path).read_text()) for path in answers)
    for name in movies:
        print(f"  {name}: {ours[name]} fits with σ and without, theirs {theirs[name]}")
    for kind, wanted in KINDS.items():
        told = "" if wanted is None else f" (wanted {wanted})"
        print(f"  {kind}: worst {worst[kind]:.2f}{told}")
    return int(any(wanted is not None and worst[kind] < wanted for kind, wanted in KINDS.items()))


if __name__ == "__main__":
    sys.exit(main())
