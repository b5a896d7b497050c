"""The kernel of a kind of fits: what it is made of, and how it is laid out over threads.

The C++ is in ``kernels/cuda/fit.h``; what is written here is the few lines that name a variant,
a kind of ROIs, and sizes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from ...models.profiles import Profile
from ...settings.settings import Settings
from ..fit_settings import make_fit_settings
from .compile import compiled, with_includes
from .layout import PIXEL_TYPES, is_custom

#: What kernels/profiles.h calls the models.
_PROFILES = {
    ("gaussian", "sampled"): "Round<Gaussian>",
    ("gaussian_elliptical", "sampled"): "Elliptical<Gaussian>",
    ("gaussian", "integrated"): "Round<IntegratedGaussian>",
    ("gaussian_elliptical", "integrated"): "Elliptical<IntegratedGaussian>",
    ("gaussian_rotated", "sampled"): "RotatedGaussian",
    ("lorentzian", "sampled"): "Round<Lorentzian>",
    ("moffat", "sampled"): "Moffat",
}

#: Threads of a warp, and shared memory that a block may use on every GPU.
WARP, SHARED_BYTES = 32, 48 << 10

#: Up to so many columns maximum likelihood keeps the profile along them in registers, as
#: kernels/cuda/shared_rois.h says.
_U_IN_REGISTERS = 16

_KERNEL = """#include "cuda/fit.h"
{own_profile}
using namespace spotfit::SPOTFIT_ISA;
using Kernel = {kind}<
    FitVariant<{profile}, {likelihood}, {planes}, {held}>,
    LanesOfFit<Warp, {rows}, {columns}, {lanes_x}, {lanes_y}>,
    RoiLayout<{pixel}, {gather}, {rows}, {columns}>, {variance_map}>;

extern "C" __global__ void __launch_bounds__({threads}, {blocks})
    fit(const RoiSource source, const FitResults results, const spotfit::FitSettings given,
        const long long total) {{
    // What is known when this is compiled is no longer asked for.
    spotfit::FitSettings settings = given;
    settings.held = {held}, settings.turns = {turns}, settings.errors = {errors};
    settings.bounded_amplitudes = {bounded_amplitudes}, settings.gain_known = {gain_known};
    __shared__ Kernel::Memory memory[{threads} / WARP];
    const int warp = threadIdx.x / WARP;
    const long long first = (blockIdx.x * ({threads}LL / WARP) + warp) * Kernel::FITS;
    Kernel::run(memory[warp], first, total, source, results, settings);
}}
"""


class FitCode(NamedTuple):
    """All by which the code of fits differs, rather than its numbers."""

    profile: Profile
    #: How it is averaged over a pixel.
    averaging: str
    likelihood: bool
    #: Whether weights or read-out variances are known of the pixels, and whether there is a map
    #: of read-out variances for the standard errors.
    planes: bool
    variance_map: bool
    #: The pixels' type, such as "u2", and whether ROIs lie in frames.
    pixel: str
    gather: bool
    rows: int
    columns: int
    #: What kernels/fit_settings.h has under these names.
    held: int
    turns: int
    errors: bool
    bounded_amplitudes: bool
    gain_known: bool

    @classmethod
    @lru_cache(maxsize=64)
    def of(
        cls, settings: Settings, roi_shape: tuple[int, int], pixel: str, *, gather: bool,
        planes: bool, variance_map: bool,
    ) -> FitCode:  # fmt: skip
        """Return the code of fits."""
        numbers = make_fit_settings(settings, roi_shape)
        return cls(
            settings.profile, settings.pixel, settings.estimator == "mle", planes,
            variance_map and settings.errors and settings.estimator != "mle", pixel, gather,
            *roi_shape, numbers.held, numbers.turns, bool(numbers.errors),
            bool(numbers.bounded_amplitudes), bool(numbers.gain_known),
        )  # fmt: skip

    @property
    def in_registers(self) -> bool:
        """Whether these are fits of the fast path, whose pixels stay in registers."""
        return self.profile.separable and not self.likelihood and not self.planes

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a pixel."""
        return int(self.pixel[1:])

    @property
    def roi_bytes(self) -> int:
        """Bytes of a ROI that is cut out."""
        return self.rows * self.columns * self.pixel_bytes


class Threads(NamedTuple):
    """How fits are laid out over threads."""

    #: Threads that share a fit, along the ROI's columns and rows.
    lanes_x: int
    lanes_y: int
    #: Threads of a block, and blocks that share a multiprocessor at least.
    block: int
    blocks: int

    @property
    def fits_per_block(self) -> int:
        """Fits that a block works on."""
        return self.block // (self.lanes_x * self.lanes_y)


class FitKernel(NamedTuple):
    """A kernel on the current device."""

    function: Any
    threads: Threads


@lru_cache(maxsize=512)
def fit_kernel(code: FitCode, device: int) -> FitKernel:
    """Return the kernel of a kind of fits, for the current device, whose number is given."""
    threads = threads_for(code)
    return FitKernel(compiled(kernel_text(code, threads), "fit"), threads)


def profile_text(profile: Profile, averaging: str) -> tuple[str, str]:
    """Return the C++ of somebody's own profile, or nothing; and what a profile is called."""
    if is_custom(profile):
        from ...models.expressions import to_cuda

        return to_cuda(profile), "OwnProfile"
    return "", _PROFILES[profile.name, averaging]


def kernel_text(code: FitCode, threads: Threads) -> str:
    """Return the C++ of a kernel, with all that it includes."""
    own_profile, profile = profile_text(code.profile, code.averaging)
    return with_includes(
        _KERNEL.format(
            own_profile=own_profile,
            kind="RegisterFits" if code.in_registers else "SharedFits",
            profile=profile,
            likelihood=_literal(code.likelihood),
            planes=_literal(code.planes),
            variance_map=_literal(code.variance_map),
            pixel=PIXEL_TYPES[code.pixel],
            gather=_literal(code.gather),
            rows=code.rows,
            columns=code.columns,
            held=code.held,
            turns=code.turns,
            errors=_literal(code.errors),
            bounded_amplitudes=_literal(code.bounded_amplitudes),
            gain_known=_literal(code.gain_known),
            lanes_x=threads.lanes_x,
            lanes_y=threads.lanes_y,
            threads=threads.block,
            blocks=threads.blocks,
        )
    )


def _literal(value: bool) -> str:
    return "true" if value else "false"


def threads_for(code: FitCode) -> Threads:
    """Return how a kind of fits is laid out.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> code = FitCode.of(
    ...     Settings(), (9, 9), "u2", gather=False, planes=False, variance_map=False
    ... )
    >>> threads_for(code)
    Threads(lanes_x=1, lanes_y=1, block=64, blocks=6)
    """
    lanes, blocks = _registers(code) if code.in_registers else _shared(code)
    warps = 2 if 2 * warp_bytes(code, *lanes) <= SHARED_BYTES else 1
    return Threads(*lanes, WARP * warps, max(blocks * 2 // warps, 1))


#: Numbers that a thread can keep in its registers: its own pixels, three profile values for
#: each of its columns and one for each of its rows.
_REGISTERS = 221
#: Ways to share a fit between threads, along x and y; fewest first.
_SHARED = ((1, 1), (1, 2), (2, 2), (2, 4), (4, 4))
#: How many blocks of 64 threads a multiprocessor is to hold, by their numbers: 8 blocks leave a
#: thread 128 registers, 6 blocks 168, and 4 blocks as many as there can be.
_BLOCKS, _FEWEST_BLOCKS = ((77, 8), (117, 6)), 4


def _registers(code: FitCode) -> tuple[tuple[int, int], int]:
    for lanes in _SHARED:
        numbers = _numbers(code.rows, code.columns, *lanes)
        if numbers <= _REGISTERS:
            break
    return lanes, next((blocks for most, blocks in _BLOCKS if numbers <= most), _FEWEST_BLOCKS)


def _numbers(rows: int, columns: int, lanes_x: int, lanes_y: int) -> int:
    """Return how many pixels and profile values a thread keeps."""
    own_rows, own_columns = -(-rows // lanes_y), -(-columns // lanes_x)
    return own_rows * own_columns + 3 * own_columns + own_rows


#: Numbers of shared memory that a thread has for its own rows; more threads share larger fits.
_NUMBERS = 90


def _shared(code: FitCode) -> tuple[tuple[int, int], int]:
    lanes = 1
    numbers = code.columns * (2 if code.planes else 1)
    while lanes < 16 and lanes < code.rows and -(-code.rows // lanes) * numbers > _NUMBERS:
        lanes *= 2
    return (1, lanes), 6 if code.likelihood and lanes == 1 else 8


def warp_bytes(code: FitCode, lanes_x: int, lanes_y: int) -> int:
    """Return how much shared memory a warp takes, as kernels/cuda/fit.h lays it out."""
    fits = WARP // (lanes_x * lanes_y)
    shape = len(code.profile.shape)
    n = shape + 2 if code.likelihood else shape
    # kernels/state.h
    state = 4 * WARP * (6 + shape + 2 + n * (n + 1) // 2 + n)
    own_rows, own_columns = -(-code.rows // lanes_y), -(-code.columns // lanes_x)
    if code.in_registers:
        # kernels/cuda/register_rois.h
        edges = 2 * own_columns + (2 * own_rows if lanes_x > 1 else 0)
        return state + 4 * (WARP * edges if fits < WARP else 1)
    # kernels/cuda/shared_rois.h
    segment = own_rows * code.columns | 1
    u_in_memory = code.profile.separable and code.likelihood and code.columns > _U_IN_REGISTERS
    along_x = 3 * code.columns * fits if u_in_memory else 1
    planes = WARP * segment if code.planes else 1
    return 4 * (WARP * segment + planes + along_x) + state
