"""Run the public functions on random images, and write all numbers that they return.

usage: python tools/random_cases.py FOLDER [--quick] [--backend cpu|cuda] [--only WORD]

tools/same_results.py runs this once for each version of the package, with the version on
PYTHONPATH. All random numbers come from NumPy, so that each version gets the same cases, and only
public names are used.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from random_inputs import (
    DTYPES,
    KINDS,
    random_cutouts,
    random_detection,
    random_fit,
    random_maps,
    random_movie,
    random_neighbours,
    random_roi,
    random_shape,
    random_side,
    random_start,
    spots_image,
)

import napari_spotfit
from napari_spotfit import (
    Fitter,
    Tracker,
    detect_spots,
    estimate_sigma,
    fit_at,
    fit_spots,
    localize,
    localize_iter,
    noise_model,
)

#: The result of a case: arrays by name.
Columns = dict[str, np.ndarray[Any, Any]]
Case = Callable[[np.random.Generator], Columns]

ESTIMATORS = ["lse", "wlse", "mle"]


# ---- What is written ----


def columns_of(fits: Any) -> Columns:
    """Return all columns of fits, their flags, and estimates."""
    fits = fits.to_host()
    columns = {**fits.columns, "flags": fits.flags, "good": fits.good}
    columns["mean_sigma"] = fits.mean_sigma
    if fits.settings is not None:
        columns |= settings_of(fits.settings)
    return {name: np.array(values) for name, values in columns.items()}


def settings_of(settings: Any) -> Columns:
    """Return the settings that can be estimated."""
    found: Columns = {}
    for name in ("sigma", "gain", "offset"):
        value = getattr(settings, name)
        found[f"settings.{name}"] = np.array(np.nan if value is None else value)
    if settings.roi_size is not None:
        found["settings.roi_size"] = np.array(settings.roi_shape)
    return found | (noise_of(settings.noise) if settings.noise is not None else {})


def noise_of(noise: Any) -> Columns:
    """Return what a noise model holds."""
    held = dataclasses.asdict(noise)
    return {f"noise.{name}": array_of(value) for name, value in held.items()}


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """Return a value as an array: words as they are, and NaN for None."""
    if isinstance(value, str):
        return np.array(value)
    return np.array(np.nan if value is None else value, float)


def together(parts: Iterator[Columns]) -> Columns:
    """Concatenate the columns of several calls."""
    columns: dict[str, list[np.ndarray[Any, Any]]] = {}
    for part in parts:
        for name, values in part.items():
            columns.setdefault(name, []).append(np.atleast_1d(values))
    return {name: np.concatenate(values) for name, values in columns.items()}


# ---- The cases ----


class Cases:
    """All cases by name, in order, with separate random numbers."""

    def __init__(self, backend: str, quick: bool) -> None:
        self.cases: dict[str, Case] = {}
        self._run = {"backend": backend}
        self._quick = quick
        rounds = 2 if quick else 12
        for turn, kind, estimator in itertools.product(range(rounds), KINDS, ESTIMATORS):
            name = f"{' '.join(kind)} {estimator} {turn}"
            self._add(f"fit_spots {name}", self._fit_spots, kind, estimator)
            self._add(f"fit_at {name}", self._fit_at, kind, estimator)
            self._add(f"localize {name}", self._localize, kind, estimator)
            if turn % 2 == 0:
                self._add(f"Fitter {name}", self._fitter, kind, estimator)
        for turn in range(10 if quick else 60):
            self._add(f"detect_spots {turn}", self._detect_spots)
            self._add(f"estimate_sigma {turn}", self._estimate_sigma)
            self._add(f"noise_model {turn}", self._noise_model)
            self._add(f"localize_iter {turn}", self._localize_iter)
        for turn in range(2 if quick else 10):
            self._add(f"Tracker {turn}", self._tracker)
            self._add(f"many cut-outs {turn}", self._many_cutouts)
            self._add(f"large frame {turn}", self._large_frame)
        if not quick:
            self._add("frame in tiles", self._tiles)

    def _add(self, name: str, case: Callable[..., Columns], *given: Any) -> None:
        self.cases[name] = lambda rng: case(rng, *given)

    def _fit_spots(
        self, rng: np.random.Generator, kind: tuple[str, str], estimator: str, count: int = 0
    ) -> Columns:
        shape = (random_side(rng), random_side(rng))
        if rng.random() < 0.6:
            shape = (shape[0], shape[0])
        count = count or int(rng.choice([1, 40, 150]))
        spots = random_cutouts(rng, count, shape, DTYPES[rng.integers(len(DTYPES))])
        given = random_fit(rng, kind, estimator)
        known = random_maps(rng, given, spots.shape)
        start = random_start(rng, given, count, shape)
        return columns_of(fit_spots(spots, start=start, **known, **given, **self._run))

    def _many_cutouts(self, rng: np.random.Generator) -> Columns:
        kind = KINDS[rng.integers(len(KINDS))]
        return self._fit_spots(rng, kind, ESTIMATORS[rng.integers(3)], 1024 + rng.integers(900))

    def _fit_at(self, rng: np.random.Generator, kind: tuple[str, str], estimator: str) -> Columns:
        movie, sigma = random_movie(
            rng, int(rng.integers(1, 6)), random_shape(rng), DTYPES[rng.integers(len(DTYPES))]
        )
        if rng.random() < 0.4:
            movie = movie[0]
        count = int(rng.choice([2, 25, 60]))
        highest = np.array(movie.shape)
        centers = rng.uniform(-2, highest + 1, (count, movie.ndim))
        centers[:, :-2] = rng.integers(highest[:-2], size=(count, movie.ndim - 2))
        centers[: count // 3, -2:] = np.rint(centers[: count // 3, -2:])
        centers[-1] = centers[0]
        given = random_fit(rng, kind, estimator) | random_neighbours(rng)
        if rng.random() < 0.6:
            given["sigma"] = sigma
        known = random_maps(rng, given, movie.shape)
        roi_size = random_roi(rng)
        return columns_of(fit_at(movie, centers, roi_size, **known, **given, **self._run))

    def _localize(self, rng: np.random.Generator, kind: tuple[str, str], estimator: str) -> Columns:
        movie, given, known = self._localized(rng, kind, estimator)
        return columns_of(localize(movie, random_roi(rng), **known, **given, **self._run))

    def _localize_iter(self, rng: np.random.Generator) -> Columns:
        kind, estimator = KINDS[rng.integers(len(KINDS))], ESTIMATORS[rng.integers(3)]
        movie, given, known = self._localized(rng, kind, estimator)
        parts = localize_iter(movie, random_roi(rng), **known, **given, **self._run)
        # The number of parts may depend on timing.
        found = together(columns_of(part) for part in parts)
        return {name: values for name, values in found.items() if "." not in name}

    def _localized(
        self, rng: np.random.Generator, kind: tuple[str, str], estimator: str
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Return a movie, settings, and per-pixel maps."""
        frames = int(rng.choice([1, 3, 12]))
        movie, sigma = random_movie(
            rng, frames, random_shape(rng), DTYPES[rng.integers(len(DTYPES))]
        )
        if frames == 1:
            movie = movie[0]
        elif frames == 12 and rng.random() < 0.4:
            movie = movie.reshape(3, 4, *movie.shape[1:])
        given = random_fit(rng, kind, estimator) | random_neighbours(rng)
        given |= random_detection(rng, sigma)
        known = random_maps(rng, given, movie.shape)
        if rng.random() < 0.25:
            known["mask"] = rng.random(movie.shape[-2:]) < 0.9
        if movie.ndim == 3 and rng.random() < 0.3:
            known["frames"] = slice(0, None, 2)
        return movie, given, known

    def _fitter(self, rng: np.random.Generator, kind: tuple[str, str], estimator: str) -> Columns:
        given = random_fit(rng, kind, estimator) | {"sigma": 1.3}
        given |= random_neighbours(rng)
        side = int(2 * rng.integers(2, 8) + 1)
        dtype = DTYPES[rng.integers(len(DTYPES))]
        known = random_maps(rng, given, (side, side)) if rng.random() < 0.3 else {}
        if given["estimator"] == "wlse" and not known:
            given["variance"] = 3.0

        def cutouts() -> Iterator[Columns]:
            with Fitter(side, **known, **given, **self._run) as fitter:
                for count in (20, 1, 37, 0, 5):
                    spots = random_cutouts(rng, count, (side, side), dtype)
                    yield columns_of(
                        fitter.fit(spots, random_start(rng, given, count, (side,) * 2))
                    )

        def frames() -> Iterator[Columns]:
            shape = random_shape(rng)
            movie, _ = random_movie(rng, 3, shape, dtype)
            with Fitter(side, **given, **self._run) as fitter:
                for frame in movie:
                    centers = rng.uniform(-1, shape, (int(rng.integers(1, 30)), 2))
                    yield columns_of(fitter.fit_at(frame, centers))

        found = {f"fit.{name}": values for name, values in together(cutouts()).items()}
        return found | {f"fit_at.{name}": values for name, values in together(frames()).items()}

    def _detect_spots(self, rng: np.random.Generator) -> Columns:
        dtype = DTYPES[rng.integers(len(DTYPES))]
        movie, sigma = random_movie(rng, int(rng.integers(1, 5)), random_shape(rng), dtype)
        given = random_detection(rng, sigma) | {"threads": [None, 1][rng.integers(2)]}
        known: dict[str, Any] = {}
        if rng.random() < 0.3:
            known["mask"] = rng.random(movie.shape[-2:]) < 0.8
        if rng.random() < 0.3:
            known["bad_pixels"] = rng.random(movie.shape[-2:]) < 0.02
        return {"places": detect_spots(movie, **known, **given, **self._run)}

    def _estimate_sigma(self, rng: np.random.Generator) -> Columns:
        dtype = DTYPES[rng.integers(len(DTYPES))]
        movie, _ = random_movie(rng, int(rng.integers(1, 9)), random_shape(rng), dtype)
        width = estimate_sigma(movie, **self._run)
        return {name: array_of(value) for name, value in width._asdict().items()}

    def _noise_model(self, rng: np.random.Generator) -> Columns:
        dtype = DTYPES[rng.integers(len(DTYPES))]
        movie, _ = random_movie(rng, int(rng.integers(1, 9)), random_shape(rng), dtype)
        return noise_of(noise_model(movie, **self._run))

    def _tracker(self, rng: np.random.Generator) -> Columns:
        shape, count = (128, 160), 7
        home = rng.uniform(15, np.array(shape) - 15, (count, 2))
        shift = np.cumsum(rng.normal(0, 0.15, (30, 2)), axis=0)
        shift[20:] += 9
        options = {"rotation": bool(rng.random() < 0.4), "scale": bool(rng.random() < 0.3)}
        given = {} if rng.random() < 0.5 else {"fiducials": home + shift[0]}
        kept = []
        with Tracker(**given, **options, sigma=1.3, **self._run) as tracker:
            for number, moved in enumerate(shift):
                light = np.full(shape, 10.0)
                for i, (y, x) in enumerate(home + moved):
                    v = np.exp(-0.5 * ((np.arange(shape[0]) - y) / 1.3) ** 2)
                    u = np.exp(-0.5 * ((np.arange(shape[1]) - x) / 1.3) ** 2)
                    light += (i != 2 or number % 7 != 3) * 400 * v[:, None] * u
                found = tracker.update(rng.poisson(light).astype(np.uint16), float(number))
                values = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
                values["problem"] = bool(values["problem"])
                values["positions"] = values["positions"].ravel()
                kept.append({name: np.array(value, float) for name, value in values.items()})
        return together(iter(kept))

    def _large_frame(self, rng: np.random.Generator) -> Columns:
        side = 700 if self._quick else 1700
        movie, sigma = random_movie(rng, 2, (side, side + 64), DTYPES[rng.integers(len(DTYPES))])
        given = random_detection(rng, sigma) | random_neighbours(rng)
        return columns_of(localize(movie, **given, **self._run))

    def _tiles(self, rng: np.random.Generator) -> Columns:
        """A frame of more than 256 MiB, which is processed in tiles, with few spots."""
        side, count = 1200, 200
        light = spots_image(rng, (side, side), count, sigma=1.3, photons=2000.0)
        frame = np.tile(rng.poisson(light + 10).astype(np.uint16), (10, 10))
        frame[::7] += rng.integers(0, 3, frame.shape[1], np.uint16)
        return columns_of(localize(frame, **self._run))


def run(name: str, case: Case) -> Columns:
    """Return the result of a case, with types of warnings and errors, as messages may change."""
    # Seeded by the name, so that a case does not depend on others.
    rng = np.random.default_rng(list(name.encode()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            columns = case(rng)
        except (TypeError, ValueError) as error:
            columns = {"error": np.array(type(error).__name__), "(why)": np.array(str(error))}
    kinds = sorted({one.category.__name__ for one in caught})
    return columns | {"warnings": np.array(",".join(kinds))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--only", default="", help="run the cases with this in their names")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    cases = Cases(options.backend, options.quick).cases
    names = [name for name in cases if options.only in name]
    for number, name in enumerate(names):
        np.savez(options.folder / f"{number}.npz", **run(name, cases[name]))
    (options.folder / "cases.json").write_text(json.dumps(names))
    print(f"{len(names)} cases by {Path(napari_spotfit.__file__).parent}", file=sys.stderr)


if __name__ == "__main__":
    main()
