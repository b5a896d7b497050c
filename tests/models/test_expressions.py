"""Models from expressions: parsing, refusals, and fits."""

from __future__ import annotations

import json
import math
import pickle
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from napari_spotfit import Camera, Settings, SpotFits, fit_spots, simulate_spots
from napari_spotfit.engine.cuda.expression import to_cuda
from napari_spotfit.models.expressions.custom import RESERVED, start_of
from napari_spotfit.models.expressions.derivatives import derived
from napari_spotfit.models.expressions.grammar import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_POWER,
    NUMPY,
    Call,
    Name,
    Number,
    parse,
    value_of,
)
from napari_spotfit.models.profiles import GAUSSIAN, Profile

ROUND = "exp(-((x-x0)**2 + (y-y0)**2) / (2*s**2))"
FLAT_TOP = "exp(-(((x-x0)**2 + (y-y0)**2) / (2*s**2))**q)"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2*3 - 4/8", 6.5), ("-a**2", -9), ("2**-a", 1 / 8), ("2**a**2", 512), ("--a", 3),
        ("(1 + a)*-a", -12), ("1.5e1 + .5 + 2.", 17.5), ("a/2/3", 0.5), ("a - 1 - 1", 1),
        ("sin(pi/2) + cos(0) + exp(0) + log(1)", 3), ("sqrt(a*a) + abs(-a)", 6),
        ("tan(0) + tanh(0) + erf(0)", 0), ("+a", 3), (" a\t*\na ", 9), ("σ + a", 10),
    ],
)  # fmt: skip
def test_arithmetic_means_what_it_means_in_python(text, value):
    tree = parse(text, ["a", "σ"])
    known = {"a": np.float64(3), "σ": np.float64(7)}
    assert value_of(tree, known, NUMPY) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("open(x)", "'open' at character 1 .* is not known; the names are .*; accepted besides"),
        ("x + foo", "'foo' at character 5"),
        ("x.real", r"'\.' at character 2"),
        ("x[0]", r"'\[' at character 2"),
        ("x ^ 2", r"'\^' at character 3 .*powers are written with \*\*"),
        ("x; y", "';' at character 2"),
        ("lambda: x", "':' at character 7"),
        ("x if y else x", "'if' at character 3 .* misplaced"),
        ("x == y", "'=' at character 3"),
        ("'a'", '"\'" at character 1'),
        ("exp", "'exp' at character 1 .* is a function; write exp"),
        ("exp(x, y)", "',' at character 6"),
        ("(x", "ends too early"),
        ("x +", "ends too early"),
        ("", "ends too early"),
        ("x)", r"'\)' at character 2 .* misplaced"),
        ("2 x", "'x' at character 3 .* misplaced"),
        ("x * * x", r"'\*' at character 5 .* misplaced"),
        ("1/0", "'/' at character 2 .* gives no finite real number"),
        ("log(0)", "'log' at character 1 .* gives no finite"),
        ("(-1)**0.5", "gives no finite real number"),
        ("1e999", "gives no finite"),
        ("10.0**30**9", "gives no finite"),
        ("x**30**9", "must be from"),
        (f"x**{MAX_POWER + 1}", "must be from -32 to 32"),
        ("((x**9)**9)**9", "powers of powers multiplied"),
        ("x + " * 500 + "x", f"at most {MAX_LENGTH} characters"),
        ("(" * 100 + "x" + ")" * 100, f"at most {MAX_DEPTH} deep"),
        ("-" * 200 + "x", f"at most {MAX_DEPTH} deep"),
        ("+".join(["x"] * 250), "operations"),
    ],
)
def test_everything_else_is_refused_and_named(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text, ["x", "y"])


def test_where_pythons_stack_is_nearly_full_it_is_a_value_error_too():
    def deep(levels):
        return deep(levels - 1) if levels else parse("(" * 30 + "x" + ")" * 30, ["x"])

    refused = 0
    for levels in range(100, sys.getrecursionlimit(), 20):
        try:
            deep(levels)
        except ValueError as error:
            assert "too deep" in str(error)  # noqa: PT017 (most levels are no error)
            refused += 1
        except RecursionError:  # of the test itself
            break
    assert refused


def test_no_text_is_ever_run(tmp_path):
    trace = tmp_path / "trace"
    for text in (
        f"__import__('pathlib').Path({str(trace)!r}).touch()",
        f"exp(open({str(trace)!r}, 'w'))",
        f"(lambda: open({str(trace)!r}, 'w'))()",
        "().__class__.__base__.__subclasses__()",
        "exec('x')", "eval('x')", "x.__class__", "f'{x}'", "[x for x in y]", "{x}", "x:=y", "@x",
        "exp(__builtins__)", "globals()", "x0\nimport os", "x0;import os", "$(touch x)", "**x",
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"expression"):
            Profile.from_expression(text, ("x0", "y0", "s"), start={"s": "sigma"})
    assert not trace.exists()


WORDS = st.sampled_from(
    ["x", "y", "x0", "y0", "s", "exp", "import", "__", "eval", "pi", "1e3", ".", "(", ")", "**",
     "+", "-", "*", "/", " ", "'", "[", "]", "lambda", "=", ":", ",", "2", "sqrt", "\\", "\0"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=40), st.lists(WORDS, max_size=25).map("".join)))
def test_any_text_is_a_tree_or_a_value_error(text):
    with suppress(ValueError):
        assert isinstance(parse(text, ["x", "y", "x0", "y0", "s"]), (Number, Name, Call))


LEAVES = st.sampled_from(["(x-x0)", "(y-y0)", "s", "q", "0.7", "2", "pi"])
SMOOTH = ("exp(-{}**2)", "log(1 + {}**2)", "sqrt(2 + {}**2)", "sin({})", "cos({})", "tanh({})",
          "erf({})", "abs({})", "tan(0.2*tanh({}))", "1/(1.5 + {}**2)", "{}**3", "(1 + {}**2)**1.5",
          "(1 + {}**2)**q", "(2 + {}**2)**-0.5", "-{}")  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.tuples(st.sampled_from(SMOOTH), parts).map(lambda p: p[0].format(f"({p[1]})")),
        st.tuples(parts, st.sampled_from("+-*"), parts).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_derivatives_are_those_of_finite_differences(tree):
    names = ("x0", "y0", "s", "q")
    program = derived(f"{ROUND} * (1 + 0.1*q*(x-x0) + 0.1*tanh({tree}))", names)
    y, x = np.indices((7, 8), float)
    at = np.array([3.137, 2.871, 1.713, 0.829])
    f, *derivatives = program.evaluate(y, x, at)
    assume(np.isfinite(f).all())
    for derivative, step in zip(derivatives, 1e-5 * np.eye(4), strict=True):
        above, below = (program.evaluate(y, x, at + sign * step)[0] for sign in (1, -1))
        numeric = (above - below) / 2e-5
        # Where |u| has its kink, or a power is steep, differences say little.
        close = np.isclose(derivative, numeric, rtol=1e-3, atol=1e-4)
        assert close.mean() > 0.8


@pytest.mark.parametrize(
    "text",
    [
        "exp(-sqrt((x-x0)**2 + (y-y0)**2)/s)", FLAT_TOP.replace("q", "1.2"),
        FLAT_TOP.replace("q", "0.75"), "1/(1 + abs(x-x0)/s + abs(y-y0)/s)**1.5",
        "exp(-((x-x0)**2 + (y-y0)**2)**0.75/s)", "exp(-sqrt((x-x0)**2)/s - sqrt((y-y0)**2)/s)",
    ],
)  # fmt: skip
def test_derivatives_are_finite_at_the_very_centre(text):
    program = derived(text, ("x0", "y0", "s"))
    y, x = np.indices((7, 7), float)
    assert all(np.isfinite(values).all() for values in program.evaluate(y, x, (3.0, 3.0, 1.5)))


def test_differences_stay_differences():
    # 2·(x - x0) would lose digits as 2·x - 2·x0, and time.
    code = to_cuda(Profile.from_expression(ROUND, start={"s": "sigma"}).expression.program)
    assert code.count("(x - p0)") == 1
    assert "* x)" not in code


def test_the_model_has_the_names_that_were_given():
    own = Profile.from_expression(
        "exp(-abs(x - u)/a - ((y - v)/b)**2)", ("u", "v", "a", "b"), center=("v", "u"),
        start={"a": 1.5, "b": "2*sigma"}, bounds={"a": (0.1, None)}, name="edge",
    )  # fmt: skip
    assert [shape.name for shape in own.shape] == ["y", "x", "a", "b"]
    assert [shape.start for shape in own.shape[2:]] == [(1.5, 0), (0, 2)]
    assert [shape.unit for shape in own.shape[2:]] == ["", "px"]
    assert (own.shape[2].low, own.shape[2].high) == (0.1, None)
    assert own.parameter_count == 6
    value = own.sampled(np.array([3.0]), np.array([4.0]), {"y": 2, "x": 3, "a": 2, "b": 4})
    assert value[0] == pytest.approx(math.exp(-0.5 - 1 / 16))


@pytest.mark.parametrize(
    ("text", "follows"),
    [(ROUND, True), (ROUND + " + 0.1*(x - x0)", True), (ROUND + " + 0.1*x", False)],
)
def test_whether_a_model_depends_on_where_it_is(text, follows):
    own = Profile.from_expression(text, start={"s": "sigma"})
    assert own.expression.follows_center == follows


def test_parameters_are_the_centre_and_what_has_a_start():
    own = Profile.from_expression(FLAT_TOP, start={"s": "sigma", "q": 1})
    assert own.widths == ("s", "q")


@pytest.mark.parametrize(
    ("start", "value"),
    [(2, (2, 0)), ("3", (3, 0)), ("sigma", (0, 1)), ("2*(sigma - 1)/4", (-0.5, 0.5))],
)
def test_starts_are_linear_in_sigma(start, value):
    assert start_of(start) == pytest.approx(value)


BAD = [
    ({"parameters": ("x0", "y0", "s", "t")}, ValueError, "start must say where 't' begins"),
    ({"parameters": ("x0", "y0", "s", "t"), "start": {"s": 1, "t": 1}}, ValueError, "on 't'"),
    ({"expression": "a*" + ROUND, "start": {"s": 1, "a": 1}}, ValueError, "'a' does only what"),
    ({"expression": "a + " + ROUND, "start": {"s": 1, "a": 1}}, ValueError, "'a' does only what"),
    ({"expression": ROUND.replace("s", "(s+t)"), "start": {"s": 1, "t": 1}}, ValueError, "'t'"),
    ({"expression": "s*x0*y0"}, ValueError, "is constant where"),
    ({"expression": "log(s - 9)*" + ROUND}, ValueError, "must be finite"),
    ({"expression": f"exp(60*s)*{ROUND}"}, ValueError, "must be finite where fits begin"),
    ({"expression": ROUND + "/((x-x0)**2 + (y-y0)**2)"}, ValueError, "must be finite where"),
    ({"expression": f"sqrt(1 - q)*x + {ROUND}", "start": {"s": 1, "q": 0.95}}, ValueError,
     "must be finite close to where"),
    ({"expression": "sqrt(-(x-x0)**2) + s + y0"}, ValueError, "must be finite where fits begin"),
    ({"expression": "log(x - x)*" + ROUND}, ValueError, "not a real number"),
    ({"expression": "(1e20*x)**2*" + ROUND}, ValueError, "constants beyond"),
    ({"parameters": ("x0", "s")}, ValueError, "must have the centre's 'y0'"),
    ({"parameters": ("x0", "y0")}, ValueError, "1 to 10 parameters besides"),
    ({"parameters": "x0"}, TypeError, "must be names"),
    ({"parameters": ("x0", "y0", "s", "s")}, ValueError, "must differ"),
    ({"parameters": ("x0", "y0", "amplitude")}, ValueError, "'amplitude' is a reserved name"),
    ({"parameters": ("x0", "y0", "exp")}, ValueError, "'exp' is a reserved name"),
    ({"parameters": ("x0", "y0", "x_stderr")}, ValueError, "'x_stderr' is a reserved name"),
    ({"parameters": ("x0", "y0", "a b")}, ValueError, "letters, digits"),
    ({"parameters": ("x0", "y0", "_s")}, ValueError, "letters, digits"),
    ({"parameters": ("x0", "y0", "if")}, ValueError, "letters, digits"),
    ({"parameters": ("x0", "y0", 3)}, TypeError, "must be names"),
    ({"center": ("y0", "x0", "s")}, ValueError, "center must be two"),
    ({"start": {"s": 1, "x0": 3}}, ValueError, "besides the centre"),
    ({"start": {"s": "sigma**2"}}, ValueError, "must be linear in sigma"),
    ({"start": {"s": "foo"}}, ValueError, "'foo' at character 1 of the start value 'foo'"),
    ({"start": {"s": math.nan}}, ValueError, "finite"),
    ({"start": {"s": True}}, TypeError, "finite"),
    ({"start": {"s": None}}, TypeError, "number or a text"),
    ({"start": 3}, TypeError, "must map"),
    ({"bounds": {"s": 3}}, TypeError, "lowest, highest"),
    ({"bounds": {"s": (3, 1)}}, ValueError, "must rise"),
    ({"bounds": {"t": (1, 3)}}, ValueError, "got 't'"),
    ({"expression": 3}, TypeError, "must be a text"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "message"), BAD)
def test_what_makes_no_model_is_refused(change, kind, message):
    arguments = {"expression": ROUND, "start": {"s": "sigma"}} | change
    with pytest.raises(kind, match=message):
        Profile.from_expression(**arguments)


def test_an_angle_leads_nowhere_far_where_a_spot_gets_round(backend):
    """Nothing depends on it there; the spots are round, and the start is not."""
    turned = Profile.from_expression(
        "exp(-((x-x0)*cos(t) + (y-y0)*sin(t))**2 / (2*a**2)"
        " - ((y-y0)*cos(t) - (x-x0)*sin(t))**2 / (2*b**2))",
        start={"a": "1.1*sigma", "b": "0.9*sigma", "t": 0.3},
    )
    spots, _ = simulate_spots(
        5000, 9, photons=400, background=40 / 81, sigma=(1, 2), jitter=0.75, seed=9
    )
    fits = fit_spots(spots, model=turned, errors=False, backend=backend)
    assert fits.converged.mean() > 0.997
    assert fits.iterations.mean() < 7
    built_in = fit_spots(spots, model="gaussian_rotated", errors=False, backend=backend)
    assert np.mean(fits.chi_square < built_in.chi_square * 1.0001) > 0.98
    # Rounding does not decide where a fit ends.
    again = fit_spots(spots * np.float32(1.0000003), model=turned, errors=False, backend=backend)
    assert np.mean(np.hypot(again.x - fits.x, again.y - fits.y) > 1e-3) < 1e-3


D = "(x-x0)"


@pytest.mark.parametrize(
    "text",
    [
        "+".join([ROUND] + ["0.001*x"] * 60),
        ROUND + "*" + "*".join(f"(1+0.01*sin({D}*{i}))" for i in range(1, 20)),
        ROUND + "*" + "sin(" * 28 + D + ")" * 28,
        ROUND + "*" + "(1+0.1*" * 11 + f"sin({D}/s)**2" + ")**2" * 3 + ")" * 8,
        "exp(-(" + "+".join(f"tanh({D}*{i}/s)**2" for i in range(1, 24)) + "))+" + ROUND,
        ROUND + "/" + "(2+1/" * 14 + f"(3+{D}**2)" + ")" * 14,
    ],
)
def test_long_and_deep_expressions_are_read_at_once(text):
    begin = time.process_time()
    assert Profile.from_expression(text, start={"s": "sigma"}).widths == ("s",)
    assert time.process_time() - begin < 5


def test_too_many_terms_are_refused(monkeypatch):
    monkeypatch.setattr("napari_spotfit.models.expressions.derivatives.MAX_TERMS", 20)
    with pytest.raises(ValueError, match="too long with its derivatives"):
        derived(TURNED, ("x0", "y0", "a", "b", "t"))


def test_names_of_results_are_reserved():
    columns = {name: np.zeros(0) for name in ("y", "x")}
    public = {name for name in dir(SpotFits(columns)) if not name.startswith("_")}
    assert public <= RESERVED


def test_models_are_keys_and_travel():
    own = Profile.from_expression(
        FLAT_TOP, start={"s": "sigma", "q": 1}, bounds={"q": (0.2, 5)}, name="flat top"
    )
    again = Profile.from_expression(**own.to_dict())
    assert own == again == pickle.loads(pickle.dumps(own))
    assert hash(own) == hash(again)
    assert own != Profile.from_expression(FLAT_TOP, start={"s": "sigma", "q": 2})
    chosen = Settings(model=own, fixed={"q": 1.2})
    saved = json.loads(json.dumps(chosen.to_dict()))
    assert Settings(**saved) == chosen
    assert hash(Settings(**saved)) == hash(chosen)
    with pytest.raises(ValueError, match="not made from an expression"):
        GAUSSIAN.to_dict()


def spots(profile, truth, count=40):
    """Return noise-free spots, and their shape parameters."""
    rng = np.random.default_rng(0)
    y, x = np.indices((13, 13), float)
    values = [
        {"y": 6 + rng.uniform(-0.5, 0.5), "x": 6 + rng.uniform(-0.5, 0.5)} | truth(rng)
        for _ in range(count)
    ]
    light = {"amplitude": 300, "background": 20}
    images = [profile.evaluate((y, x), value | light) for value in values]
    return np.array(images), values


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_fits_recover_the_truth(backend, estimator):
    own = Profile.from_expression(FLAT_TOP, start={"s": "sigma", "q": 1}, bounds={"q": (0.2, 5)})
    images, truth = spots(own, lambda rng: {"s": rng.uniform(1.5, 2.5), "q": rng.uniform(0.8, 1.6)})
    fits = fit_spots(images, model=own, estimator=estimator, backend=backend, gain=1)
    assert fits.converged.all()
    for name in ("y", "x", "s", "q"):
        np.testing.assert_allclose(fits.columns[name], [v[name] for v in truth], atol=2e-3)
    assert np.isfinite(fits.columns["q_stderr"]).all()


def test_a_gaussian_of_ones_own_is_the_built_in_one(backend):
    own = Profile.from_expression(ROUND, start={"s": "sigma"})
    rng = np.random.default_rng(1)
    images, _ = spots(GAUSSIAN, lambda rng: {"sigma": rng.uniform(1.2, 2)}, 200)
    images = rng.poisson(images).astype(np.uint16)
    ours = fit_spots(images, model=own, backend=backend, gain=1)
    theirs = fit_spots(images, backend=backend, gain=1)
    for mine, other in (("y", "y"), ("x", "x"), ("s", "sigma"), ("amplitude", "amplitude")):
        np.testing.assert_allclose(ours.columns[mine], theirs.columns[other], rtol=2e-3)
    np.testing.assert_allclose(ours.s_stderr, theirs.sigma_stderr, rtol=1e-2)


SQUARED = "((x-x0)**2 + (y-y0)**2)"
BY_VARIANCE = f"exp(-{SQUARED}/(2*w))"


@pytest.mark.parametrize("text", [BY_VARIANCE, f"exp(-{SQUARED}/(2*sqrt(w)*sqrt(w)))"])
@pytest.mark.parametrize("begin", [0.3, 7, 30])
def test_a_start_far_off_ends_in_the_minimum(backend, text, begin):
    """Where a trial is far from any spot, neither its size nor its rounding counts."""
    own = Profile.from_expression(text, start={"w": begin})
    images, _ = simulate_spots(100, 13, photons=2000, background=5, sigma=1.6, seed=1)
    fits = fit_spots(images, model=own, errors=False, backend=backend)
    best = fit_spots(images, errors=False, backend=backend)
    assert fits.converged.all()
    np.testing.assert_allclose(fits.w, best.sigma**2, rtol=5e-3)


def test_what_nothing_depends_on_does_not_converge(backend):
    """So narrow that not one pixel but the middle one has light: no derivative is left."""
    own = Profile.from_expression(BY_VARIANCE, start={"w": 2})
    images, _ = simulate_spots(20, 13, photons=2000, background=5, sigma=1.6, jitter=0, seed=1)
    start = np.tile([6, 6, 1e-4], (20, 1))
    fits = fit_spots(images, model=own, start=start, backend=backend)
    assert not fits.converged.any()


def test_a_root_of_negative_numbers_is_no_convergence(backend):
    own = Profile.from_expression(f"exp(-{SQUARED}/2) + 0.1*sqrt(q)*exp(-{SQUARED}/8)/(1 + x0)",
                                  start={"q": 4})  # fmt: skip
    images, _ = simulate_spots(100, 13, photons=3000, background=5, sigma=0.8, seed=2)
    fits = fit_spots(images, model=own, backend=backend, errors=False)
    # The spots are narrower than the model's: the best q is below 0, where there is none.
    assert fits.valid.all()
    assert not fits.converged[fits.q > 1].any()


def test_a_model_may_be_called_as_one_that_is_built_in(backend):
    start = {"s": "sigma"}
    images, _ = spots(GAUSSIAN, lambda rng: {"sigma": rng.uniform(1.2, 2)}, 20)
    named = [Profile.from_expression(ROUND, start=start, name=n) for n in ("lorentzian", "mine")]
    ours, other = (fit_spots(images, model=model, backend=backend) for model in named)
    np.testing.assert_array_equal(ours.x, other.x)
    np.testing.assert_array_equal(ours.iterations, other.iterations)


U, V = "(x-x0)", "(y-y0)"
TERMS = [f"{U}**3", f"{U}**2*{V}", f"{U}*{V}**2", f"{V}**3", f"{U}**4", f"{U}**2*{V}**2", f"{V}**4"]


@pytest.mark.parametrize("estimator", ["lse", "wlse", "mle", "mle with variances"])
@pytest.mark.parametrize("count", [5, 6, 7, 9, 12])
def test_from_three_to_twelve_parameters(instruction_set, count, estimator):
    """A Gaussian by its matrix, and one more term of a polynomial for each other parameter."""
    names = [f"k{i}" for i in range(count - 5)]
    more = "".join(f" + 0.01*{k}*{term}" for k, term in zip(names, TERMS, strict=False))
    own = Profile.from_expression(
        f"exp(-(a*{U}**2 + 2*b*{U}*{V} + c*{V}**2){more})",
        start={"a": 0.15, "b": 0.01, "c": 0.15} | dict.fromkeys(names, 0.1),
    )
    images, truth = spots(
        own, lambda rng: {"a": rng.uniform(0.12, 0.18), "b": 0.02, "c": rng.uniform(0.12, 0.18)}
        | dict.fromkeys(names, -0.05),
    )  # fmt: skip
    options = {"gain": 1.0, "estimator": estimator[:4].strip(), "max_iterations": 50}
    if estimator == "mle with variances":
        del options["gain"]
        variance = np.random.default_rng(0).uniform(1, 3, images.shape[1:])
        options["camera"] = Camera(gain=1.0, variance=variance)
    if estimator == "wlse":
        options["weights"] = np.random.default_rng(0).uniform(0.5, 2, images.shape[1:])
    fits = fit_spots(images, model=own, **options)
    assert fits.converged.mean() > 0.95
    for name in ("y", "x", "a", "b", "c", *names):
        values = np.array([value[name] for value in truth])[fits.converged]
        np.testing.assert_allclose(fits.columns[name][fits.converged], values, atol=5e-3)
        errors = fits.columns[f"{name}_stderr"][fits.converged]
        assert ((errors > 0) & (errors < 1)).all()


TURNED = ("exp(-((x-x0)*cos(t) + (y-y0)*sin(t))**2/(2*a**2)"
          " - ((y-y0)*cos(t) - (x-x0)*sin(t))**2/(2*b**2))")  # fmt: skip


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_a_turned_gaussian_of_ones_own_is_the_built_in_one(backend, estimator):
    own = Profile.from_expression(
        TURNED, start={"a": "1.2*sigma", "b": "0.8*sigma", "t": 0.3},
        bounds={"t": (-math.pi / 4, math.pi / 2)},
    )  # fmt: skip
    images, _ = simulate_spots(
        200, 13, photons=8000, background=5, sigma=2.1, sigma_y=1.3, angle=20, seed=3
    )
    options = {"estimator": estimator, "gain": 1.0, "backend": backend}
    ours = fit_spots(images, model=own, **options)
    theirs = fit_spots(images, model="gaussian_rotated", **options)
    assert ours.converged.all()
    for mine, other in (("y", "y"), ("x", "x"), ("a", "sigma_x"), ("b", "sigma_y")):
        np.testing.assert_allclose(ours.columns[mine], theirs.columns[other], atol=3e-3)
        np.testing.assert_allclose(
            ours.columns[f"{mine}_stderr"], theirs.columns[f"{other}_stderr"], rtol=0.02
        )
    np.testing.assert_allclose(np.degrees(ours.t), theirs.angle, atol=0.1)


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_bounds_and_held_parameters(backend, estimator):
    own = Profile.from_expression(FLAT_TOP, start={"s": "sigma", "q": 1}, bounds={"q": (0.9, 1.2)})
    images, truth = spots(own, lambda rng: {"s": 2.0, "q": rng.uniform(0.8, 1.6)})
    options = {"estimator": estimator, "gain": 1.0, "backend": backend}
    fits = fit_spots(images, model=own, **options)
    assert fits.converged.all()
    q = np.array([value["q"] for value in truth])
    np.testing.assert_allclose(fits.q, np.clip(q, 0.9, 1.2), atol=2e-3)
    at_bound = (q < 0.89) | (q > 1.21)
    assert np.isnan(fits.q_stderr[at_bound]).all()
    assert (fits.q_stderr[~at_bound & (abs(q - 1.05) < 0.1)] > 0).all()
    held = fit_spots(images, model=own, fixed={"q": 1.1, "x": None}, **options)
    np.testing.assert_array_equal(held.q, np.float32(1.1))
    assert not held.q_stderr.any()
    assert not held.x_stderr.any()
    assert (held.y_stderr > 0).all()
