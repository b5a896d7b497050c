"""Speed of the fits on the GPU by how they are laid out over threads.

Prints million fits per second, device-resident, for every way to share a fit, every size of
blocks, and every number of blocks that share a multiprocessor: what the tables in
napari_spotfit/engine/cuda/fit_kernel.py are made from.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cupy
import numpy as np
from gpu_data import are_right, simulated
from gpu_machine import Cuda, in_turns

from napari_spotfit import Settings
from napari_spotfit.engine.cpu.layouts import RoiSource
from napari_spotfit.engine.cuda.compile import as_argument, compiled
from napari_spotfit.engine.cuda.fit_kernel import (
    SHARED_BYTES,
    FitCode,
    FitKernel,
    Threads,
    kernel_text,
    threads_for,
    warp_bytes,
)
from napari_spotfit.engine.fit_settings import make_fit_settings
from napari_spotfit.engine.kernel_arguments import (
    Results,
    address,
    fit_results,
    pixel_map,
    row_bytes,
)
from napari_spotfit.images.pixel_calibration import Planes

#: Settings, and `bad` for a bad pixel.
KINDS: dict[str, dict[str, Any]] = {
    "lse": {}, "elliptical": {"model": "gaussian_elliptical"},
    "integrated": {"pixel": "integrated"},
    "lorentzian": {"model": "lorentzian"}, "wlse": {"estimator": "wlse"}, "bad": {"bad": True},
    "mle": {"estimator": "mle", "gain": 1.0}, "rotated": {"model": "gaussian_rotated"},
    "errors": {"errors": True},
    "elliptical-errors": {"model": "gaussian_elliptical", "errors": True},
    "rotated-errors": {"model": "gaussian_rotated", "errors": True},
    "integrated-wlse": {"pixel": "integrated", "estimator": "wlse"},
}  # fmt: skip


def layouts(code: FitCode, quick: bool) -> Iterator[Threads]:
    """Return the ways that are worth trying."""
    if code.in_registers:
        ways = [(1, 1), (1, 2), (2, 2), (1, 4), (2, 4), (4, 4), (2, 8)]
        pixels = code.rows * code.columns
        ways = [way for way in ways if 45 <= -(-pixels // (way[0] * way[1])) <= 170]
    else:
        ways = [(1, lanes) for lanes in (1, 2, 4, 8, 16) if lanes <= code.rows]
        ways = [way for way in ways if 30 <= code.rows * code.columns // way[1] <= 170]
    for way in ways:
        for block in (64,) if quick else (64, 128):
            if block // 32 * warp_bytes(code, *way) > SHARED_BYTES:
                continue
            # A quarter of a multiprocessor takes whole warps: numbers between come to the same.
            for warps in (8, 12, 16, 20):
                for several in (False, True) if code.in_registers and way == (1, 1) else (False,):
                    if warps * 32 % block == 0:
                        yield Threads(*way, block, warps * 32 // block, several)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="7,9,11,13,16,24,32")
    parser.add_argument("--kinds", default="lse", help=f"some of {','.join(KINDS)}")
    parser.add_argument("--pixel", default="u2")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    machine = Cuda()
    print(machine.facts())
    for kind in arguments.kinds.split(","):
        for size in map(int, arguments.sizes.split(",")):
            measure(machine, kind, size, arguments)
    return 0


def measure(machine: Cuda, kind: str, size: int, arguments: argparse.Namespace) -> None:
    options = {"errors": False} | KINDS[kind]
    bad = options.pop("bad", False)
    settings = Settings(**options)
    spots = simulated(size, 2e7)
    count = min(int((2e8 if arguments.quick else 6e8) / size**2), 20_000_000)
    if bad or settings.estimator != "lse" or not settings.profile.separable:
        count //= 5
    pixels = machine.tiled(machine.put(spots.pixels.astype(arguments.pixel)), count)
    weights = None
    if bad or settings.estimator == "wlse":
        weights = Planes(cupy.ones((1, size, size), np.float32))
        if bad:
            weights.values[0, 1, 2] = 0
    code = FitCode.of(
        settings, (size, size), arguments.pixel, gather=False, planes=weights is not None,
        variance_map=False,
    )  # fmt: skip
    ways = list(layouts(code, arguments.quick))
    device = cupy.cuda.Device()

    def built(way: Threads) -> FitKernel:
        with device:
            return FitKernel(compiled(kernel_text(code, way), "fit"), way)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        kernels = list(pool.map(built, ways))
    memory = cupy.empty(row_bytes(settings) * count, np.uint8)
    rois = as_argument(RoiSource(address(pixels), size, size, planes=pixel_map(weights)))
    output = as_argument(fit_results(address(memory), count, settings))
    numbers = as_argument(make_fit_settings(settings, (size, size)))

    multiprocessors = device.attributes["MultiProcessorCount"]

    def work(own: FitKernel) -> None:
        threads = own.threads
        rounds = threads.rounds(count, multiprocessors)
        own.function(
            (-(-count // (threads.fits_per_block * rounds)),), (threads.block,),
            (rois, output, numbers, np.int64(count), np.int32(rounds)),
        )  # fmt: skip

    times = in_turns([lambda one=one: work(one) for one in kernels], machine.device_time, 5)
    found = []
    for own, seconds in zip(kernels, times, strict=True):
        memory[:] = 0
        work(own)
        columns = Results.within(memory, count, settings).columns(settings.profile)
        attributes = own.function.attributes
        found.append(
            (count / seconds / 1e6, own.threads, attributes["num_regs"],
             attributes["local_size_bytes"], are_right(columns, spots.truth))
        )  # fmt: skip
    chosen = threads_for(code)
    print(f"\n{kind} {size}x{size} {arguments.pixel}, {count} fits; now {tuple(chosen)}")
    for speed, own, registers, local, right in sorted(found, reverse=True, key=lambda f: f[0]):
        print(
            f"{'*' if own == chosen else ' '} {speed:8.1f}  lanes {own.lanes_x}x{own.lanes_y}  "
            f"block {own.block:3d} x {own.blocks:2d}  {registers:3d} registers, {local:4d} B local"
            f"{'  several' if own.several else ''}{'' if right else '  WRONG'}",
            flush=True,
        )
    del pixels, memory
    machine.free()


if __name__ == "__main__":
    sys.exit(main())
