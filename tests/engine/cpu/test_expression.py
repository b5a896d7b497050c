"""Expressions as the library interprets them, against their formulas in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from interpreter import evaluate

from napari_spotfit import Profile
from napari_spotfit.engine.cpu.expression import OPERATIONS, encode
from napari_spotfit.engine.cpu.layouts import EXPRESSION_SIZES, MAX_SHAPE
from napari_spotfit.models.expressions.custom import MAX_PARAMETERS

EVERY_FUNCTION = Profile.from_expression(
    "exp(-((x-x0)**2 + abs(y-y0)**q)/(2*s**2)) + 0.3*sin((x-x0)/s)*cos((y-y0)/s)"
    "*erf(s - q)*tanh(x/9)*tan(q/2)/sqrt(1 + (x/s)**2) + log(1 + (y-y0)**2)/99/s**0.5",
    start={"s": "sigma", "q": 1.3},
)
SQUARED = "((x-x0)**2 + (y-y0)**2)"
EXPRESSIONS = {
    "round": (f"exp(-{SQUARED}/(2*s**2))", {"s": 1.7}),
    "flat top": (f"exp(-({SQUARED}/(2*s**2))**q)", {"s": 1.7, "q": 1.2}),
    "turned": (
        "exp(-((x-x0)*cos(t) + (y-y0)*sin(t))**2/(2*a**2)"
        " - ((y-y0)*cos(t) - (x-x0)*sin(t))**2/(2*b**2))",
        {"a": 2, "b": 1.5, "t": 0.4},
    ),
    "product": ("1/(1 + (x-x0)**2/w**2)/(1 + (y-y0)**2/w**2)", {"w": 1.7}),
    "columns": ("exp(-(x-x0)**2/s**2) + 0.01*y0*y", {"s": 1.7}),
    "rows": ("exp(-(y-y0)**2/s**2) - 0.01*x0*x", {"s": 1.7}),
    "moffat": (f"(1 + {SQUARED}/w**2)**-q", {"w": 2, "q": 2.5}),
    "ring": (f"exp(-(sqrt({SQUARED}) - r)**2/(2*s**2))", {"r": 1.3, "s": 1.1}),
    "signs": (f"-(-x*x0 + y*y0)*-s/(-2 - (x-x0)**2) - 3 - exp(-{SQUARED}/s)", {"s": 1.7}),
    "ratio": ("(x0 - x)/(s - -x)*exp(-(y - y0)**2/s)/(1 + y**2)", {"s": 1.7}),
}


def own(name):
    text, start = EXPRESSIONS[name]
    return Profile.from_expression(text, start=start)


@pytest.mark.parametrize("roi_shape", [(5, 5), (9, 9), (7, 12), (12, 7), (32, 32), (5, 40)])
@pytest.mark.parametrize("name", [*EXPRESSIONS, "every function"])
def test_values_and_derivatives(instruction_set, name, roi_shape):
    profile = EVERY_FUNCTION if name == "every function" else own(name)
    rows, columns = roi_shape
    encoded = encode(profile.expression, roi_shape)
    begin = [constant + 1.7 * per_sigma for constant, per_sigma in (p.start for p in profile.shape)]
    begin[:2] = (columns - 1) / 2, (rows - 1) / 2
    rng = np.random.default_rng(0)
    parameters = np.array(begin)[:, None] * rng.uniform(0.95, 1.05, (len(begin), 16))
    parameters = parameters.astype(np.float32)
    lanes = evaluate(encoded, roi_shape, np.zeros((len(begin), 1))).shape[-1]
    found = evaluate(encoded, roi_shape, parameters[:, :lanes])
    y, x = np.indices(roi_shape, float)
    for lane in range(lanes):
        exact = profile.expression.program.evaluate(y, x, parameters[:, lane].astype(float))
        for mine, theirs in zip(found[..., lane], exact, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5 * np.abs(theirs).max())


def test_what_needs_no_pixel_is_not_done_for_each():
    program = encode(own("round").expression, (9, 9)).program
    assert program.by_pixel <= 9
    assert 0 < program.by_column <= 3
    assert 0 < program.by_row <= 3
    # Both axes on their own; pixels are left with products of both.
    steps = encode(own("product").expression, (9, 9)).steps
    at_pixels = steps[-encode(own("product").expression, (9, 9)).program.by_pixel :]
    assert OPERATIONS["/"] not in at_pixels["operation"]


def test_there_is_code_for_as_many_parameters_as_a_model_may_have():
    assert EXPRESSION_SIZES[-1] == MAX_SHAPE == MAX_PARAMETERS
