"""Other programs' detection, each as it comes and at its best threshold.

All of them know the width of the spots. A peer is a function of a frame, σ and a threshold in the
peer's own measure, None for its default: it returns the places it finds there, and how far each
stands out in that measure. The best threshold is the one with the best F1, the same for all frames
of a scene: nobody can know it without the truth.
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

#: A detection within so many pixels of an emitter has found it.
RADII = (1.0, 3.0)
#: So many thresholds are tried, of those that leave from a tenth of the true number of spots to six
#: times as many.
_STEPS, _FEWEST, _MOST = 60, 0.1, 6.0
#: A Gaussian's full width at half maximum, in σ.
_FWHM = 2.3548
#: Pixels of a frame, in nm, for a peer that wants them: only the ratio to σ matters.
_NM = 100.0
#: Threshold and box as Picasso's own command line has them.
_NET_GRADIENT, _BOX = 5000.0, 7


class Found(NamedTuple):
    """Where a peer has found spots, y and x, and what its threshold is compared with."""

    places: Array
    strength: Array


Peer = Callable[[NDArray[np.generic], float, float | None], Found]


def big_fish(frame: NDArray[np.generic], sigma: float, threshold: float | None) -> Found:
    """Laplacian of a Gaussian; by default, big-fish looks for the kink in the number of spots.

    It filters whole numbers to whole numbers, of which few are left: no threshold is best there.
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
    """A Gaussian less its mean; 5 clipped standard deviations, as in photutils' own example."""
    from astropy.stats import sigma_clipped_stats
    from photutils.detection import DAOStarFinder

    image = frame.astype(float)
    _, median, deviation = sigma_clipped_stats(image, sigma=3.0)
    height = max(deviation, 1e-6) * (5.0 if threshold is None else max(threshold, 0.1))
    table = DAOStarFinder(height, _FWHM * sigma)(image - median)
    if table is None:
        return Found(np.zeros((0, 2)), np.zeros(0))
    places = np.column_stack([table["y_centroid"], table["x_centroid"]]).astype(float)
    # Magnitudes over the threshold.
    ratio = 10 ** (-0.4 * np.asarray(table["daofind_mag"], float))
    return Found(places, ratio * height / max(deviation, 1e-6))


def trackpy(frame: NDArray[np.generic], sigma: float, threshold: float | None) -> Found:
    """Centres of mass; the threshold is on the mass, by default there is none.

    Without one, wide spots do best, as they leave little room for noise; else narrow ones do.
    """
    peer = importlib.import_module("trackpy")
    peer.quiet()
    diameter = 2 * round((3 if threshold is None else 2) * sigma) + 1
    table = peer.locate(frame, diameter, minmass=threshold)
    return Found(table[["y", "x"]].to_numpy(float), table["mass"].to_numpy(float))


def picasso(frame: NDArray[np.generic], sigma: float, threshold: float | None) -> Found:
    """Net gradients in a box of 7 px, Picasso's default, or 5.4 σ where that is more."""
    with contextlib.redirect_stdout(io.StringIO()):
        from picasso import localize

        box = max(_BOX, 2 * round(2.7 * sigma) + 1)
        least = _NET_GRADIENT if threshold is None else threshold
        movie = frame[np.newaxis].astype(np.float32)
        table = localize.identify(movie, least, box, threaded=False, return_info=False)
    return Found(table[["y", "x"]].to_numpy(float), table["net_gradient"].to_numpy(float))


#: Every peer, and the package it is in.
_ALL: dict[str, tuple[Peer, str]] = {
    "big-fish": (big_fish, "bigfish"), "blob_log": (blob_log, "skimage"),
    "DAOStarFinder": (dao_star_finder, "photutils"), "trackpy": (trackpy, "trackpy"),
    "Picasso": (picasso, "picasso"),
}  # fmt: skip


def installed() -> dict[str, Peer]:
    """Return the peers that are here, by name."""
    here = {}
    for name, (peer, package) in _ALL.items():
        with contextlib.suppress(ImportError), contextlib.redirect_stdout(io.StringIO()):
            importlib.import_module(package)
            here[name] = peer
    return here


def scores_of(peer: Peer, scene: Scene) -> tuple[list[float], list[float]]:
    """Return a peer's F1 within each radius at its default, and at the best of all thresholds."""
    own = [peer(frame, scene.sigma, None).places for frame in scene.frames]
    all_of_them = [peer(frame, scene.sigma, 0.0) for frame in scene.frames]
    default = [f1(own, scene.truth, radius) for radius in RADII]
    best = default
    # What is worth trying leaves about as many places as there are.
    strength = np.sort(np.concatenate([one.strength for one in all_of_them]))[::-1]
    ranks = sum(map(len, scene.truth)) * np.geomspace(_FEWEST, _MOST, _STEPS)
    ranks = np.unique(np.rint(ranks).astype(int))
    for threshold in np.unique(strength[ranks[ranks < len(strength)]]):
        left = [found.places[found.strength > threshold] for found in all_of_them]
        tried = [f1(left, scene.truth, radius) for radius in RADII]
        best = [max(pair) for pair in zip(best, tried, strict=True)]
    return default, best


def agreed(one: Array, other: Array, radius: float) -> Array:
    """Return the places that another peer has, too."""
    if not len(one) or not len(other):
        return one[:0]
    return one[cKDTree(other).query(one)[0] <= radius]
