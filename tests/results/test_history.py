"""The history of fits follows them through selections, files, layers and joining."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from napari_spotfit import Drift, SpotFits, link_spots, load_fits, save_fits, subtract_drift
from napari_spotfit.files.table import Step
from napari_spotfit.results.saving import fits_of


def movie_fits(history: tuple[Step, ...] = (), count: int = 6) -> SpotFits:
    columns: dict[str, Any] = {
        "frame": np.arange(count),
        "y": np.linspace(3, 4, count),
        "x": np.full(count, 5.0),
        "stop_condition": np.full(count, 6, np.uint8),
    }
    return SpotFits(columns, ("frame",), history=history)


STEPS = (
    Step("merge_blinks", {"max_dark_frames": np.int64(2), "radius": None, "sizes": np.arange(2)}),
    Step("subtract_drift", {"name": "µ “x”, y\n"}, "1.0"),
)


def small_drift(by: float = 0.1, count: int = 6) -> Drift:
    zeros = np.zeros(count)
    return Drift(by * np.arange(count), zeros, zeros, zeros, np.ones(count, np.int64))


def test_fits_without_steps_have_no_history() -> None:
    assert movie_fits().history == ()
    assert "history" not in movie_fits().columns


@pytest.mark.parametrize("ending", [".spots.csv", ".spots.parquet"])
def test_files_keep_it(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    movie_fits(STEPS).save(path)
    assert load_fits(path).history == STEPS
    save_fits(iter([movie_fits(STEPS), movie_fits(STEPS)]), path)
    assert load_fits(path).history == STEPS


def test_old_files_have_none() -> None:
    table = movie_fits(STEPS).to_table()
    assert fits_of(replace(table, about=replace(table.about, history=()))).history == ()


def test_rows_copies_and_columns_keep_it() -> None:
    fits = movie_fits(STEPS)
    changed = fits.with_columns(fits.columns | {"label": np.zeros(6)})
    for other in (fits[:2], fits[fits.y > 3.5], fits.copy(), fits.to_host(), changed, *fits):
        assert other.history == STEPS
    assert fits.with_columns(fits.columns, STEPS[0]).history == (*STEPS, STEPS[0])


def test_it_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        movie_fits().history = STEPS


def test_steps_append_themselves() -> None:
    fits = subtract_drift(link_spots(movie_fits(), 2.0), small_drift())
    assert [step.name for step in fits.history] == ["link_spots", "subtract_drift"]
    assert fits.history[0].arguments == {"max_distance": 2.0, "memory": 0, "least_frames": 1}


def test_a_drift_subtracted_twice_warns() -> None:
    fits = subtract_drift(movie_fits(), small_drift())
    with pytest.warns(UserWarning, match="twice"):
        subtract_drift(fits, small_drift())
    subtract_drift(fits, small_drift(0.2))  # what is left of the drift


def test_a_loaded_table_still_knows_its_drift(tmp_path: Path) -> None:
    subtract_drift(movie_fits(), small_drift()).save(tmp_path / "a.spots.csv")
    with pytest.warns(UserWarning, match="twice"):
        subtract_drift(load_fits(tmp_path / "a.spots.csv"), small_drift())


def test_joining_needs_the_same_steps() -> None:
    with pytest.raises(ValueError, match="merge_blinks, subtract_drift, and none"):
        SpotFits.concatenate([movie_fits(STEPS), movie_fits()])
    other = (STEPS[0], Step("subtract_drift", {"name": "another"}))
    joined = SpotFits.concatenate([movie_fits(STEPS), movie_fits(other)])
    assert joined.history == STEPS


@pytest.mark.parametrize("wrong", [5, [3], [{"name": "a"}], [{"name": 3, "arguments": {}}]])
def test_damaged_history_is_refused(tmp_path: Path, wrong: Any) -> None:
    import json

    path = tmp_path / "a.spots.csv"
    movie_fits(STEPS).save(path)
    lines = path.read_text(encoding="utf-8").split("\n")
    place = next(i for i, line in enumerate(lines) if line.startswith("# history: "))
    lines[place] = f"# history: {json.dumps(wrong)}"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match="damaged"):
        load_fits(path)


def test_layers_keep_it() -> None:
    from napari_spotfit.widgets.layers.points import fits_of_features, points_arguments

    made = points_arguments(movie_fits(STEPS))
    assert fits_of_features(made["features"], made["metadata"]).history == STEPS
