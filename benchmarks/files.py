"""How long a million fits take to be saved and loaded, from Python and by napari.

``--spots`` says how many. CSV is written and read without pyarrow, too, which has no bar: so it is
where pyarrow cannot be installed. ``--experiment`` is about the table of a whole experiment
instead, ten million rows as Parquet and for Picasso and ThunderSTORM.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import napari_spotfit as spotfit
from napari_spotfit.files import csv_file

#: Seconds that a million rows may take, either way.
BARS = {".spots.parquet": 2.0, ".spots.csv": 5.0}
#: Seconds that ten million may take.
EXPERIMENT = {".spots.parquet": 10.0, "_locs.hdf5": 20.0, ".thunderstorm.csv": 60.0}


def million(count: int) -> spotfit.SpotFits:
    """Return so many fits with all columns of a movie's, with numbers of all digits."""
    movie, _ = spotfit.simulate_movie(40, seed=1)
    fits = spotfit.localize(movie)
    rows = np.random.default_rng(0).integers(0, len(fits), count)
    columns = fits[rows].columns
    rng = np.random.default_rng(1)
    for name, values in columns.items():
        if values.dtype.kind == "f":
            columns[name] = values * (1 + 1e-3 * rng.standard_normal(count, np.float32))
            columns[name] = columns[name].astype(values.dtype)
    columns["frame"] = np.sort(rng.integers(0, 10_000, count))
    return spotfit.SpotFits(columns, fits.index_names, fits.settings)


def seconds(work: Callable[[], object], repeats: int) -> list[float]:
    """Return how long each of some calls takes, after one that does not count."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def line(what: str, times: list[float], bar: float | None) -> None:
    """Print the median and the longest, and whether the bar is met."""
    middle, longest = statistics.median(times), max(times)
    end = "" if bar is None else f"  (≤ {bar:g}{'' if middle <= bar else ', missed'})"
    print(f"  {what:44}{middle:7.2f}{longest:7.2f}{end}")


def in_python(fits: spotfit.SpotFits, folder: Path, repeats: int) -> None:
    """Save and load by the functions of the package."""
    for end, bar in BARS.items():
        path = folder / f"spots{end}"
        line(f"save {end}", seconds(partial(fits.save, path), repeats), bar)
        line(f"load {end}", seconds(partial(spotfit.load_fits, path), repeats), bar)
        same = spotfit.load_fits(path)
        for name, values in fits.columns.items():
            assert np.array_equal(same.columns[name], values, equal_nan=values.dtype.kind == "f")
        print(f"  {'':44}{path.stat().st_size / 1e6:7.0f} MB")


def without_pyarrow(fits: spotfit.SpotFits, folder: Path) -> None:
    """Do the same for CSV with Python alone, once."""
    find, path = csv_file.find_spec, folder / "plain.spots.csv"
    csv_file.find_spec = lambda name: None
    try:
        for what, work in (("save", fits.save), ("load", spotfit.load_fits)):
            start = time.perf_counter()
            work(path)
            line(f"{what} .spots.csv without pyarrow", [time.perf_counter() - start], None)
    finally:
        csv_file.find_spec = find


def by_napari(fits: spotfit.SpotFits, folder: Path, repeats: int) -> None:
    """Save and open as a layer, without the time that napari itself takes to make one."""
    from napari_spotfit.widgets.saved_layers import (
        attributes_of,
        read_layer,
        write_csv,
        write_parquet,
    )

    layer = spotfit.to_points_layer(fits)
    known = attributes_of(layer)
    for (end, bar), write in zip(BARS.items(), (write_parquet, write_csv), strict=True):
        path = str(folder / f"layer{end}")
        save = partial(write, path, layer.data, known)
        line(f"File ▸ Save of a layer as {end}", seconds(save, repeats), bar)
        line(f"open {end} as a layer", seconds(partial(read_layer, path), repeats), bar)


def experiment(fits: spotfit.SpotFits, folder: Path, repeats: int) -> None:
    """Save and load the table of a whole experiment, for other programs too."""
    for end, bar in EXPERIMENT.items():
        path = folder / f"experiment{end}"
        line(f"save {end}", seconds(partial(fits.save, path, pixel_size=100), repeats), bar)
        load = partial(spotfit.load_fits, path, pixel_size=100)
        line(f"load {end}", seconds(load, repeats), bar)
        print(f"  {'':44}{path.stat().st_size / 1e6:7.0f} MB")
        path.unlink()


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spots", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--experiment", action="store_true", help="ten million, for others too")
    options = parser.parse_args()
    count = options.spots or (10_000_000 if options.experiment else 1_000_000)
    # What a format has no place for is told each time.
    warnings.simplefilter("ignore", spotfit.FormatWarning)
    fits = million(count)
    print(
        f"{count} fits of {len(fits.columns)} columns, Python "
        f"{platform.python_version()}, {platform.machine()}; seconds, median and longest of "
        f"{options.repeats}:"
    )
    with tempfile.TemporaryDirectory() as name:
        if options.experiment:
            experiment(fits, Path(name), options.repeats)
            return
        in_python(fits, Path(name), options.repeats)
        without_pyarrow(fits, Path(name))
        by_napari(fits, Path(name), options.repeats)


if __name__ == "__main__":
    main()
