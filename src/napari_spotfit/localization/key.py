"""What a run and each of its parts are made of, as plain values that can be compared."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.cpu import library
from ..images.camera import Camera
from ..images.identity import identity, values_identity
from ..settings.settings import Settings
from ..version import __version__
from .plan import Maps

#: Settings that change nothing about the numbers.
_NO_MATTER = ("threads", "devices")


def key_of(image: Any, maps: Maps) -> dict[str, Any]:
    """Return what fits depend on besides settings and backend: image, maps, this version."""
    camera = maps.camera or Camera()
    values = {
        "mask": maps.mask, "weights": maps.weights, "bad_pixels": maps.bad_pixels,
        "offset": camera.offset, "gain": camera.gain, "variance": camera.variance,
    }  # fmt: skip
    given = {name: values_identity(one) for name, one in values.items() if one is not None}
    return {"version": __version__, "image": identity(image), **given}


def with_settings(
    key: dict[str, Any], settings: Settings, kind: str, numbers: NDArray[np.int64]
) -> dict[str, Any]:
    """Return a key with settings, the kind of backend, its instruction set here, and frames."""
    return {
        **key,
        "settings": {
            name: value for name, value in settings.to_dict().items() if name not in _NO_MATTER
        },
        "backend": kind,
        "instruction_set": library.load().instruction_set if kind == "cpu" else None,
        "frames": _frames(numbers),
    }


def _frames(numbers: NDArray[np.int64]) -> dict[str, Any]:
    ends = [int(numbers[0]), int(numbers[-1])] if len(numbers) else None
    found = hashlib.blake2b(np.ascontiguousarray(numbers, "<i8").tobytes(), digest_size=16)
    return {"count": len(numbers), "first_and_last": ends, "numbers": found.hexdigest()}
