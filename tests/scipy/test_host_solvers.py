"""rlx.scipy.optimize and rlx.scipy.integrate through SciPy's solvers: trees, sparse forms, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.sparse

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.scipy.host_functions import Host, Parameters
from rlx.scipy.integrate import solve_ivp
from rlx.scipy.jacobian_forms import sparse_pattern
from rlx.scipy.optimize import curve_fit, least_squares, minimize, root
from rlx.scipy.optimize.scipy_methods import SCIPY_METHODS

T = np.linspace(0.0, 1.0, 9)
Y = 2 * np.exp(-3 * T) + 0.02 * np.sin(20 * T)


def decay(module: Any) -> Callable[..., Any]:
    return lambda t, a, b: a * module.exp(-b * t)


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def diffusion(u: Any) -> tuple[Any, Any]:
    """Residuals of a nonlinear equation on a line, and of data."""
    v = jnp.pad(u, 1)
    return v[2:] - 2 * u + v[:-2] - 0.1 * jnp.sin(u) + 0.01, 0.01 * (u - 1)


# ------------------------------------------------------------------ least squares, curves
@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_least_squares_of_a_tree_is_scipys(method: str) -> None:
    expected = scipy.optimize.least_squares(lambda p: decay(np)(T, *p) - Y, [1.0, 1.0], "3-point", method=method)
    found = least_squares(lambda p: decay(jnp)(T, p["a"], p["b"]) - Y, {"a": 1.0, "b": jnp.ones((1, 1))}, method=method)
    assert found.x["a"].shape == () and found.x["b"].shape == (1, 1) and found.x["b"].dtype == np.float64
    np.testing.assert_allclose([found.x["a"], found.x["b"].item()], expected.x, rtol=1e-6)
    np.testing.assert_allclose(found.jac, expected.jac, atol=1e-6)
    assert expected.keys() == found.keys() and found.success


def test_limits_losses_and_scales_are_scipys() -> None:
    options: dict[str, Any] = {"loss": "soft_l1", "f_scale": 0.1, "xtol": 1e-12}
    fit = scipy.optimize.least_squares(
        lambda p: decay(np)(T, *p) - Y, [1.0, 1.0], bounds=([0, 0], [1.5, 9]), x_scale=[1, 2], **options
    )
    for bounds in (([0, 0], [1.5, 9.0]), scipy.optimize.Bounds([0, 0], [1.5, 9.0])):
        found = least_squares(lambda p: decay(jnp)(T, *p) - Y, [1.0, 1.0], bounds=bounds, x_scale=[1, 2], **options)
        np.testing.assert_allclose(found.x, fit.x, rtol=1e-5)
    options["loss"] = lambda z: jnp.stack([2 * (jnp.sqrt(1 + z) - 1), (1 + z) ** -0.5, -0.5 * (1 + z) ** -1.5])
    own = least_squares(lambda p: decay(jnp)(T, *p) - Y, [1.0, 1.0], bounds=(0, [1.5, 9.0]), **options)
    np.testing.assert_allclose(own.x, fit.x, rtol=1e-5)


def test_a_sparse_jacobian_is_used_where_it_is_sparse() -> None:
    found = least_squares(diffusion, np.zeros(100), args=())
    dense = least_squares(diffusion, np.zeros(100), sparse=False)
    assert scipy.sparse.issparse(found.jac) and found.jac.nnz == 298 + 100
    assert isinstance(dense.jac, np.ndarray)
    np.testing.assert_allclose(found.cost, dense.cost, rtol=1e-5)
    np.testing.assert_allclose(found.jac.toarray(), rlx.jacfwd(lambda u: jnp.concatenate(diffusion(u)))(found.x))
    for keywords in ({"method": "lm"}, {"tr_solver": "exact"}):
        assert isinstance(least_squares(diffusion, np.zeros(70), max_nfev=2, **keywords).jac, np.ndarray)
        with pytest.raises(errors.OptionError, match="sparse=True"):
            least_squares(diffusion, np.zeros(70), sparse=True, **keywords)


def test_a_dense_pattern_is_not_stored() -> None:
    """Of 10**16 places: only the numbers of its rows and columns are needed to refuse it."""
    x = rlx.ShapeDtypeStruct((10**8,), "float64")
    assert sparse_pattern(lambda x: x * x.sum(), x) is None
    assert sparse_pattern(lambda x: x[:64] * x[:64].sum(), rlx.ShapeDtypeStruct((64,), "float64")) is None
    assert sparse_pattern(lambda x: x**2, rlx.ShapeDtypeStruct((63,), "float64")) is None
    found = sparse_pattern(lambda x: x**2, rlx.ShapeDtypeStruct((64,), "float64"))
    assert found is not None and found.nnz == 64


def test_functions_without_forward_mode() -> None:
    """Their Jacobians are found in reverse mode, dense and sparse."""

    @rlx.custom_vjp
    def square(x: Any) -> Any:
        return x**2

    square.defvjp(lambda x: (x**2, x), lambda x, g: (2 * x * g,))
    for sparse in (False, True):
        found = least_squares(lambda x: square(x) - 4.0, np.ones(3), sparse=sparse)
        np.testing.assert_allclose(found.x, 2.0, rtol=1e-6)


def test_curve_fit_is_scipys() -> None:
    sigma = np.linspace(0.1, 0.3, T.size)
    for options in ({}, {"sigma": sigma, "absolute_sigma": True}, {"bounds": (0, [3, 9.0])}, {"p0": [2.0, 2.0]}):
        expected = scipy.optimize.curve_fit(decay(np), T, Y, **options)
        found = curve_fit(decay(jnp), T, Y, **options)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4)
    assert len(curve_fit(decay(jnp), T, Y, full_output=True)) == 5
    found, _ = curve_fit(lambda x, a: a * x["t"] ** 2, {"t": T}, 3 * T**2)
    np.testing.assert_allclose(found, 3.0)


# ------------------------------------------------------------------ roots, minima
@pytest.mark.parametrize("method", ["newton", "hybr", "lm", "krylov"])
def test_roots(method: str) -> None:
    def equations(p: Any, total: float) -> Any:
        return p["x"] + p["y"].sum() - total, p["x"] * p["y"] - 2.0

    found = root(equations, {"x": 0.9, "y": np.full(2, 2.4)}, (5.0,), method)
    assert found.success
    np.testing.assert_allclose(found.x["x"] + found.x["y"].sum(), 5.0, atol=1e-5)
    np.testing.assert_allclose(found.x["x"] * found.x["y"], 2.0, atol=1e-5)


@pytest.mark.parametrize("sparse", [None, True, False])
def test_newtons_method(sparse: bool | None) -> None:
    """Broyden's tridiagonal function (1965), from a start that needs shorter steps."""
    seen = []

    def equations(x: Any) -> Any:
        y = jnp.pad(x, 1)
        return (3 - 2 * x) * x - y[:-2] - 2 * y[2:] + 1

    callback = lambda x, f: seen.append(x.size)  # noqa: E731
    found = root(equations, np.full(80, -5.0), method="newton", sparse=sparse, callback=callback)
    assert found.success and len(seen) == found.nit == found.njev < 20
    np.testing.assert_allclose(equations(found.x), 0.0, atol=1e-9)


def test_newtons_method_says_why_it_stopped() -> None:
    reasons = {
        "maximum": lambda: root(lambda x: x**3 - 2.0, np.full(3, 9.0), method="newton", options={"maxiter": 2}),
        "decreases": lambda: root(lambda x: x**2 + 1.0, np.full(3, 1e-5), method="newton"),
        "singular": lambda: root(lambda x: x[:1] * jnp.ones(2), np.ones(2), method="newton"),
    }
    for word, call in reasons.items():
        found = call()
        assert not found.success and word in found.message, found
    with pytest.raises(errors.OptionError, match="sparse=True"):
        root(lambda x: x, np.ones(2), sparse=True)
    with pytest.raises(errors.OptionError, match="no option"):
        root(lambda x: x, np.ones(2), method="newton", options={"xtol": 1})


@pytest.mark.selected("all")
@pytest.mark.parametrize("method", sorted(SCIPY_METHODS))
def test_methods_of_minimize(method: str) -> None:
    """Each finds the minimum, with at most as many evaluations as SciPy with differences."""
    start = np.array([1.1, 1.1, 1.2])
    found = minimize(rosenbrock, start, method=method, options={"maxiter": 3000} if method == "cobyla" else None)
    np.testing.assert_allclose(found.x, 1.0, atol=0.3 if method == "cobyla" else 2e-3)
    assert isinstance(found, scipy.optimize.OptimizeResult) and found.x.dtype == np.float64


@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
def test_constraints_and_bounds(method: str) -> None:
    def distance(p: Any) -> Any:
        return (p["x"] - 2) ** 2 + (p["y"] - 1) ** 2

    start = {"x": 0.0, "y": np.zeros(())}
    inside = {"type": "ineq", "fun": lambda p, radius: radius**2 - p["x"] ** 2 - p["y"] ** 2, "args": (1.0,)}
    circle = scipy.optimize.NonlinearConstraint(lambda p: p["x"] ** 2 + p["y"] ** 2, -np.inf, 1.0)
    seen: list[Any] = []
    for constraint in (inside, circle):
        found = minimize(distance, start, method=method, constraints=constraint, callback=lambda x, *_: seen.append(x))
        np.testing.assert_allclose([found.x["x"], found.x["y"]], np.array([2, 1]) / 5**0.5, atol=1e-3)
    assert seen and seen[0].keys() == start.keys()
    found = minimize(distance, start, method=method, constraints=[circle], bounds=(-1.0, {"x": 0.5, "y": 2.0}))
    np.testing.assert_allclose([found.x["x"], found.x["y"]], [0.5, 0.75**0.5], atol=1e-3)
    line = scipy.optimize.LinearConstraint([[1.0, 1.0]], 1.0, 1.0)
    found = minimize(lambda x: (x**2).sum(), [3.0, 0.0], method=method, constraints=line)
    np.testing.assert_allclose(found.x, 0.5, atol=1e-6)


def test_bounds_of_vectors_are_pairs() -> None:
    found = minimize(lambda x, c: ((x - c) ** 2).sum(), np.zeros(2, "f4"), (1.0,), method="l-bfgs-b",
                     bounds=[(0, 0.5), (None, None)])  # fmt: skip
    np.testing.assert_allclose(found.x, [0.5, 1.0])
    with pytest.raises(errors.ShapeError, match="1 bounds for 2 parameters"):
        minimize(rosenbrock, np.zeros(2), method="TNC", bounds=[(0, 1)])


# ------------------------------------------------------------------ initial values
def oscillator(module: Any) -> Callable[..., Any]:
    return lambda t, y, stiffness: module.stack([y[1], stiffness * (1 - y[0] ** 2) * y[1] - y[0]])


@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau", "BDF", "LSODA"])
def test_solve_ivp_is_scipys(method: str) -> None:
    def crossing(t: float, y: Any, stiffness: float) -> Any:
        return y[0]

    crossing.direction = -1  # ty: ignore[unresolved-attribute]
    options = {"t_eval": np.linspace(0, 10, 7), "events": crossing, "args": (5.0,), "rtol": 1e-7, "atol": 1e-9}
    expected = scipy.integrate.solve_ivp(oscillator(np), (0, 10), [2.0, 0.0], method, dense_output=True, **options)
    found = solve_ivp(oscillator(jnp), (0, 10), [2.0, 0.0], method, dense_output=True, **options)
    np.testing.assert_allclose(found.y, expected.y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.t_events[0], expected.t_events[0], rtol=1e-5)
    np.testing.assert_allclose(found.sol(3.3), expected.sol(3.3), rtol=1e-4)
    assert found.nfev <= 1.05 * expected.nfev and found.keys() == expected.keys()


def test_solve_ivp_stops_at_an_event() -> None:
    def fallen(t: float, y: Any) -> Any:
        return y[0]

    fallen.terminal = True  # ty: ignore[unresolved-attribute]
    found = solve_ivp(lambda t, y: [y[1], -9.8], (0.0, 10.0), [1.0, 0.0], "Radau", events=[fallen])
    assert found.status == 1
    np.testing.assert_allclose(found.t[-1], (2 / 9.8) ** 0.5, rtol=1e-6)


@pytest.mark.parametrize(("method", "start"), [("BDF", 1.0), ("Radau", 1.0), ("BDF", 1.0 + 0.5j)])
def test_sparse_and_complex_states(method: str, start: complex) -> None:
    def rate(t: Any, u: Any) -> Any:
        v = jnp.pad(u, 1)
        return 100 * (v[2:] - 2 * u + v[:-2]) - start * u**2

    y0, options = np.full(80, start), {"rtol": 1e-8, "atol": 1e-10}
    found = [solve_ivp(rate, (0, 0.1), y0, method, sparse=s, **options).y[:, -1] for s in (True, False)]
    np.testing.assert_allclose(*found, rtol=1e-6)
    if isinstance(start, complex):
        with pytest.raises(errors.DtypeError, match="Radau does not take complex"):
            solve_ivp(rate, (0, 1), y0, "Radau")


# ------------------------------------------------------------------ refusals
def test_solvers_of_the_host_refuse_traced_functions() -> None:
    def solve(a: Any) -> list[Any]:
        start = np.ones(2)
        return [
            lambda: least_squares(lambda x: x - a, start),
            lambda: least_squares(lambda x: x - 1, start * a),
            lambda: curve_fit(lambda x, p: p * x, start, start * a),
            lambda: root(lambda x: x - a, start),
            lambda: minimize(lambda x: ((x - a) ** 2).sum(), start, method="SLSQP"),
            lambda: solve_ivp(lambda t, y: -a * y, (0, 1), start),
        ]

    def each(a: Any) -> Any:
        for call in solve(a):
            with pytest.raises(errors.ConcretizationTypeError, match="(?s)SciPy on the host.*outside of jit"):
                call()
        return a

    for transform in (rlx.jit, rlx.grad, lambda f: lambda a: rlx.vmap(f)(jnp.ones(2) * a)):
        transform(each)(1.0)


def test_starts_that_are_refused() -> None:
    with pytest.raises(ValueError, match="outside of provided bounds|infeasible"):
        least_squares(lambda x: x, np.ones(2), bounds=(2, 3))
    with pytest.raises(ValueError, match="not finite"):
        least_squares(lambda x: x / 0, np.ones(2))
    for call in (lambda x: least_squares(lambda x: x, x), lambda x: root(lambda x: x, x)):
        with pytest.raises(errors.ShapeError, match="without numbers"):
            call(np.zeros(0))
        with pytest.raises(errors.DtypeError, match="complex"):
            call(np.ones(2) * 1j)
    with pytest.raises(errors.ShapeError, match="2 results for 3"):
        root(lambda x: x[1:], np.ones(3))
    with pytest.raises(errors.ShapeError, match="number of elements|rate of change|Return the rate"):
        solve_ivp(lambda t, y: y[1:], (0, 1), np.ones(3), "BDF")
    with pytest.raises(errors.InputTypeError, match="any number"):
        curve_fit(lambda x, *p: x, T, Y)


@pytest.mark.parametrize(
    ("call", "keywords"),
    [
        (least_squares, ("jac", "jac_sparsity", "diff_step", "nothing")),
        (root, ("jac",)),
        (lambda f, x, **k: minimize(f, x, method="SLSQP", **k), ("jac", "hess", "hessp")),
        (lambda f, x, **k: solve_ivp(f, (0, 1), x, **k), ("jac", "vectorized", "lband", "nothing")),
        (lambda f, x, **k: curve_fit(f, T, Y, **k), ("jac",)),
    ],
)
def test_keywords_that_rlx_replaces_are_refused(call: Any, keywords: tuple[str, ...]) -> None:
    for keyword in keywords:
        with pytest.raises(errors.OptionError, match=f"does not take {keyword}"):
            call(lambda *a: a[0], np.ones(2), **{keyword: 1})


def test_limits_that_a_method_would_ignore_are_refused() -> None:
    for method in ("CG", "BFGS", "Newton-CG"):
        with pytest.raises(errors.OptionError, match="bounds"):
            minimize(rosenbrock, np.ones(2), method=method, bounds=[(0, 1)] * 2)
    with pytest.raises(errors.OptionError, match="takes no constraints"):
        minimize(rosenbrock, np.ones(2), method="L-BFGS-B", constraints={"type": "eq", "fun": lambda x: x[0]})


def test_a_singular_jacobian_has_a_result() -> None:
    """As of SciPy: the residuals do not depend on the second parameter."""
    found = least_squares(lambda x: x[:1] - 3.0, np.ones(2))
    np.testing.assert_allclose(found.x, [3.0, 1.0])
    assert not root(lambda x: jnp.stack([x[0] ** 2 + 1, x[0]]), np.ones(2)).success


def test_layouts_of_parameters() -> None:
    host = Host("f", "")
    layout, vector = Parameters.of(host, {"a": np.arange(4).reshape(2, 2), "b": (1.0,)})
    assert vector.tolist() == [0, 1, 2, 3, 1] and not layout.is_vector
    again = layout.tree(vector)
    assert again["a"].tolist() == [[0, 1], [2, 3]] and again["b"][0].item() == 1.0
    assert layout.vector("x", {"a": np.array([5, 6]), "b": (7,)}).tolist() == [5, 6, 5, 6, 7]
    assert layout.vector("x", 2).tolist() == [2.0] * 5
    for wrong in ({"a": 1.0}, {"a": np.ones(3), "b": (1,)}, np.ones(5)):
        with pytest.raises(errors.ShapeError, match="like x0"):
            layout.vector("x", wrong)
    assert Parameters.of(host, [1, 2])[0].is_vector
