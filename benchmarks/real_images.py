"""What becomes of the four real images of real_files.py, at default settings, with the bars.

Whether a good fit is at a bound, negative, has moved or is there twice is asked here of the
numbers alone, not of the flags. Simulated STORM has a truth; it and the particles have what two
other programs agree on.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import napari_spotfit as spotfit

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
import real_files
from noisy_scenes import Array, hits
from peers import Peer, agreed, told
from scipy.spatial import cKDTree

#: Shares that are asked for: of the truth, and of what two peers agree on.
TRUTH, AGREED = 0.95, 0.97
#: Two places within so many pixels are one spot: those of peers are whole pixels.
_TRUE, _SAME = 1.0, 2.0
#: What two peers agree on, and the images in which they find enough for that.
_TWO, _CROWDED = ("blob_log", "big-fish"), ("dax", "stuck_particles")
#: Places of different frames are so far apart.
_APART = 1e6


def doubts(fits: spotfit.SpotFits, places: Array) -> dict[str, int]:
    """Count what is wrong with the good fits, by their numbers and by where they began."""
    good, sigma = fits.good, float(fits.settings.sigma)
    settled = _by_frame(fits.points())[good]
    begun = _by_frame(places)[good]
    inner = [fits.columns[name] - fits.columns[f"roi_{name}"] for name in ("y", "x")]
    low, high = -0.5, fits.settings.roi_size - 0.5
    at_bound = np.any([(along <= low) | (along >= high) for along in inner], axis=0)
    at_bound |= (fits.sigma <= 0.25) | (fits.sigma >= fits.settings.roi_size)
    same = cKDTree(settled).query_pairs(max(1.0, 0.75 * sigma))
    return {
        "at a bound": int(at_bound[good].sum()),
        "negative": int(((fits.amplitude <= 0) | (fits.photons <= 0))[good].sum()),
        "moved": int((np.hypot(*(settled - begun).T[1:]) > min(1.5 * sigma, 2.0)).sum()),
        "double": len(same),
    }


def _by_frame(points: Any) -> Array:
    """Return frame, y and x, with the frames far apart."""
    points = np.asarray(points, float)
    if points.shape[1] == 2:
        points = np.column_stack([np.zeros(len(points)), points])
    return points * [_APART, 1, 1]


def both_find(frames: Any, sigma: float, peers: dict[str, Peer]) -> Array:
    """Return the places that both peers find at their defaults, frames far apart."""
    one, other = (peers[name] for name in _TWO)
    result = []
    for i, frame in enumerate(frames):
        native = np.ascontiguousarray(frame.astype(frame.dtype.newbyteorder("=")))
        places = agreed(one(native, sigma, None).places, other(native, sigma, None).places, _SAME)
        result.append(np.column_stack([np.full(len(places), float(i)), places]))
    return _by_frame(np.concatenate(result))


def _share(good: Array, places: Array, radius: float, bar: float) -> str:
    share = hits(good, places, radius) / len(places)
    return f"{share:.3f} of {len(places)} (≥ {bar}){' MISSED' if share < bar else ''}"


def _read(name: str) -> tuple[Any, Array | None]:
    """Return an image, and the truth where there is one."""
    if name == "dax":
        movie, truth = real_files.read_dax()
        return movie, _by_frame(truth[["frame", "y", "x"]])
    return real_files.read_paint()[0] if name == "paint" else real_files.read_tiff(name), None


def print_image(name: str, peers: dict[str, Peer]) -> None:
    """Print what becomes of one image."""
    image, truth = _read(name)
    fits = spotfit.localize(image)
    places = spotfit.detect_spots(image, sigma=fits.settings.sigma)
    if len(places) != len(fits):
        raise RuntimeError(f"{len(places)} detections, and {len(fits)} fits of {name}")
    wrong = doubts(fits, places)
    words = ", ".join(f"{count} {what}" for what, count in wrong.items())
    line = f"{name:>18}{len(fits):>7}{fits.good.mean():>8.1%}   {words}"
    print(line + (" MISSED" if any(wrong.values()) else ""))
    good = _by_frame(fits.points())[fits.good]
    if truth is not None:
        print(f"{'':>18} of the truth within {_TRUE:g} px: {_share(good, truth, _TRUE, TRUTH)}")
    if name in _CROWDED and set(_TWO) <= set(peers):
        both = both_find(image, fits.settings.sigma, peers)
        print(f"{'':>18} of what {' and '.join(_TWO)} find: {_share(good, both, _SAME, AGREED)}")


def print_real_images(peers: dict[str, Peer]) -> None:
    """Print what becomes of each image that is here."""
    print(f"\nReal images{'fits':>14}{'good':>8}   of the good fits (≤ 0)")
    for name in real_files.REAL_FILES:
        lacking = real_files.missing(name)
        if lacking:
            print(f"{name:>18} needs {lacking[0]} in the folder SPOTFIT_REAL_FILES")
        else:
            print_image(name, peers)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print_real_images(told())
