"""Time saving and loading a million fits, from Python and by napari.

``experiment`` is for the table of a whole experiment, ten million rows as Parquet and for Picasso
and ThunderSTORM. Without pyarrow, CSV is written by Python.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from common import Work, bar, in_turns, run

import napari_spotfit as spotfit

#: Largest seconds to save or load a million rows, and ten million.
BARS = {".spots.parquet": 2.0, ".spots.csv": 5.0}
EXPERIMENT = {".spots.parquet": 10.0, "_locs.hdf5": 20.0, ".thunderstorm.csv": 60.0}


def fits_of(options: argparse.Namespace, count: int) -> spotfit.SpotFits:
    """Return fits with all columns of a movie, and numbers with all digits."""
    count = 20_000 if options.quick else options.spots or count
    movie, _ = spotfit.simulate_movie(40, seed=1)
    fits, rng = spotfit.localize(movie), np.random.default_rng(1)
    columns = fits[np.random.default_rng(0).integers(0, len(fits), count)].columns
    for name, values in columns.items():
        if values.dtype.kind == "f":
            digits = values * (1 + 1e-3 * rng.standard_normal(count, np.float32))
            columns[name] = digits.astype(values.dtype)
    columns["frame"] = np.sort(rng.integers(0, 10_000, count))
    print(f"\n{count} fits of {len(columns)} columns; seconds, median and longest:")
    return spotfit.SpotFits(columns, fits.index_names, fits.settings)


def line(options: argparse.Namespace, what: str, work: Work, most: float | None) -> None:
    """Print the median and the longest time, and whether the limit is met."""
    times = in_turns({"": work}, 1 if options.quick else options.repeats)[""]
    middle = statistics.median(times)
    print(f"  {what:44}{middle:7.2f}{max(times):7.2f}  {bar(middle, most=most)}", flush=True)


def python(options: argparse.Namespace) -> None:
    """Save and load by the functions of the package."""
    fits = fits_of(options, 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        for end, most in BARS.items():
            path = Path(folder, f"spots{end}")
            line(options, f"save {end}", partial(fits.save, path), most)
            line(options, f"load {end}", partial(spotfit.load_fits, path), most)
            same = spotfit.load_fits(path).columns
            for name, values in fits.columns.items():
                assert np.array_equal(same[name], values, equal_nan=values.dtype.kind == "f")
            print(f"  {'':44}{path.stat().st_size / 1e6:7.0f} MB")


def napari(options: argparse.Namespace) -> None:
    """Save and open as a layer, without napari's own time for it."""
    from internals import layer_files

    fits = fits_of(options, 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        for end, most in BARS.items():
            path = str(Path(folder, f"layer{end}"))
            save, load = layer_files(fits, path)
            line(options, f"File ▸ Save of a layer as {end}", save, most)
            line(options, f"open {end} as a layer", load, most)


def experiment(options: argparse.Namespace) -> None:
    """Save and load the table of a whole experiment, for other programs too."""
    fits = fits_of(options, 10_000_000)
    with tempfile.TemporaryDirectory() as folder:
        for end, most in EXPERIMENT.items():
            path = Path(folder, f"experiment{end}")
            line(options, f"save {end}", partial(fits.save, path, pixel_size=100), most)
            load = partial(spotfit.load_fits, path, pixel_size=100)
            line(options, f"load {end}", load, most)
            print(f"  {'':44}{path.stat().st_size / 1e6:7.0f} MB")
            path.unlink()


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spots", type=int, help="in the table")
    parser.add_argument("--repeats", type=int, default=5)


if __name__ == "__main__":
    # Warnings of lost columns would be repeated each time.
    warnings.simplefilter("ignore", spotfit.FormatWarning)
    run(__doc__, {"python": python, "napari": napari, "experiment": experiment}, _add)
