"""Define the interface of a backend: blocks of frames, positions in them, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..images.pixel_calibration import PixelCalibration, Planes
from ..settings.settings import Settings
from .candidates import Candidates
from .crowds import Crowds
from .fit_job import FitJob
from .flags import Flag
from .kernel_arguments import invalid_columns, roi_columns

#: Columns of SpotFits, by name.
Columns = dict[str, Any]
#: The first of some fits, and the end behind the last one.
Range = tuple[int, int]


class Highest(NamedTuple):
    """The largest pixel of a frame, when only a part of it is loaded."""

    #: That of the part, and what returns that of all.
    here: float
    of_all: Callable[[], float]


class Positions(NamedTuple):
    """Where spots are in a block of frames."""

    #: (z,) y and x of each in pixels of its frame, shape (n, axes).
    places: NDArray[np.float64]
    #: The frame of each by its place in the block, in rising order; None: all are in the first.
    frame: NDArray[np.int64] | None = None
    #: Where the search for each begins along z, in nm, in float32; None: a measured PSF finds out.
    z: NDArray[np.float32] | None = None
    #: How far each was detected to stand out of the noise, as a normal deviate; None: not known.
    score: NDArray[np.float32] | None = None

    @property
    def frames(self) -> NDArray[np.int64]:
        """The frame of each."""
        return np.zeros(len(self.places), np.int64) if self.frame is None else self.frame


@dataclass(eq=False, slots=True)
class Block:
    """Frames, or cut-outs, with the weights, variances and masks of their pixels.

    Frames are planes (n, Y, X) or volumes (n, Z, Y, X).
    """

    #: As fits read them, corrected, NaN where they are bad; and as the camera took them.
    pixels: Any
    taken: Any
    #: Weights or variances, and read-out variances for the standard errors.
    planes: Planes | None = None
    variances: Planes | None = None
    #: Which pixels are bad, (1, …, Y, X) or (frames, …, Y, X).
    bad: Any = None
    #: Where to search for spots, and variances of pixels beside the noise that the search knows.
    mask: NDArray[np.bool_] | None = None
    noise_map: NDArray[np.float32] | None = None
    #: Maximum and level of the whole frame, where only some of its rows, or planes, are here.
    highest: Highest | None = None
    level: float | None = None
    #: Where only some of its rows, or planes, are at all: the first one, and how many there are.
    first_row: int = 0
    height: int | None = None
    #: The frames where a backend has put them.
    uploaded: Any = None

    @classmethod
    def of(cls, calibration: PixelCalibration, numbers: NDArray[np.int64], pixels: Any) -> Block:
        """Return frames of these numbers, corrected and calibrated.

        Bad pixels are NaN, so that neither spots nor hot pixels are found beside them.
        """
        return cls(
            calibration.corrected(numbers, pixels, mark_bad=True),
            pixels,
            calibration.planes(numbers, pixels),
            calibration.variances(numbers, pixels),
            calibration.bad_pixels(numbers),
        )

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Rows and columns of the whole frame, of a volume planes, rows and columns."""
        first, *others = self.pixels.shape[1:]
        return self.height or first, *others


def corners_of(
    columns: dict[str, NDArray[Any]], block: Block, frames: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return where in a block the ROIs of fits are: frame, and the first pixel along each axis."""
    roi = [columns[name] for name in roi_columns(block.pixels.ndim - 1)]
    corners = np.column_stack([frames, roi[0] - block.first_row, *roi[1:]])
    return corners[roi[0] >= 0]


def outside(count: int, settings: Settings) -> dict[str, NDArray[Any]]:
    """Return the columns of fits outside the image, which are INVALID."""
    columns = invalid_columns(count, settings)
    names = roi_columns(settings.dimensions)
    columns |= {name: np.full(count, -1, np.int32) for name in names}
    columns["flags"] = np.full(count, Flag.NOT_CONVERGED, np.uint32)
    return columns


def in_order(parts: list[NDArray[Any]], order: NDArray[np.int64]) -> NDArray[Any]:
    """Join parts whose rows are in the given order, and undo the order."""
    joined = np.concatenate(parts)
    result = np.empty_like(joined)
    result[order] = joined
    return result


class Load(NamedTuple):
    """Sizes and numbers of blocks that keep a backend busy."""

    #: Of a block of frames: how many frames, and how many bytes.
    frames: int
    block_bytes: int
    #: How many blocks are worked on side by side.
    workers: int


class BlockFitter(Protocol):
    """Repeats fits of one job, one thread at a time, in the same memory."""

    def fit(
        self,
        block: Block,
        positions: Positions | None = None,
        start: NDArray[np.float32] | None = None,
    ) -> Columns:
        """Return what :meth:`Backend.fit` does; the next call may overwrite the columns."""


class Backend(Protocol):
    """Detects and fits spots: the CPU, GPUs, or GPUs with a fallback."""

    @property
    def name(self) -> str:
        """What runs the fits: 'CPU (2 threads)', 'NVIDIA H200', '2 × NVIDIA H200'."""

    @property
    def kind(self) -> Literal["cpu", "cuda"]:
        """What settings call it."""

    @property
    def load(self) -> Load:
        """What keeps it busy."""

    @property
    def long_movies(self) -> Load | None:
        """What keeps it busier, but takes more memory: for long movies in memory."""

    @property
    def reads_all(self) -> bool:
        """Whether the host's cut-outs may have any number type and layout."""

    def ran_on(self) -> str:
        """Return what has done the work up to now, by name."""

    def detect(self, block: Block, settings: Settings) -> Candidates:
        """Find spots in frames.

        Parameters
        ----------
        block : Block
            The frames; the backend may keep them in its memory for the fits to come.
        settings : Settings
            What finds spots.
        """

    def fit(
        self,
        job: FitJob,
        block: Block,
        positions: Positions | None = None,
        start: NDArray[np.float32] | None = None,
        *,
        on_device: bool = False,
    ) -> Columns:
        """Fit the ROIs around positions in frames, without the pixels that do not count.

        Parameters
        ----------
        job : FitJob
            How to fit.
        block : Block
            The frames.
        positions : Positions, optional
            All positions of the frames that are fitted. None: the frames are cut-outs, which are
            fitted whole.
        start : ndarray of float32, shape (n, K), optional
            Of cut-outs, start values of the shape parameters in the order of the profile; NaN asks
            for the built-in value.
        on_device : bool
            Of cut-outs, leave the results on the GPU, and do not wait for them.

        Returns
        -------
        dict of ndarray
            The columns of SpotFits. With positions, y and x are pixels of the frames, and ROIs and
            flags are there too; positions outside of their frame are INVALID. Of cut-outs, y and x
            are from their first pixel.

            Each cut-out has one row, and so has each position, in order. Only where spots are
            fitted together is there a column ``group``, the same for all rows of a fit. Unless
            the job asks for one row per position, spots may be dropped and added then: the column
            ``groups.POSITION`` names each row's position, or of an added one, that of another spot
            of its fit, whose row comes before. Rows of a fit follow each other, in the order of
            the fits' first positions, so that frames stay in order. The columns are the same
            whatever the positions are, be there none.
        """

    def fit_crowds(self, block: Block, crowds: Crowds) -> NDArray[np.void]:
        """Fit the spots of crowds together.

        Parameters
        ----------
        block : Block
            The frames.
        crowds : Crowds
            The crowds, and how to fit them.

        Returns
        -------
        ndarray of SPOT
            The spots, crowd by crowd; those of a crowd depend on nothing but it. Crowds and
            candidates are named by their places in ``crowds``.
        """

    def fitter(self, job: FitJob) -> BlockFitter:
        """Prepare fits of one job that are made again and again."""


Lent = TypeVar("Lent")


def lend(make: Callable[..., Lent], *key: Hashable) -> tuple[Lent, list[Any]]:
    """Return an unused ``make(*key)``, and a list to append it to after use.

    It serves the next caller then; not so one that an error has left half done.
    """
    idle = _idle(make, *key)
    try:
        return idle.pop(), idle
    except IndexError:
        return make(*key), idle


@lru_cache(maxsize=16)
def _idle(*_key: Hashable) -> list[Any]:
    """Return what was made with a key and is not in use."""
    return []


class BackendUnavailableError(RuntimeError):
    """The backend that was asked for cannot run here; the message says why, and the cure.

    Examples
    --------
    >>> from napari_spotfit import BackendUnavailableError, fit_spots, simulate_spots
    >>> spots, truth = simulate_spots(10, seed=1)
    >>> try:
    ...     fits = fit_spots(spots, backend="cuda")
    ... except BackendUnavailableError as error:  # print(error) says why
    ...     fits = fit_spots(spots, backend="cpu")
    >>> len(fits)
    10
    """


class BackendFallbackWarning(RuntimeWarning):
    """A GPU failed during a run, and others or the CPU did the rest; the results are complete.

    Examples
    --------
    To end instead of going on more slowly:

    >>> import warnings
    >>> from napari_spotfit import BackendFallbackWarning, fit_spots, simulate_spots
    >>> spots, truth = simulate_spots(10, seed=1)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", BackendFallbackWarning)
    ...     fits = fit_spots(spots)
    """


class Unfinished(Exception):
    """Fits of cut-outs during which GPUs failed.

    Parameters
    ----------
    columns : dict of ndarray
        The results, as far as there are any,
    left : sequence of (int, int)
        but for these ranges.
    failed : mapping of int to Exception
        What happened to each GPU that failed, by CUDA's number of it.
    """

    def __init__(
        self, columns: dict[str, Any], left: Sequence[Range], failed: Mapping[int, Exception]
    ) -> None:
        super().__init__(f"GPUs {sorted(failed)} failed; {len(left)} pieces are left")
        self.columns, self.left, self.failed = columns, left, failed


def cuda_errors() -> tuple[type[Exception], ...]:
    """Return what CUDA's calls and CuPy raise when the GPU fails; looked up after an error."""
    from cupy.cuda import compiler, driver, memory, nvrtc, runtime

    return (
        memory.OutOfMemoryError,
        runtime.CUDARuntimeError,
        driver.CUDADriverError,
        compiler.CompileException,
        nvrtc.NVRTCError,
    )
