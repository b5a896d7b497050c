"""Detection in volumes on a GPU: one after the other, some rows of all planes at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from ..bands import Bands
from ..candidates import (
    Candidates,
    Maxima,
    choose_spots,
    in_order,
    join_bands,
    joined,
    merge_plateaus,
)
from ..cpu.layouts import DetectionSettings, DetectionWork, Strip, VolumeSettings, VolumeWork
from ..detection_settings import LIMITS, MAXIMUM, bands_of, make_detection_settings
from .compile import PIXEL_TYPES, Device

#: Threads of a block, and blocks of a launch at most, which take one voxel after the other.
THREADS, _MOST_BLOCKS = 256, 1 << 14
#: Bytes for smoothed and filtered rows; voxels per maximum that there is room for, and the least
#: room.
_STRIP_BYTES, _VOXELS_PER_MAXIMUM, _LEAST_ROOM = 512 << 20, 256, 1024
#: The kernels that run for each strip, in their order.
KERNELS = ("smooth_along_x", "smooth_along_y", "filter_along_z", "find_in_volume")
#: How they are compiled: THREADS of a block, and rows that the second one takes.
ODD_ROWS = 8
MACROS: dict[str, float | str] = {"THREADS": THREADS, "RUN": 256, "ODD_ROWS": ODD_ROWS}
#: Those of planes that come before.
_OF_PLANES = ("find_levels", "find_odd_pixels")


class _Plan(NamedTuple):
    """What is the same for volumes of one type and shape, and two widths."""

    #: Their arrays lie on the device.
    bands: Bands
    kernels: dict[str, Any]
    #: Bytes of a pixel; and how many numbers a voxel has after one smoothing.
    pixel: int
    smoothed: int

    @property
    def depth(self) -> int:
        """How many planes a volume has."""
        assert self.bands.volume is not None
        return self.bands.volume.depth

    def strips(self) -> Iterator[Strip]:
        """Yield the rows that are filtered and searched together."""
        height, width = self.bands.shape
        reach, radius = max(self.bands.step, 1), len(self.bands.kernels[-1]) - 1
        row = 4 * (2 * self.smoothed + 3) * self.depth * width
        rows = max(min(_STRIP_BYTES // row - 2 * (reach + radius), height), 1)
        for y in range(0, height, rows):
            last = min(y + rows, height)
            yield Strip(0, 1, max(y - reach, 0), min(last + reach, height), y, last)


def detect_volumes(
    device: Device,
    volumes: Any,
    settings: Settings,
    masks: NDArray[np.bool_] | None,
    variance_map: Any,
    level: float | None,
    depth: int | None,
) -> Candidates:
    """Detect spots in volumes in the memory of a device, as the CPU's version does."""
    widths = settings.known_sigma, settings.known_sigma_z
    plan = _plan(device, volumes.dtype, volumes.shape[1:], *widths)
    kept: list[Any] = []

    def put(given: VolumeSettings) -> int:
        kept.append(device.put(np.frombuffer(bytes(given), np.uint8)))
        return device.address(kept[-1])

    made = make_detection_settings(
        settings, plan.bands, device.address,
        variance_map=variance_map, level=level, depth=depth, address_of_settings=put,
    )  # fmt: skip
    parts = []
    for number, volume in enumerate(volumes):
        maxima = _maxima(device, plan, volume, made)
        join_bands(maxima, made, settings.min_distance)

        def merge(flat: Maxima, volume: Any = volume) -> Maxima:
            pixels = device.download(volume)[np.newaxis]
            return merge_plateaus(flat, pixels, level, made.planes_per_pixel)

        own = masks
        if masks is not None and len(masks) > plan.depth:
            own = masks[number * plan.depth :][: plan.depth]
        part = choose_spots(maxima, made, own, settings.min_distance, merge)
        parts.append(part._replace(frame=part.frame + number))
    return joined(parts)


@lru_cache(maxsize=16)
def _plan(
    device: Device, dtype: np.dtype[Any], shape: tuple[int, int, int], sigma: float, sigma_z: float
) -> _Plan:
    settings = Settings(model="gaussian_3d", sigma=sigma, sigma_z=sigma_z)
    bands = bands_of(settings, shape)
    assert bands.volume is not None
    flat = tuple(
        band._replace(gain_y=device.put(band.gain_y), gain_x=device.put(band.gain_x))
        for band in bands.bands
    )
    deep = tuple(
        band._replace(
            gain_z=device.put(band.gain_z), skewness=device.put(band.skewness),
            curvature=device.put(band.curvature),
        )
        for band in bands.volume.bands
    )  # fmt: skip
    kernels = tuple(map(device.put, bands.volume.kernels))
    there = bands._replace(
        kernels=tuple(map(device.put, bands.kernels)),
        bands=(flat[0], flat[1]),
        volume=bands.volume._replace(kernels=kernels, bands=(deep[0], deep[1])),
    )
    pixel = PIXEL_TYPES[dtype.str[1:]]
    found = {name: device.kernel("cuda/detection.cu", name, PIXEL=pixel, **MACROS)
             for name in _OF_PLANES}  # fmt: skip
    macros = {"PIXEL": pixel, "THREADS": THREADS}
    found |= {name: device.kernel("cuda/volume_detection.cu", name, **macros) for name in KERNELS}
    smoothed = len(bands.kernels) * (2 if dtype.kind == "f" else 1)
    return _Plan(there, found, dtype.itemsize, smoothed)


def _maxima(device: Device, plan: _Plan, volume: Any, settings: DetectionSettings) -> Maxima:
    """Return the maxima of a volume in the order of plane, y and x."""
    room = max(volume.size // _VOXELS_PER_MAXIMUM, _LEAST_ROOM)
    while True:
        found, count = _found(device, plan, volume, settings, room)
        if count <= room:
            # Of both bands on one voxel, the wide one comes first.
            return in_order(found[np.argsort(found["band"], kind="stable")])
        room = count


def _found(
    device: Device, plan: _Plan, volume: Any, settings: DetectionSettings, room: int
) -> tuple[Maxima, int]:
    height, width = plan.bands.shape
    words, radius = -(-width // 32), len(plan.bands.kernels[-1]) - 1
    strips = list(plan.strips())
    rows = max(strip.y1 - strip.y0 for strip in strips)
    plane = 4 * plan.depth * width
    sizes = {
        "count": 4, "highest_count": 4, "maxima": MAXIMUM.itemsize * room,
        "levels": plan.pixel * plan.depth, "limits": LIMITS * plan.depth,
        "odd": 4 * plan.depth * height * words,
        "along_x": plan.smoothed * plane * (rows + 2 * radius),
        "along_y": plan.smoothed * plane * rows, "filtered": 3 * plane * rows,
    }  # fmt: skip
    offsets, end = {}, 0
    for name, size in sizes.items():
        offsets[name] = end
        end += -(-size // 256) * 256
    scratch = device.allocate(end)
    at = {name: device.address(scratch) + offset for name, offset in offsets.items()}
    buffers = {name: at.pop(name) for name in ("along_x", "along_y", "filtered")}
    work = VolumeWork(
        DetectionWork(
            settings=settings, frames=device.address(volume), number=plan.depth, words=words,
            room=room, **at,
        ),
        **buffers,
    )  # fmt: skip
    commands = device.commands()
    given, first = bytes(work.planes), np.int32(0)
    warps = THREADS // 32
    groups = plan.depth * -(-height // ODD_ROWS) * words
    for name, count in zip(_OF_PLANES, (plan.depth, groups), strict=True):
        commands.launch(plan.kernels[name], (-(-count // warps),), (THREADS,), (given, first))
    for strip in strips:
        work.planes.strip = strip
        given = bytes(work)
        voxels = plan.depth * (strip.y1 - strip.y0 + 2 * radius) * width
        blocks = min(math.ceil(voxels / THREADS), _MOST_BLOCKS)
        for name in KERNELS:
            commands.launch(plan.kernels[name], (blocks,), (THREADS,), (given,))
    number = commands.download(scratch[:4])
    commands.run()
    count = int(number.view(np.int32)[0])
    begin = offsets["maxima"]
    there = scratch[begin : begin + MAXIMUM.itemsize * min(count, room)]
    return device.download(there).view(MAXIMUM), count
