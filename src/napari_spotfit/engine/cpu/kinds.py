"""Kinds of fits: the model and the estimator, which compiled code knows as a type."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from numba.extending import overload

from ...images.pixel_calibration import Planes
from ...models.expressions.program import Program
from ...models.profiles import Profile
from ...settings.settings import Settings
from .unroll import unrolled
from .vectors import Constant


@dataclass(frozen=True, repr=False)
class Kind(Constant):
    """What a fit is made of, as far as code differs; all else comes as numbers."""

    #: A name of :data:`~napari_spotfit.models.profiles.MODELS`, or "custom".
    model: str
    #: Whether the profile is averaged over each pixel.
    integrated: bool
    #: Number of shape parameters.
    shapes: int
    #: Whether pixels have weights of their own, or for maximum likelihood, variances.
    weighted: bool
    #: Whether it is maximum likelihood in the end, and whether this search is: it begins
    #: with least squares.
    poisson: bool
    likelihood: bool
    #: Where the widths start: constants, and multiples of the estimated σ.
    starts: tuple[tuple[float, float], ...]
    #: How the turned Gaussian is called in the end: 2, with its first axis next to x; 1, with
    #: its axes as they are; 0, with its angle as it is.
    turns: int = 2
    #: Whether the matrix is that of the standard errors, which the search may differ from.
    for_errors: bool = False
    #: A model of somebody's own.
    program: Program | None = None

    def __repr__(self) -> str:
        values = (*(getattr(self, name) for name in self.__dataclass_fields__),)
        digest = hashlib.sha256(repr(values).encode()).hexdigest()[:16]
        return f"{self.model}-{digest}"

    @property
    def separable(self) -> bool:
        """Whether the profile is a product of one along x and one along y."""
        return self.model not in ("gaussian_rotated", "custom")

    @property
    def plain(self) -> bool:
        """Whether sums along the axes are enough: the fast path."""
        return self.separable and not self.weighted and not self.likelihood

    @property
    def searched(self) -> int:
        """Number of parameters of a step: amplitude and background may be implicit."""
        return self.shapes + 2 * self.likelihood

    @property
    def blocks(self) -> int:
        """How many numbers a pixel has: its data, its weight or variance."""
        return 1 + self.weighted


def kind_of(settings: Settings, planes: Planes | None) -> Kind:
    """Return the kind of fits that settings ask for."""
    profile = settings.profile
    return Kind(
        profile.name if profile.expression is None else "custom",
        settings.pixel == "integrated",
        len(profile.shape),
        planes is not None,
        settings.estimator == "mle",
        settings.estimator == "mle",
        _starts(profile),
        _turns(settings),
        program=profile.expression.program if profile.expression is not None else None,
    )


#: Half the full width at half maximum of a Gaussian, over its σ.
_HALF_WIDTH = 1.18


def _starts(profile: Profile) -> tuple[tuple[float, float], ...]:
    if profile.name == "lorentzian":
        return ((0.0, _HALF_WIDTH),)
    return tuple(parameter.start for parameter in profile.shape[2:])


def _turns(settings: Settings) -> int:
    limited = {*settings.fixed, *settings.bounds}
    if "angle" in limited:
        return 0
    return 1 if limited & {"sigma_x", "sigma_y"} else 2


def by_kind(choose: Callable[[Kind], Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function that does what is chosen for the kind of fit, also in compiled code.

    The kind is its first argument; what is chosen takes all of them.
    """

    def call(kind: Kind, *arguments: Any) -> Any:
        return choose(kind)(kind, *arguments)

    @overload(call, strict=False, jit_options={"forceinline": True})
    def chosen(kind: Any, *arguments: Any) -> Any:
        return choose(kind.known)

    return call


@unrolled
def least_squares(kind: Kind) -> Kind:
    """Return the kind of fit that maximum likelihood begins with."""
    return replace(kind, likelihood=False)


@unrolled
def for_errors(kind: Kind) -> Kind:
    """Return the kind of fit whose matrix is that of the standard errors."""
    return replace(kind, for_errors=True)


@unrolled
def is_likelihood(kind: Kind) -> bool:
    """Whether it is maximum likelihood."""
    return kind.likelihood


@unrolled
def is_weighted(kind: Kind) -> bool:
    """Whether pixels have weights or variances of their own."""
    return kind.weighted


@unrolled
def is_plain(kind: Kind) -> bool:
    """Whether sums along the axes are enough."""
    return kind.plain


@unrolled
def value_count(kind: Kind) -> int:
    """Return how many single-precision results a fit has besides errors."""
    return kind.shapes - 2 + 5
