"""Commands on tables of fits: merging, drift, precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from blinking import table_of
from click.testing import CliRunner

from napari_spotfit import load_fits, merge_blinks
from napari_spotfit.command_line.main import main


def run(*words: object) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: object) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code not in (0, None)
    assert isinstance(result.exception, SystemExit)
    return result.output


@pytest.fixture
def blinks(tmp_path: Path) -> Path:
    path = tmp_path / "blinks.spots.csv"
    table_of([0, 1, 3, 4], [5, 5, 5, 9], [5, 5, 5, 9]).save(path)
    return path


def test_merge(blinks: Path, tmp_path: Path) -> None:
    output, members = tmp_path / "events.spots.parquet", tmp_path / "members.spots.csv"
    text = run("merge", blinks, "-o", output, "--members", members, "--max-dark-frames", 1)
    assert "2 events of 4 spots" in text
    assert load_fits(members).parent.tolist() == [0, 0, 0, 1]
    events, expected = load_fits(output), merge_blinks(load_fits(blinks))
    assert events.history == expected.history
    for name, values in expected.columns.items():
        assert np.array_equal(events.columns[name], values, equal_nan=values.dtype.kind == "f")


def test_merge_says_what_is_wrong(blinks: Path, tmp_path: Path) -> None:
    output = tmp_path / "events.spots.csv"
    assert "needs a radius" in refused("merge", blinks, "-o", output, "--rule", "picasso")
    run("merge", blinks, "-o", output)
    assert "merged before" in refused("merge", output, "-o", output)
