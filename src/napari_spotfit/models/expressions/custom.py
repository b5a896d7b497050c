"""Make custom models of expressions: check parameters, start values and bounds."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..columns import COMMON
from ..number_checks import Bounds, check_names, finite, rising
from .derivatives import derived
from .grammar import CONSTANTS, FUNCTIONS, NUMPY, Array, Program, parse, value_of

#: Shape parameters of a model at most, the centre included.
MAX_PARAMETERS = 12

#: What results have for every model, and fits for themselves: no names for parameters.
RESERVED = COMMON | {
    "settings", "converged", "valid", "columns", "index_names", "axes", "points", "to_dataframe",
    "to_host", "stop_counts", "concatenate", "mean_sigma", "units", "flag_counts", "save",
    "to_table", "copy", "judged", "accepted", "history", "with_columns",
    "model_image", "residual_image",
    # Together with a width, it is a parameter of the Moffat profile.
    "exponent",
}  # fmt: skip

#: Least share of a parameter's derivative that must remain after projection on the others'.
_INDEPENDENT = 1e-6
#: The spot on which expressions are tested: σ and the side of the ROI in pixels. Parameters are
#: tested off their start, each by this share of it farther than the one before, as at the start
#: symmetry may hide the effect of a parameter.
_TRIAL_SIGMA, _TRIAL_SIDE, _OFF = 1.7, 13, 0.07
#: Squares of larger numbers overflow single precision.
_LARGEST = 1e15


@dataclass(frozen=True)
class Expression:
    """An expression in x, y and shape parameters, as it was written."""

    text: str
    #: Names of the centre's y and x in it, and of the further shape parameters.
    center: tuple[str, str]
    names: tuple[str, ...]
    #: Where each further parameter starts, a number or a text in σ, ...
    start: tuple[float | str, ...]
    #: ... and its bounds.
    bounds: tuple[Bounds, ...]

    @property
    def program(self) -> Program:
        """The steps to f and its derivatives in the order of the kernels: x, y, the others."""
        return derived(self.text, (self.center[1], self.center[0], *self.names))

    def __call__(self, y: Array, x: Array, parameters: Mapping[str, float]) -> Array:
        """Return f at rows y and columns x, for shape parameters by name."""
        values = [parameters[name] for name in ("x", "y", *self.names)]
        return self.program.evaluate(y, x, values)[0]

    @property
    def follows_center(self) -> bool:
        """Whether f depends on the distance from the centre alone, not on the centre's position."""
        return _follows_center(self)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the arguments of ``Profile.from_expression``."""
        return {
            "expression": self.text,
            "parameters": [self.center[1], self.center[0], *self.names],
            "center": list(self.center),
            "start": dict(zip(self.names, self.start, strict=True)),
            "bounds": {
                name: list(ends) for name, ends in zip(self.names, self.bounds, strict=True)
            },
        }

    def check(self) -> None:
        """Check that fits can separate the parameters.

        Raises
        ------
        ValueError
            If f is not finite where fits begin, or if a parameter does what amplitude,
            background or other parameters do already.
        """
        y, x = np.indices((_TRIAL_SIDE, _TRIAL_SIDE), float)
        for where, values in (("where", _start(self)), ("close to where", _trial(self))):
            single = self.program.evaluate(y, x, values, np.float32)
            if not all((np.abs(numbers) < _LARGEST).all() for numbers in single):
                raise ValueError(
                    f"the expression and its derivatives must be finite {where} fits begin, all "
                    "around the spot; choose other start values"
                )
        f, *derivatives = self.program.evaluate(y, x, _trial(self))
        names = (self.center[1], self.center[0], *self.names)
        columns = [np.ones(f.size), *(values.ravel() for values in (f, *derivatives))]
        _, share, *shares = _shares_left(columns)
        if share < _INDEPENDENT:
            raise ValueError("the expression is constant where fits begin")
        for name, share in zip(names, shares, strict=True):
            if share < _INDEPENDENT:
                raise ValueError(
                    f"{name!r} does only what amplitude, background or the parameters before it "
                    "do; leave it out (amplitude and background are no part of the expression)"
                )


def checked_expression(
    text: Any, parameters: Any, center: Any, start: Any, bounds: Any
) -> Expression:
    """Return an expression that makes a model, or raise an error that says why it does not.

    The arguments are those of :meth:`~napari_spotfit.models.Profile.from_expression`.
    """
    given = _mapping("start", start)
    middle = _names("center", center)
    if len(middle) != 2:
        raise ValueError(f"center must be two names, those of the centre's y and x; got {middle}")
    if parameters is None:
        parameters = (*middle, *(name for name in given if name not in middle))
    every = _names("parameters", parameters)
    if missing := [name for name in middle if name not in every]:
        raise ValueError(
            f"parameters must have the centre's {missing[0]!r} among them; got {', '.join(every)}"
        )
    names = tuple(name for name in every if name not in middle)
    if not 1 <= len(names) <= MAX_PARAMETERS - 2:
        raise ValueError(
            f"a model must have 1 to {MAX_PARAMETERS - 2} parameters besides its centre; "
            f"got {len(names)}"
        )
    ends = _mapping("bounds", bounds)
    for setting, values in (("start", given), ("bounds", ends)):
        check_names(setting, values, "parameters besides the centre", names)
    if without := [name for name in names if name not in given]:
        raise ValueError(
            f"start must say where {without[0]!r} begins: a number, or a text in sigma, the "
            "width that is estimated from the data, such as 'sigma' or '2*sigma'"
        )
    expression = Expression(
        text, (middle[0], middle[1]), names,
        tuple(_checked_start(name, given[name]) for name in names),
        tuple(rising(f"bounds of {name}", ends.get(name, (None, None))) for name in names),
    )  # fmt: skip
    expression.check()
    return expression


def start_of(start: float | str) -> tuple[float, float]:
    """Return a start value as a constant and a multiple of the estimated σ.

    Examples
    --------
    >>> start_of("2*sigma + 1")
    (1.0, 2.0)
    """
    if not isinstance(start, str):
        return float(start), 0.0
    tree = parse(start, ["sigma"], f"the start value {start!r}")
    with np.errstate(all="ignore"):
        at = [float(value_of(tree, {"sigma": np.float64(sigma)}, NUMPY)) for sigma in (0, 1, 2, 5)]
    constant, per_sigma = at[0], at[1] - at[0]
    if not np.allclose(at, [constant + sigma * per_sigma for sigma in (0, 1, 2, 5)]):
        raise ValueError(f"a start value must be linear in sigma, such as '2*sigma'; got {start!r}")
    return constant, per_sigma


def _start(expression: Expression, off: float = 0.0) -> list[float]:
    """Return shape parameters where a fit would begin, or a little off."""
    middle = float(_TRIAL_SIDE // 2)
    values = [middle, middle]
    for i, (start, ends) in enumerate(zip(expression.start, expression.bounds, strict=True)):
        constant, per_sigma = start_of(start)
        value = (constant + per_sigma * _TRIAL_SIGMA) * (1 + off * (i + 1))
        low, high = (value if end is None else end for end in ends)
        values.append(float(min(max(value, low), high)))
    return values


def _trial(expression: Expression) -> list[float]:
    """Return shape parameters not quite at the start."""
    x, y, *rest = _start(expression, _OFF)
    return [x + 0.2, y + 0.7, *rest]


@lru_cache(maxsize=64)
def _follows_center(expression: Expression) -> bool:
    y, x = np.indices((_TRIAL_SIDE, _TRIAL_SIDE), float)
    center_x, center_y, *rest = _trial(expression)
    first = expression.program.evaluate(y, x, (center_x, center_y, *rest))
    moved = center_x + 31.7, center_y - 17.3
    second = expression.program.evaluate(y - 17.3, x + 31.7, (*moved, *rest))
    pairs = zip(first, second, strict=True)
    return all(np.allclose(a, b, rtol=1e-9, atol=1e-11) for a, b in pairs)


def _mapping(setting: str, given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{setting} must map parameters to their values; got {given!r}")
    return given


def _names(setting: str, given: Any) -> tuple[str, ...]:
    """Check names of parameters, which become names of results."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{setting} must be names, such as ('y0', 'x0'); got {given!r}")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{setting} must be names; got {name!r}")
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            raise ValueError(f"{setting} must be names of letters, digits and _; got {name!r}")
        if name in FUNCTIONS or name in CONSTANTS or name in RESERVED or _is_column(name):
            raise ValueError(f"{name!r} is a reserved name; choose another name")
    if len(set(names)) < len(names):
        raise ValueError(f"{setting} must differ from each other; got {', '.join(names)}")
    return names


def _is_column(name: str) -> bool:
    return name.startswith("axis_") or name.endswith("_stderr")


def _checked_start(name: str, start: Any) -> float | str:
    if not isinstance(start, str):
        number = finite(f"start of {name}", start, "a finite number or a text in sigma")
        if number is None:
            raise TypeError(f"start of {name} must be a finite number or a text in sigma; got None")
        return number
    start_of(start)
    return start


def _shares_left(columns: Sequence[Array]) -> list[float]:
    """Return how much of each column is left without what those before it can make up."""
    base: list[Array] = []
    left = []
    for column in columns:
        rest = column
        for direction in (*base, *base):  # twice, against rounding
            rest = rest - direction * (direction @ rest)
        size = float(np.linalg.norm(rest))
        left.append(size / max(float(np.linalg.norm(column)), 1e-300))
        if size > 0:
            base.append(rest / size)
    return left
