"""Cases of selftest.cpp for every platform, and tolerances of results."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from napari_spotfit import Settings, simulate_spots
from napari_spotfit.engine.fit_job import make_fit_settings
from napari_spotfit.engine.kernel_arguments import PIXEL_TYPES, numbers_per_fit
from napari_spotfit.models.estimators import ESTIMATORS
from napari_spotfit.models.profiles import MODELS

COUNT, SIZE = 500, 9
#: How many blocks each function of selftest.cpp writes.
RESULTS = {"fit": 4}
KINDS = (*ESTIMATORS, "mle with variances")


@dataclass(frozen=True)
class Case:
    """A function of selftest.cpp and the blocks that it reads."""

    name: str
    function: str
    blocks: tuple[bytes, ...] = ()

    def compare(self, own: list[bytes], other: list[bytes], same_code: bool) -> tuple[bool, str]:
        """Return whether results agree with our own, and their largest difference.

        With the same instruction set the code is the same, and so is every bit. Between
        instruction sets sums are in another order.
        """
        if same_code or self.function != "fit":
            return own == other or not same_code, "other bits"
        return _compare_fits(own, other)


def _compare_fits(own: list[bytes], other: list[bytes]) -> tuple[bool, str]:
    kinds = (np.float64, np.float32, np.uint16, np.uint8)
    ours, theirs = (
        [np.frombuffer(block, kind) for block, kind in zip(blocks, kinds, strict=True)]
        for blocks in (own, other)
    )
    stop = np.mean(ours[3] == theirs[3])
    moved = np.quantile(np.abs(ours[0] - theirs[0]), 0.99)
    scale = np.abs(ours[1]) + 1e-3
    changed = np.nanquantile(np.abs(ours[1] - theirs[1]) / scale, 0.99)
    numbers = np.mean(np.isnan(ours[1]) == np.isnan(theirs[1]))
    good = stop >= 0.99 and numbers >= 0.99 and moved < 1e-3 and changed < 1e-2
    return bool(good), (
        f"{stop:.1%} of the stop conditions the same; 99 % of the positions within {moved:.0e} px,"
        f" of the other values within {changed:.0e} of theirs"
    )


def _moffat_spots() -> NDArray[np.int64]:
    """Return spots with wings: a Gaussian leaves the exponent open."""
    random, (y, x) = np.random.default_rng(1), np.indices((SIZE, SIZE), float)
    shape = {"width": 1.6, "exponent": 2.0, "amplitude": 5000.0, "background": 10.0}
    light = [
        MODELS["moffat"].evaluate((y, x), shape | dict(zip("yx", center, strict=True)))
        for center in random.uniform(SIZE / 2 - 1, SIZE / 2, (COUNT, 2))
    ]
    return random.poisson(light)


def _fits(model: str, pixel: str, estimator: str) -> Case:
    settings = Settings(
        model=model, pixel=pixel, estimator=estimator.partition(" ")[0], errors=True
    )
    spots = _moffat_spots() if model == "moffat" else simulate_spots(COUNT, SIZE, seed=1)[0]
    spots = spots.astype(np.uint16 if estimator in ("lse", "mle") else np.float32)
    planes = b""
    if estimator not in ("lse", "mle"):
        weights = np.random.default_rng(2).uniform(0.5, 2, (SIZE, SIZE)).astype(np.float32)
        weights[2, 3] = np.nan  # a bad pixel
        planes = weights.tobytes()
    numbers = (
        MODELS[model].place(pixel), KINDS.index(estimator), COUNT, SIZE, SIZE,
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
    *(
        _fits(model.name, pixel, estimator)
        for model in MODELS.values()
        for pixel in ("sampled", "integrated")[: len(model.places)]
        for estimator in KINDS
    ),
)


def joined(cases: Iterable[Case]) -> bytes:
    """Return cases in the format of selftest.cpp."""
    blocks = [block for case in cases for block in (case.function.encode(), *case.blocks)]
    return b"".join(struct.pack("<q", len(block)) + block for block in blocks)


def separated(results: bytes) -> list[list[bytes]]:
    """Return the output of selftest.cpp, a list of blocks per case."""
    blocks = []
    while results:
        (length,) = struct.unpack_from("<q", results)
        blocks.append(results[8 : 8 + length])
        results = results[8 + length :]
    left = iter(blocks)
    found = [list(islice(left, RESULTS[case.function])) for case in CASES]
    assert not list(left)
    return found
