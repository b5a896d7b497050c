"""What becomes of each image file of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: How far a file is. What is kept was complete before, and made of the same.
WAITING, RUNNING, DONE, KEPT, FAILED, STOPPED = (
    "waiting", "running", "done", "kept", "failed", "stopped",
)  # fmt: skip


@dataclass
class Outcome:
    """What became of one image file, or what there is of it up to now."""

    file: str
    state: str = WAITING
    output: str = ""
    #: The table of its cells, where there are labels.
    cells: str = ""
    frames: int = 0
    frames_in_all: int = 0
    spots: int = 0
    good: int = 0
    sigma: float | None = None
    roi_size: Any = None
    backend: str = ""
    #: Parts that an earlier run has left, from which this one goes on.
    parts_before: int = 0
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def rate(self) -> float:
        """Frames per second."""
        return self.frames / max(self.seconds, 1e-9)
