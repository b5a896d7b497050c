"""Numbers of options."""

from __future__ import annotations

import math
from typing import Any

import click


class AboveZero(click.FloatRange):
    """A finite number above 0, up to a highest one if there is one."""

    def __init__(self, highest: float | None = None) -> None:
        super().__init__(0, highest, min_open=True)

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number; a NaN, which lies nowhere, is in no range for Click."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"it must be a finite number; got {value}", param, ctx)
        return number
