"""If a writer is killed at any file operation, the old or the new file is complete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork, and a limit of size")

SCRIPT = Path(__file__).parents[1] / "helpers" / "kills.py"
#: And how often each is killed at least.
WRITERS = {
    "save parquet": 8, "save csv": 8, "save anew": 6, "save picasso": 16, "save_fits": 8,
    "save_fits parquet": 8, "settings": 8, "drift": 8, "localize": 30, "resume": 25, "folder": 20,
    "batch": 30, "log": 30, "recovery": 8,
}  # fmt: skip
if find_spec("napari") is None:
    del WRITERS["recovery"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("kills")
    done = subprocess.run(
        [sys.executable, SCRIPT, folder, *WRITERS],
        capture_output=True, encoding="utf-8", env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("writer", WRITERS)
def test_a_writer_is_killed_at_each_operation(
    found: dict[str, dict[str, Any]], writer: str
) -> None:
    about = found[writer]
    assert about["kills"] >= WRITERS[writer]
    assert about["changed"]
    assert not about["faults"]
