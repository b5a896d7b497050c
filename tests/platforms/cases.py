"""What selftest.cpp runs on every platform, and how much its results may differ."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from napari_spotfit import Settings, simulate_spots
from napari_spotfit.engine.cpu.interface import PIXEL_TYPES, PROFILES
from napari_spotfit.engine.fit_settings import make_fit_settings
from napari_spotfit.models.profiles import MODELS
from napari_spotfit.results.columns import numbers_per_fit

COUNT, SIZE = 500, 9
ESTIMATORS = ("lse", "wlse", "mle", "mle with variances")


@dataclass(frozen=True)
class Case:
    """A function of selftest.cpp and the blocks that it reads."""

    name: str
    function: str
    blocks: tuple[bytes, ...] = ()

    def difference(self, own: list[bytes], other: list[bytes], other_code: bool) -> str:
        """Return how results differ from our own more than they may; nothing if they do not.

        With the same instruction set the code is the same, and so is every bit. Between
        instruction sets sums are in another order.
        """
        if own == other:
            return ""
        if not other_code:
            return "DIFFERENT"
        return _difference_of_fits(own, other) if self.function == "fit" else ""


def _difference_of_fits(own: list[bytes], other: list[bytes]) -> str:
    kinds = (np.float64, np.float64, np.float32, np.uint16, np.uint8)
    ours, theirs = (
        [np.frombuffer(block, kind) for block, kind in zip(blocks, kinds, strict=True)]
        for blocks in (own, other)
    )
    stops = np.mean(ours[4] == theirs[4])
    moved = np.quantile(np.abs(np.r_[ours[0] - theirs[0], ours[1] - theirs[1]]), 0.99)
    scale = np.abs(ours[2]) + 1e-3
    changed = np.nanquantile(np.abs(ours[2] - theirs[2]) / scale, 0.99)
    numbers = np.mean(np.isnan(ours[2]) == np.isnan(theirs[2]))
    if stops >= 0.99 and moved < 1e-3 and changed < 1e-2 and numbers >= 0.99:
        return ""
    return (
        f"DIFFERENT: stop conditions {stops:.1%} alike, NaNs {numbers:.1%},"
        f" 99 % within {moved:.1e} px and {changed:.1e} of the values"
    )


def _fits(model: str, pixel: str, estimator: str) -> Case:
    settings = Settings(
        model=model, pixel=pixel, estimator=estimator.partition(" ")[0], errors=True
    )
    spots = simulate_spots(COUNT, SIZE, seed=1)[0]
    spots = spots.astype(np.uint16 if estimator in ("lse", "mle") else np.float32)
    planes = b""
    if estimator not in ("lse", "mle"):
        weights = np.random.default_rng(2).uniform(0.5, 2, (SIZE, SIZE)).astype(np.float32)
        weights[2, 3] = np.nan  # a bad pixel
        planes = weights.tobytes()
    numbers = (
        PROFILES[model, pixel], ESTIMATORS.index(estimator), COUNT, SIZE, SIZE,
        PIXEL_TYPES[spots.dtype.str[1:]], 1, numbers_per_fit(settings),
    )  # fmt: skip
    return Case(
        f"{model}, {pixel}, {estimator}",
        "fit",
        (
            struct.pack("<8q", *numbers),
            spots.tobytes(),
            planes,
            bytes(make_fit_settings(settings, (SIZE, SIZE))),
        ),
    )


CASES = (
    Case("lane width", "lane_width"),
    *(
        _fits(model, pixel, estimator)
        for model, pixel in PROFILES
        if model in MODELS
        for estimator in ESTIMATORS
    ),
)


def joined(*blocks: bytes) -> bytes:
    """Return blocks as selftest.cpp reads them."""
    return b"".join(struct.pack("<q", len(block)) + block for block in blocks)


def blocks_of(content: bytes) -> list[bytes]:
    """Return the blocks that selftest.cpp wrote."""
    blocks = []
    while content:
        (length,) = struct.unpack_from("<q", content)
        blocks.append(content[8 : 8 + length])
        content = content[8 + length :]
    return blocks
