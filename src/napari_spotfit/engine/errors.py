"""Define the errors and warnings of backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: The first of some fits, and the end behind the last one.
Range = tuple[int, int]


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
