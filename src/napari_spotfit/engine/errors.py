"""What a backend raises and warns of."""

from __future__ import annotations


class BackendUnavailableError(RuntimeError):
    """The backend that was asked for cannot run here; the message says why, and the cure."""


class BackendFallbackWarning(RuntimeWarning):
    """The GPU failed during a run, and the CPU did the rest; the results are complete."""
