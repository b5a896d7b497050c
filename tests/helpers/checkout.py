"""The tests' own checkout, and copies of it that reuse compiled objects."""

from __future__ import annotations

import contextlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def share_compiled(copy: Path) -> None:
    """Share compiled objects with a copy of the checkout."""
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    # Windows allows links in developer mode only; else the copy takes its time.
    with contextlib.suppress(OSError):
        (copy / "build").symlink_to(build, target_is_directory=True)
