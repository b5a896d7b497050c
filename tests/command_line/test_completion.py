"""What a shell completes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "words",
    [
        "localize mov",
        "localize movie.tif -o mov",
        "localize movie.tif --labels mov",
        "convert mov",
        "drift mov",
    ],
)
def test_paths_are_completed(words):
    result = subprocess.run(
        [sys.executable, "-m", "napari_spotfit"],
        env=os.environ
        | {
            "_NAPARI_SPOTFIT_COMPLETE": "bash_complete",
            "COMP_WORDS": f"napari-spotfit {words}",
            "COMP_CWORD": str(len(words.split())),
        },
        capture_output=True,
        encoding="utf-8",
    )
    assert result.stdout == "file,mov\n", result.stderr
