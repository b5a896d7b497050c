"""Run other programs' detection, with defaults and with the best threshold.

All of them get the width of the spots. A peer is a function of a frame, σ and a threshold in the
peer's own measure, None for its default; it returns positions, and their strength in that measure.
The best threshold is that of the best F1, the same for all frames of a scene, which in practice is
unknown.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from noisy_scenes import Scene, f1
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Array = NDArray[np.float64]

#: Largest distances of a detection from its emitter in pixels.
RADII = (1.0, 3.0)
#: Number of thresholds to try, which leave between a tenth of the true number of spots and 6 times
#: as many.
_STEPS, _FEWEST, _MOST = 60, 0.1, 6.0
#: A Gaussian's full width at half maximum, in σ.
_FWHM = 2.3548
#: Size of a pixel in nm for a peer that needs it: only the ratio to σ matters.
_NM = 100.0
#: Default threshold and box of Picasso's command line.
_NET_GRADIENT, _BOX = 5000.0, 7


class Found(NamedTuple):
    """Positions y and x of a peer's spots, and the values compared with its threshold."""

    places: Array
    strength: Array


Peer = Callable[[NDArray[np.generic], float, float | None], Found]


def big_fish(frame: NDArray[np.generic], sigma: float, threshold: float | None) -> Found:
    """Laplacian of a Gaussian; by default, big-fish searches the kink in the number of spots.

    It filters integers to integers with few distinct values, so that the best is no threshold.
    """
    from bigfish.detection import detect_spots
    from bigfish.stack import log_filter

    whole = frame.dtype.kind in "iu" and threshold is None
    image = frame.astype(np.uint16 if whole else np.float64)
    size, radius = (_NM, _NM), (_NM * sigma, _NM * sigma)
    places = detect_spots(image, threshold, voxel_size=size, spot_radius=radius)
    strength = log_filter(image, sigma)[tuple(places.T)]
    return Found(places.astype(float), strength.astype(float))


def blob_log(frame: NDArray[np.generic], sigma: float, threshold: float | None) -> Found:
    """Laplacian of a Gaussian; scikit-image's default threshold is for images from 0 to 1."""
    from scipy.ndimage import gaussian_laplace
    from skimage import feature

    image = frame.astype(float)
    image = (image - image.min()) / max(float(np.ptp(image)), 1e-9)
    options = {} if threshold is None else {"threshold": threshold}
    blobs = feature.blob_log(image, min_sigma=sigma, max_sigma=sigma, num_sigma=1, **options)
    places = np.asarray(blobs, float).reshape(-1, 3)[:, :2]
    filtered = -(sigma**2) * gaussian_laplace(image, sigma)
    return Found(places, filtered[tuple(places.astype(int).T)])


def dao_star_finder(frame: NDArray[np.generic], sigma: float, threshold: float | None) -> Found:
    """A Gaussian minus its mean; 5 clipped standard deviations, as in photutils' own example."""
    from astropy.stats import sigma_clipped_stats
    from photutils.detection import DAOStarFinder

    image = frame.astype(float)
    _, median, deviation = sigma_clipped_stats(image, sigma=3.0)
    height = max(deviation, 1e-6) * (5.0 if threshold is None else max(threshold, 0.1))
    table = DAOStarFinder(height, _FWHM * sigma)(image - median)
    if table is None:
        return Found(np.zeros((0, 2)), np.zeros(0))
    places = np.column_stack([table["y_centroid"], table["x_centroid"]]).astype(float)
    # From magnitudes relative to the threshold.
    ratio = 10 ** (-0.4 * np.asarray(table["daofind_mag"], float))
    return Found(places, ratio * height / max(deviation, 1e-6))


def trackpy(frame: NDArray[np.generic], sigma: float, threshold: float | None) -> Found:
    """Centres of mass; the threshold is on the mass, by default none.

    Without one, large diameters are best, as they leave little room for noise; otherwise small.
    """
    peer = importlib.import_module("trackpy")
    peer.quiet()
    diameter = 2 * round((3 if threshold is None else 2) * sigma) + 1
    table = peer.locate(frame, diameter, minmass=threshold)
    return Found(table[["y", "x"]].to_numpy(float), table["mass"].to_numpy(float))


def picasso(frame: NDArray[np.generic], sigma: float, threshold: float | None) -> Found:
    """Net gradients in a box of 7 px, Picasso's default, or of 5.4 σ if that is more."""
    with contextlib.redirect_stdout(io.StringIO()):
        from picasso import localize

        box = max(_BOX, 2 * round(2.7 * sigma) + 1)
        least = _NET_GRADIENT if threshold is None else threshold
        movie = frame[np.newaxis].astype(np.float32)
        table = localize.identify(movie, least, box, threaded=False, return_info=False)
    return Found(table[["y", "x"]].to_numpy(float), table["net_gradient"].to_numpy(float))


#: All peers, and their packages.
_ALL: dict[str, tuple[Peer, str]] = {
    "big-fish": (big_fish, "bigfish"), "blob_log": (blob_log, "skimage"),
    "DAOStarFinder": (dao_star_finder, "photutils"), "trackpy": (trackpy, "trackpy"),
    "Picasso": (picasso, "picasso"),
}  # fmt: skip


def installed() -> dict[str, Peer]:
    """Return the installed peers by name."""
    here = {}
    for name, (peer, package) in _ALL.items():
        with contextlib.suppress(ImportError), contextlib.redirect_stdout(io.StringIO()):
            importlib.import_module(package)
            here[name] = peer
    return here


def scores_of(peer: Peer, scene: Scene) -> tuple[list[float], list[float]]:
    """Return a peer's F1 within each radius at its default, and at its best threshold."""
    own = [peer(frame, scene.sigma, None).places for frame in scene.frames]
    all_of_them = [peer(frame, scene.sigma, 0.0) for frame in scene.frames]
    default = [f1(own, scene.truth, radius) for radius in RADII]
    best = default
    # Try thresholds that leave about as many positions as there are spots.
    strength = np.sort(np.concatenate([one.strength for one in all_of_them]))[::-1]
    ranks = sum(map(len, scene.truth)) * np.geomspace(_FEWEST, _MOST, _STEPS)
    ranks = np.unique(np.rint(ranks).astype(int))
    for threshold in np.unique(strength[ranks[ranks < len(strength)]]):
        left = [found.places[found.strength > threshold] for found in all_of_them]
        tried = [f1(left, scene.truth, radius) for radius in RADII]
        best = [max(pair) for pair in zip(best, tried, strict=True)]
    return default, best


def agreed(one: Array, other: Array, radius: float) -> Array:
    """Return the positions that another peer has found, too."""
    if not len(one) or not len(other):
        return one[:0]
    return one[cKDTree(other).query(one)[0] <= radius]
