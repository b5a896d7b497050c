"""The README's Python runs as written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from same_fits import assert_same

import napari_spotfit as spotfit

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_script_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = (block for block in BLOCKS if "viewer" not in block)
    script, files, movies, parts, many, loop, drift, cluster, closed, models = blocks
    names: dict = {}
    exec(compile(script, "README.md", "exec"), names)
    assert len(names["fits"]) == 100_000
    assert len(names["table"]) > 3000
    exec(compile(files, "README.md", "exec"), names)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["movie.spots.parquet", "movie.toml"]
    assert_same(names["again"], names["fits"])
    assert 0 < spotfit.per_label(names["good"], names["cells"])["count"].sum() < len(names["good"])
    exec(compile(movies, "README.md", "exec"), names)
    assert_same(spotfit.load_fits("long.spots.parquet"), names["fits"])
    assert names["count"] == len(names["fits"])
    assert names["image"].shape == names["movie"].shape
    exec(compile(parts, "README.md", "exec"), names)
    whole = Path("long.spots.parquet").read_bytes()
    assert Path("resumed.spots.parquet").read_bytes() == whole
    assert Path("spots.spots.parquet").read_bytes() == whole
    exec(compile(many, "README.md", "exec"), names)
    assert names["outcome"].state == "done"
    assert len(list(Path("tables").glob("movie*.npy.spots.parquet"))) == 2
    exec(compile(loop, "README.md", "exec"), names)
    assert len(names["fits"]) == 2
    exec(compile(drift, "README.md", "exec"), names)
    assert names["drift"].y[-1] == pytest.approx(0.05 * 39 / 20 * 10, abs=0.1)
    assert names["still"].y[names["linked"].track == 0].std() < 0.05
    exec(compile(cluster, "README.md", "exec"), names)
    table = spotfit.localize(names["movie"]).to_dataframe()
    assert names["light"] == pytest.approx(table.photons[table.good].mean())
    assert sum(part.spots for part in names["written"]) == len(table)
    assert Path("parts.spots.parquet").read_bytes() == whole
    exec(compile(closed, "README.md", "exec"), names)
    held = names["table"][50:]
    assert len(names["table"]) == 250
    assert (held[["y", "x"]].abs().max() < 0.3).all()
    assert (held["correction"] == "moved").all()
    exec(compile(models, "README.md", "exec"), names)
    assert names["fits"].converged.mean() > 0.9


def test_the_consoles_lines_run():
    components = pytest.importorskip("napari.components")
    from napari_spotfit.widgets.samples import molecules

    (block,) = (block for block in BLOCKS if "viewer.add_layer" in block)
    viewer = components.ViewerModel()
    for data, arguments, kind in molecules():
        getattr(viewer, f"add_{kind}")(data, **arguments)
    exec(compile(block, "README.md", "exec"), {"viewer": viewer})
    assert len(viewer.layers) == 2
    assert len(viewer.layers[-1].data) > 100


def test_every_stop_condition_and_setting_is_named_rightly():
    from napari_spotfit import StopCondition

    named = set(re.findall(r"^\| ([^|`]+) \| `([A-Z_]+)` \|", README, re.MULTILINE))
    assert named == {(condition.words, condition.name) for condition in StopCondition}


def test_all_brings_what_the_readme_shows():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for name in ("hdf5", "images", "nd2", "ndtiff", "parquet", "tracking"):
        assert set(extras[name]) <= set(extras["all"]), name


def test_commands_in_messages_can_be_copied_into_a_shell():
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for command in ("pip install", "python -m", "napari-spotfit convert"):
            for rest in text.split(command)[1:]:
                line = rest.partition("\n")[0]
                assert not set("“”‘’") & set(line.partition(". ")[0]), f"{path.name}: {line}"
