"""Who is told how far a run is."""

from __future__ import annotations


def check_progress(progress: object, *, lazy: bool = False) -> None:
    """Raise an error if progress cannot be told to this, or there is none as all is done later."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of two numbers; got {progress!r}")
    if lazy and progress is not None:
        raise ValueError("with lazy=True nothing is done yet; Dask tells of its progress itself")
