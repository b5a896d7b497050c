"""Generated parts of files are up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "write_tables.py"
spec = importlib.util.spec_from_file_location("write_tables", TOOL)
assert spec is not None
assert spec.loader is not None
write_tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(write_tables)


@pytest.mark.parametrize("name", write_tables.PARTS)
def test_a_file_has_the_tables_of_the_code(name: str) -> None:
    text = (write_tables.ROOT / name).read_text(encoding="utf-8")
    assert write_tables.written(name) == text, "run python tools/write_tables.py"
