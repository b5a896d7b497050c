"""The models: the names, units and meaning of their shape parameters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ShapeParameter:
    """One parameter that the fit iterates."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Model:
    """A spot model h = amplitude · f(shape) + background.

    Amplitude and background are implicit in every least-squares fit (variable
    projection), so a model is told apart by its shape parameters alone.
    """

    name: str
    shape: tuple[ShapeParameter, ...]

    @property
    def parameter_count(self) -> int:
        """Number of fitted parameters, amplitude and background included."""
        return len(self.shape) + 2


CENTER = (
    ShapeParameter("y", "px", "centre along the image's rows axis"),
    ShapeParameter("x", "px", "centre along the image's columns axis"),
)

#: f = exp(-((x - x̄)² + (y - ȳ)²) / 2σ²), sampled at the pixel centres.
GAUSSIAN = Model(
    "gaussian", (*CENTER, ShapeParameter("sigma", "px", "standard deviation of the spot"))
)

MODELS = {model.name: model for model in (GAUSSIAN,)}
