"""Generate the kernel of a kind of fits, and its layout over threads.

The C++ is in ``kernels/cuda/fit.h``; the few lines here select variant, kind of ROIs, and sizes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from ...models.profiles import Profile
from ...settings.settings import Settings
from ..fit_job import GPU_VOXELS, make_fit_settings
from ..kernel_arguments import shape_of_roi
from .compile import PIXEL_TYPES, compiled, with_includes
from .expression import to_cuda

#: Threads of a warp, and shared memory of a block on any GPU.
WARP, SHARED_BYTES = 32, 48 << 10

#: Up to this many columns, maximum likelihood and errors with a map of variances keep the profile
#: along x in registers, see kernels/cuda/fit.h.
_U_IN_REGISTERS = 16

_KERNEL = """#include "cuda/fit.h"
{own_profile}
using namespace spotfit;
using namespace spotfit::SPOTFIT_ISA;
using Kernel = {kind}<
    FitVariant<{profile}, {likelihood}, {planes}, {held}, {fast_axes}>,
    LanesOfFit<Warp, {depth}, {rows}, {columns}, {lanes_x}, {lanes_y}, {own_plane}>,
    RoiLayout<{pixel}, {gather}, {depth}, {rows}, {columns}>, {variance_map}{several}>;

extern "C" __global__ void __launch_bounds__({threads}, {blocks})
    fit(const RoiSource source, const FitResults results, const FitSettings given,
        const long long total, const int rounds) {{
    // What is known when this is compiled is no longer asked for.
    FitSettings settings = given;
    settings.held = {held}, settings.errors = {errors};
    settings.angle_convention = {angle_convention};
    settings.bounded_amplitudes = {bounded_amplitudes}, settings.noise_known = {noise_known};
    __shared__ Kernel::Memory memory[{threads} / WARP];
    const int warp = threadIdx.x / WARP;
    const long long own = Kernel::FITS * rounds;
    const long long first = (blockIdx.x * ({threads}LL / WARP) + warp) * own;
    const long long last = first + own < total ? first + own : total;
    Kernel::run(memory[warp], first, last, source, results, settings);
}}
"""


class FitCode(NamedTuple):
    """Everything on which the code of a fit depends, other than run-time numbers."""

    profile: Profile
    #: How the profile is averaged over a pixel.
    averaging: str
    likelihood: bool
    #: Whether there are weights or read-out variances of pixels, and whether there is a map of
    #: read-out variances for the standard errors.
    planes: bool
    variance_map: bool
    #: The pixels' type, such as "u2", and whether ROIs lie in frames.
    pixel: str
    gather: bool
    depth: int
    rows: int
    columns: int
    #: See kernels/layouts/fit_settings.h.
    held: int
    angle_convention: int
    errors: bool
    bounded_amplitudes: bool
    noise_known: bool

    @classmethod
    @lru_cache(maxsize=64)
    def of(
        cls, settings: Settings, roi_shape: tuple[int, ...], pixel: str, *, gather: bool,
        planes: bool, variance_map: bool,
    ) -> FitCode:  # fmt: skip
        """Return the code for fits with these settings."""
        numbers = make_fit_settings(settings, roi_shape)
        likelihood = settings.estimator_kind.is_likelihood
        roi = shape_of_roi(roi_shape)
        return cls(
            settings.profile, settings.pixel, likelihood, planes,
            variance_map and settings.errors and not likelihood, pixel, gather,
            roi.depth, roi.rows, roi.columns, numbers.held, numbers.angle_convention,
            bool(numbers.errors), bool(numbers.bounded_amplitudes), bool(numbers.noise_known),
        )  # fmt: skip

    @property
    def in_registers(self) -> bool:
        """Whether fits take the fast path, with pixels in registers.

        Of a volume, a thread has the pixels of a plane there.
        """
        if not self.profile.separable or self.likelihood or self.planes:
            return False
        if self.depth == 1:
            return True
        numbers = _numbers(self.rows, self.columns, 1, 1)
        return self.depth <= WARP and not self.variance_map and numbers <= _MOST_OF_PLANE

    @property
    def lines(self) -> int:
        """Number of lines of pixels along x."""
        return self.depth * self.rows

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a pixel."""
        return int(self.pixel[1:])

    @property
    def roi_bytes(self) -> int:
        """Bytes of a ROI as a cut-out."""
        return self.lines * self.columns * self.pixel_bytes


class Threads(NamedTuple):
    """The layout of fits over threads."""

    #: Number of threads that share a fit, along the ROI's columns and rows.
    lanes_x: int
    lanes_y: int
    #: Threads per block, and least number of blocks per multiprocessor.
    block: int
    blocks: int
    #: Whether a thread does several fits in turn, the next as soon as others have ended, too.
    several: bool = False

    @property
    def fits_per_block(self) -> int:
        """Number of simultaneous fits of a block."""
        return self.block // (self.lanes_x * self.lanes_y)

    def rounds(self, count: int, multiprocessors: int) -> int:
        """Return the number of fits that each thread does in turn, for `count` fits in total.

        Few fits are spread over the whole GPU; with many, each block does the same number.
        """
        if not self.several:
            return 1
        at_once = multiprocessors * self.blocks * self.fits_per_block
        waves = max(-(-count // (at_once * _ROUNDS)), 2)
        return max(-(-count // (at_once * waves)), 1)


class FitKernel(NamedTuple):
    """A kernel on the current device."""

    function: Any
    threads: Threads


@lru_cache(maxsize=512)
def fit_kernel(code: FitCode, device: int) -> FitKernel:
    """Return the kernel of a kind of fits for the current device, which is `device`."""
    threads = threads_for(code)
    return FitKernel(compiled(kernel_text(code, threads), "fit"), threads)


def profile_text(profile: Profile, averaging: str) -> tuple[str, str]:
    """Return the C++ of an own profile (empty for built-in ones), and the profile's C++ name."""
    if profile.expression is not None:
        return to_cuda(profile.expression.program), "OwnProfile"
    if profile.lattice is not None:
        return "", "MeasuredPsf"
    return "", f"ProfileAt<{profile.place(averaging)}>::Type"


def kernel_text(code: FitCode, threads: Threads) -> str:
    """Return the C++ of a kernel, with includes inserted."""
    own_profile, profile = profile_text(code.profile, code.averaging)
    return with_includes(
        _KERNEL.format(
            own_profile=own_profile,
            kind="RegisterFits" if code.in_registers else "SharedFits",
            profile=profile,
            likelihood=_literal(code.likelihood),
            planes=_literal(code.planes),
            variance_map=_literal(code.variance_map),
            several=f", {_literal(threads.several)}" if code.in_registers else "",
            pixel=PIXEL_TYPES[code.pixel],
            gather=_literal(code.gather),
            depth=code.depth,
            rows=code.rows,
            columns=code.columns,
            held=code.held,
            angle_convention=code.angle_convention,
            errors=_literal(code.errors),
            bounded_amplitudes=_literal(code.bounded_amplitudes),
            noise_known=_literal(code.noise_known),
            fast_axes=3 if code.in_registers else 2,
            own_plane=_literal(code.in_registers and code.depth > 1),
            lanes_x=threads.lanes_x,
            lanes_y=threads.lanes_y,
            threads=threads.block,
            blocks=threads.blocks,
        )
    )


def _literal(value: bool) -> str:
    return "true" if value else "false"


def threads_for(code: FitCode) -> Threads:
    """Return the layout of a kind of fits.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> code = FitCode.of(
    ...     Settings(), (9, 9), "u2", gather=False, planes=False, variance_map=False
    ... )
    >>> threads_for(code)
    Threads(lanes_x=1, lanes_y=1, block=64, blocks=6, several=True)
    """
    threads = _registers(code) if code.in_registers else _shared(code)
    block, blocks = threads.block, threads.blocks
    while block > WARP and block // WARP * warp_bytes(code, *threads[:2]) > SHARED_BYTES:
        block, blocks = block // 2, blocks * 2
    if warp_bytes(code, *threads[:2]) > SHARED_BYTES:
        raise ValueError(
            f"volumes must have at most {GPU_VOXELS} voxels on a GPU, for whose shared memory "
            f"{code.depth}×{code.rows}×{code.columns} are too many; cut out smaller ones, or fit "
            "them with backend='cpu'"
        )
    return threads._replace(block=block, blocks=blocks)


# The tables were found on an H200 by trying all layouts (docs/performance.md). With 16 warps per
# multiprocessor a thread has 128 registers, with 12 warps 168, and with 8 warps the maximum.

#: Largest number of fits that a thread does in turn.
_ROUNDS = 16
#: Threads that share a fit along x and y, and the largest number of values of each: its pixels,
#: three profile values per column, and one per row. Averaged profiles take long to evaluate, which
#: is best divided along both axes.
_SAMPLED = (((1, 1), 221), ((1, 2), 147), ((1, 4), 222), ((4, 4), 1024))
_AVERAGED = (((1, 1), 200), ((1, 2), 200), ((2, 2), 221), ((4, 4), 1024))
#: By number of values: threads per block, blocks per multiprocessor, and whether a thread does
#: several fits.
_ALONE = (
    (77, (64, 8, True)), (117, (64, 6, True)), (140, (64, 4, True)), (180, (128, 2, False)),
    (221, (64, 4, True)),
)  # fmt: skip
_TOGETHER = ((116, (128, 4, False)), (130, (64, 6, False)), (1024, (128, 2, False)))

#: Values that must be spared: for doubles, which take two registers each until converted; for maps
#: of variances, and for rows that do not divide evenly.
_DOUBLES, _MAPS_OR_UNEVEN = 22, 8


#: The same of a plane of a volume.
_MOST_OF_PLANE = 200


def _registers(code: FitCode) -> Threads:
    if code.depth > 1:
        return Threads(1, 1 << (code.depth - 1).bit_length(), 128, 2)
    ways = _AVERAGED if code.averaging == "integrated" else _SAMPLED
    room = _DOUBLES if code.pixel_bytes == 8 else 0
    lanes, numbers = next(
        (lanes, numbers)
        for lanes, most in ways
        if (numbers := _numbers(code.rows, code.columns, *lanes)) + room <= most
    )
    alone = lanes == (1, 1)
    if not alone:
        less = code.variance_map or code.rows % lanes[1]
        numbers += room + (_MAPS_OR_UNEVEN if less else 0)
    table = _ALONE if alone else _TOGETHER
    block, blocks, several = next(way for most, way in table if numbers <= most)
    return Threads(*lanes, block, blocks, several)


def _numbers(rows: int, columns: int, lanes_x: int, lanes_y: int) -> int:
    """Return the number of pixels and profile values of a thread."""
    own_rows, own_columns = -(-rows // lanes_y), -(-columns // lanes_x)
    return own_rows * own_columns + 3 * own_columns + own_rows


#: Values in shared memory per thread for its rows; more threads share larger fits.
_NUMBERS = 90
#: The same of two threads for maximum likelihood, whose profiles are in registers.
_NUMBERS_OF_TWO = 128


def _shared(code: FitCode) -> Threads:
    lanes = 1
    # Weights of a small separable fit need no further thread.
    small = code.profile.separable and not code.likelihood and code.lines * code.columns <= _NUMBERS
    numbers = code.columns * (2 if code.planes and not small else 1)
    u_in_registers = code.profile.separable and code.columns <= _U_IN_REGISTERS
    most_of_two = _NUMBERS_OF_TWO if code.likelihood and u_in_registers else _NUMBERS
    while (
        lanes < (16 if code.depth == 1 else WARP)
        and lanes < code.lines
        and -(-code.lines // lanes) * numbers > (most_of_two if lanes == 2 else _NUMBERS)
    ):
        lanes *= 2
    return Threads(1, lanes, 64, _shared_blocks(code, lanes))


def _shared_blocks(code: FitCode, lanes: int) -> int:
    """Return the number of blocks of 64 threads per multiprocessor."""
    if code.profile.lattice is not None:
        return 4
    if not code.profile.separable:
        return 6 if lanes == 1 else 8
    if code.likelihood:
        return 4 if lanes == 2 and code.columns > 12 else 6
    # The profile along the columns is in registers.
    if lanes > 1 and code.columns <= 16:
        return 6 if code.averaging == "integrated" else 8
    return 6 if code.columns <= 28 else 4


def warp_bytes(code: FitCode, lanes_x: int, lanes_y: int) -> int:
    """Return the shared memory of a warp in bytes, as laid out in kernels/cuda/fit.h."""
    fits = WARP // (lanes_x * lanes_y)
    shape = len(code.profile.shape)
    n = shape + 2 if code.likelihood else shape
    # kernels/state.h
    state = 4 * WARP * (6 + shape + 2 + n * (n + 1) // 2 + n)
    own_rows, own_columns = -(-code.lines // lanes_y), -(-code.columns // lanes_x)
    if code.in_registers:
        # kernels/cuda/register_rois.h
        edges = 2 * own_columns + (2 * own_rows if lanes_x > 1 else 0)
        if code.depth > 1:
            edges = code.rows * code.columns
        return state + 4 * (WARP * edges if fits < WARP else 1)
    # kernels/cuda/shared_rois.h
    segment = own_rows * code.columns | 1
    many = code.columns > _U_IN_REGISTERS and (code.likelihood or code.variance_map)
    u_in_memory = code.profile.separable and many
    along_x = 3 * code.columns * fits if u_in_memory else 1
    planes = WARP * segment if code.planes else 1
    values = WARP * segment if code.profile.lattice is not None else 1
    return 4 * (WARP * segment + planes + values + along_x) + state
