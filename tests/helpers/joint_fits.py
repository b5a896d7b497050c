"""A backend in NumPy and SciPy that fits spots together, and test images for it."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares

from napari_spotfit.engine.backend import Load
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.flags import Flag
from napari_spotfit.engine.positions import POSITION, link_positions

SIGMA, BACKGROUND, PHOTONS = 1.3, 20.0, 6000.0
#: How far apart spots are fitted together, and how many at most; the share of the brightest one's
#: amplitude below which a spot is dropped; the width from which on a spot is taken for two.
REACH, MOST, DIMMEST, WIDE = 7.0, 4, 0.3, 1.5
#: What is in the cells of an image: where the spots are, their light, and how many are found.
KINDS = {
    "single": ([(0, 0)], [1.0], 1),
    "pair": ([(0, -2.5), (0.4, 2.5)], [1.0, 0.8], 2),
    "merged": ([(0, -1.35), (0, 1.35)], [1.0, 1.0], 2),  # one maximum
    "dim": ([(-2, 0), (3, 0.3)], [1.0, 0.2], 1),
}
CELL = 20


def field(cells, seed=0, frames=1):
    """Return a movie, and the frame, y and x of the spots that a joint fit finds in it."""
    rng = np.random.default_rng(seed)
    shape = tuple(CELL * count for count in cells)
    grid, found = np.indices(shape), []
    movie = np.full((frames, *shape), BACKGROUND)
    for frame in range(frames):
        for cell in np.ndindex(*cells):
            places, light, count = KINDS[[*KINDS][rng.integers(len(KINDS))]]
            middle = (np.array(cell) + 0.5) * CELL + rng.uniform(-1, 1, 2)
            for number, (place, share) in enumerate(zip(middle + places, light, strict=True)):
                square = sum((axis - at) ** 2 for axis, at in zip(grid, place, strict=True))
                height = share * PHOTONS / (2 * np.pi * SIGMA**2)
                movie[frame] += height * np.exp(-square / (2 * SIGMA**2))
                if number < count:
                    found.append((frame, *place))
    return rng.poisson(movie).astype(np.uint16), np.array(found)


class Joint:
    """Fits groups of spots together, dropping some and adding others."""

    kind, long_movies, reads_all = "cpu", None, False

    def __init__(self, block_bytes=1 << 20, workers=1):
        self.name, self.load = "joint fits", Load(1, block_bytes, workers)
        self.cpu, self.jobs = Cpu(1), []

    def ran_on(self):
        return self.name

    def detect(self, block, settings):
        return self.cpu.detect(block, settings)

    def fitter(self, job):
        return _Fitter(self, job)

    def fit(self, job, block, positions=None, start=None, *, on_device=False):
        self.jobs.append(job)
        columns = self.cpu.fit(job, block, positions, start)
        if positions is None:
            return columns
        group = link_positions(positions, REACH, block.frame_shape)
        columns |= {"group": group}
        if job.one_row_per_position:
            return columns
        order = np.argsort(group, kind="stable")
        rows, values = [], []
        for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            own = self._together(block, positions, columns, members)
            rows += [position for position, _ in own]
            values += [known for _, known in own]
        rows = np.array(rows, np.int64)
        made = {name: column[rows] for name, column in columns.items()}
        for row, known in enumerate(values):
            for name, value in known.items():
                made[name][row] = value
        return made | {POSITION: rows}

    def _together(self, block, positions, columns, members):
        """Return the position and the columns of each spot of a group."""
        alone = [(int(member), {}) for member in members]
        valid = len(members) and np.isfinite(columns["x"][members]).all()
        is_wide = len(members) == 1 and columns["sigma"][members[0]] > WIDE
        if not valid or not (is_wide or 1 < len(members) <= MOST):
            return alone
        centers, own = positions.places[members], members
        if is_wide:
            middle = [columns[axis][members[0]] for axis in "yx"]
            centers, own = np.add(middle, [(0, -1.3), (0, 1.3)]), members.repeat(2)
        frame = block.pixels[positions.frames[members[0]]].astype(float)
        while True:
            found, heights, level, chi, degrees = fit_together(frame, centers, block.first_row)
            keep = heights >= DIMMEST * heights.max()
            if keep.all():
                break
            if not keep.any():
                return alone
            centers, own = centers[keep], own[keep]
        light = {"background": level, "sigma": SIGMA, "chi_square": chi}
        light |= {"reduced_chi_square": chi / degrees}
        return [
            (int(position), light | {
                "y": y, "x": x, "amplitude": height, "flags": 0,
                "photons": height * 2 * np.pi * SIGMA**2,
            })
            for position, (y, x), height in zip(own, found, heights, strict=True)
        ]  # fmt: skip


class _Fitter:
    """Repeats fits of one job."""

    def __init__(self, backend, job):
        self._backend, self._job = backend, job

    def fit(self, block, positions=None, start=None):
        return self._backend.fit(self._job, block, positions, start)


def fit_together(frame, centers, first_row=0):
    """Return the centres, amplitudes, background, χ² and degrees of freedom of spots of one width.

    Numbers are those of the first spot's pixel, so that they do not depend on where it is.
    """
    corner = np.rint(centers.min(axis=0)).astype(int) - 4
    last = np.rint(centers.max(axis=0)).astype(int) + 5
    low = np.maximum(corner, (first_row, 0))
    pixels = frame[low[0] - first_row : last[0] - first_row, low[1] : last[1]]
    y, x = np.indices(pixels.shape) + low.reshape(2, 1, 1) - corner.reshape(2, 1, 1)

    def model(places):
        spots = [
            np.exp(-((y - down) ** 2 + (x - across) ** 2) / (2 * SIGMA**2)).ravel()
            for down, across in places.reshape(-1, 2)
        ]
        design = np.column_stack([*spots, np.ones(pixels.size)])
        light = np.linalg.lstsq(design, pixels.ravel(), rcond=None)[0]
        return design @ light - pixels.ravel(), light

    done = least_squares(lambda places: model(places)[0], (centers - corner).ravel())
    residual, light = model(done.x)
    degrees = pixels.size - 3 * len(centers) - 1
    places = done.x.reshape(-1, 2) + corner
    return places, light[:-1], light[-1], (residual**2).sum(), degrees


def mark_not_settled(backend, monkeypatch):
    """Flag the first spot of each group of two as not converged."""
    together = backend._together

    def flagged(*given):
        rows = together(*given)
        if len(rows) == 2:
            rows[0][1]["flags"] = int(Flag.NOT_CONVERGED | Flag.EDGE)
        return rows

    monkeypatch.setattr(backend, "_together", flagged)
