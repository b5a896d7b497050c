"""All there is to know about a trial point, by the way that suits the kind of fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import likelihood, pixelwise, separable
from .kinds import Kind, by_kind


@by_kind
def evaluate(kind: Kind) -> Callable[..., Any]:
    """Choose what evaluates a trial point.

    Returns
    -------
    point : the shape, amplitude, background, χ²
    normal : the normal matrix, its upper triangle by rows
    gradient : the right-hand side
    norm : the sum of squares that a step's change of the model is compared to
    """
    if kind.plain:
        return separable.evaluate
    return likelihood.evaluate if kind.likelihood else pixelwise.evaluate
