"""Settings as the Python that makes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..models.profiles import Profile
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings

_PACKAGE = "napari_spotfit"
_INDENT = " " * 4


def settings_as_python(settings: Settings) -> str:
    """Return an expression that makes the same settings to the bit.

    It takes ``import napari_spotfit`` for granted, and leaves out what is as by default.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> print(settings_as_python(Settings(sigma=1.25, bounds={"sigma": (1, None)})))
    napari_spotfit.Settings(
        sigma=1.25,
        bounds={'sigma': (1.0, None)},
    )
    """
    defaults = Settings()
    given = {
        item.name: getattr(settings, item.name)
        for item in fields(settings)
        if getattr(settings, item.name) != getattr(defaults, item.name)
    }
    return _call(f"{_PACKAGE}.Settings", given)


def literal(value: Any) -> str:
    """Return plain values, and what settings hold, as Python that makes them."""
    if isinstance(value, Profile):
        return _indented(_call(f"{_PACKAGE}.Profile.from_expression", value.to_dict()))
    if isinstance(value, NoiseModel):
        return _indented(_call(f"{_PACKAGE}.NoiseModel", value.to_dict()))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {literal(one)}' for key, one in value.items())}}}"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(literal(one) for one in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    return repr(value)


def _call(name: str, given: Mapping[str, Any]) -> str:
    lines = [f"{_INDENT}{key}={literal(value)},\n" for key, value in given.items()]
    return f"{name}(\n{''.join(lines)})" if lines else f"{name}()"


def _indented(text: str) -> str:
    return text.replace("\n", f"\n{_INDENT}")
