"""What every backend offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple


class Load(NamedTuple):
    """What keeps a backend busy."""

    #: Of a block of frames.
    block_bytes: int
    #: How many blocks are worked on side by side.
    workers: int


class Backend(NamedTuple):
    """What every backend offers, with one signature each."""

    #: What runs the fits, for people: 'CPU (2 threads)', 'NVIDIA H200', '2 × NVIDIA H200'.
    name: str
    #: Takes frames, NumPy's or already there, to where the other two read them.
    upload: Callable[[Any], Any]
    #: Finds spots in frames; returns their :class:`~.detection.candidates.Candidates`.
    detect: Callable[..., Any]
    #: Fits ROIs where they lie in frames, as :func:`~.own_pixels.fit_own_pixels` says; returns
    #: the columns of SpotFits.
    fit_rois: Callable[..., dict[str, Any]]
    #: Finds pixels of ROIs that count in no fit, as :func:`~.lost_pixels.lost_pixels` says.
    lost_pixels: Callable[..., Any]
    #: How many frames, and how many bytes of them, keep it busy.
    frames_at_once: int
    block_bytes: int
    #: How many blocks of frames are worked on side by side.
    workers: int
    #: Says what has done the work up to now, by name.
    ran_on: Callable[[], str]
    #: Prepares fits of cut-outs that are made again and again, as
    #: :class:`~.cpu.prepared.PreparedFits` says.
    prepare_fits: Callable[..., Callable[..., dict[str, Any]]]
    #: Prepares fits at places of frames of the host's, as
    #: :class:`~.cpu.place_fits.PlaceFits` says.
    prepare_places: Callable[..., Callable[..., Any]]
    #: Whether cut-outs of the host may have any number type and layout, as they are converted on
    #: the way.
    reads_all: bool = False
    #: What keeps it busier, but takes more memory: for long movies in memory.
    long_movies: Load | None = None
    #: What settings call it.
    kind: Literal["cpu", "cuda"] = "cpu"
