"""Where the tests' own checkout is, and copies of it that need not compile everything again."""

from __future__ import annotations

import contextlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def share_compiled(copy: Path) -> None:
    """Let a copy of the checkout use what was compiled here, and add to it."""
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    # Windows allows links in developer mode only; else the copy takes its time.
    with contextlib.suppress(OSError):
        (copy / "build").symlink_to(build, target_is_directory=True)
