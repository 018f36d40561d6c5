"""SciPy's own functions with rlx functions and arrays: solvers, integrators, interpolation, algebra, statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate as integrate
import scipy.interpolate as interpolate
import scipy.linalg
import scipy.ndimage as ndimage
import scipy.optimize as optimize
import scipy.signal as signal
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg
import scipy.spatial as spatial
import scipy.stats as stats

import rlx
import rlx.numpy as jnp

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*delta_grad.*:UserWarning")
START = np.full(3, 0.2)
# the minimum of (x - 1)**2 + x**4
LOWEST = 0.5897545
MATRIX = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])


def hill(x: Any) -> Any:
    """A convex function with one minimum."""
    return jnp.sum((x - 1) ** 2) + jnp.sum(x**4)


def misfit(x: Any) -> Any:
    """Roots at 1, sqrt(2), sqrt(3)."""
    return x**2 - jnp.arange(1.0, 4.0)


def decay(t: Any, y: Any) -> Any:
    """A linear system."""
    return jnp.stack([-2 * y[0], y[0] - y[1]])


VALUE, SLOPE, CURVATURE = rlx.jit(hill), rlx.jit(rlx.grad(hill)), rlx.jit(rlx.hessian(hill))
BOTH = rlx.jit(rlx.value_and_grad(hill))
MISFIT, JACOBIAN = rlx.jit(misfit), rlx.jit(rlx.jacfwd(misfit))
PRODUCT = rlx.jit(lambda x, v: rlx.jvp(rlx.grad(hill), (x,), (v,))[1])
FIRST_ORDER = ("BFGS", "CG", "L-BFGS-B", "TNC", "SLSQP")
SECOND_ORDER = ("Newton-CG", "dogleg", "trust-ncg", "trust-krylov", "trust-exact", "trust-constr")


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with rlx.enable_x64(True):
        yield


@pytest.mark.parametrize("method", (*FIRST_ORDER, *SECOND_ORDER, "Nelder-Mead", "Powell", "COBYLA"))
def test_minimize(method: str) -> None:
    """Every method, with gradients apart and with the value."""
    takes = {"hess": CURVATURE} if method in SECOND_ORDER else {}
    if method in FIRST_ORDER + SECOND_ORDER:
        takes["jac"] = SLOPE
        joint = optimize.minimize(BOTH, START, method=method, **{**takes, "jac": True})
        np.testing.assert_allclose(joint.x, LOWEST, rtol=1e-3)
    for start in (START, jnp.asarray(START)):
        found = optimize.minimize(VALUE, start, method=method, **takes)
        np.testing.assert_allclose(found.x, LOWEST, rtol=2e-3)


@pytest.mark.parametrize("method", ["L-BFGS-B", "SLSQP", "TNC", "trust-constr"])
def test_bounds_and_constraints(method: str) -> None:
    """Bounds, and constraints whose function and gradient are rlx's."""
    bounded = optimize.minimize(BOTH, START, jac=True, method=method, bounds=[(0, 0.5)] * 3)
    np.testing.assert_allclose(bounded.x, 0.5, rtol=1e-3)
    if method in ("SLSQP", "trust-constr"):
        total = rlx.jit(lambda x: x.sum() - 1.2)
        constraint = {"type": "eq", "fun": total, "jac": rlx.jit(rlx.grad(total))}
        found = optimize.minimize(BOTH, START, jac=True, method=method, constraints=[constraint])
        np.testing.assert_allclose(found.x, 0.4, rtol=1e-3)


def test_hessian_products() -> None:
    found = optimize.minimize(VALUE, START, jac=SLOPE, hessp=PRODUCT, method="Newton-CG")
    np.testing.assert_allclose(found.x, LOWEST, rtol=1e-4)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_least_squares(method: str) -> None:
    """Residuals and Jacobians of rlx, and starting points."""
    for jac in (JACOBIAN, "2-point"):
        found = optimize.least_squares(MISFIT, jnp.ones(3), jac=jac, method=method)
        np.testing.assert_allclose(found.x, np.sqrt([1, 2, 3]), rtol=1e-6)


@pytest.mark.parametrize("method", ["hybr", "lm", "krylov", "broyden1", "df-sane", "anderson"])
def test_root(method: str) -> None:
    jac = JACOBIAN if method in ("hybr", "lm") else None
    found = optimize.root(MISFIT, np.full(3, 1.3), jac=jac, method=method, tol=1e-8)
    np.testing.assert_allclose(found.x, np.sqrt([1, 2, 3]), rtol=1e-4)


SOLVED: dict[str, tuple[Callable[[], Any], Any]] = {
    "fsolve": (lambda: optimize.fsolve(MISFIT, np.ones(3), fprime=JACOBIAN), np.sqrt([1, 2, 3])),
    "leastsq": (lambda: optimize.leastsq(MISFIT, np.ones(3), Dfun=JACOBIAN)[0], np.sqrt([1, 2, 3])),
    "newton": (lambda: optimize.newton(lambda x: x**2 - 2, 1.0, fprime=rlx.grad(lambda x: x**2 - 2)), 2**0.5),
    "brentq": (lambda: optimize.brentq(rlx.jit(lambda x: x**2 - 2), 0.0, 2.0), 2**0.5),
    "minimize_scalar": (lambda: optimize.minimize_scalar(rlx.jit(lambda x: (x - 2) ** 2)).x, 2.0),
    "curve_fit": (
        lambda: optimize.curve_fit(
            rlx.jit(lambda x, a, b: a * jnp.exp(-b * x)), np.linspace(0, 1, 9), 2 * np.exp(-np.linspace(0, 1, 9))
        )[0],
        [2.0, 1.0],
    ),
    "check_grad": (lambda: optimize.check_grad(VALUE, SLOPE, START) < 1e-6, True),
    "approx_fprime": (lambda: optimize.approx_fprime(START, VALUE), 2 * (START - 1) + 4 * START**3),
    "nnls": (lambda: optimize.nnls(jnp.asarray(MATRIX), jnp.asarray(MATRIX[0]))[0], [1.0, 0.0, 0.0]),
    "linprog": (lambda: optimize.linprog(jnp.ones(2), A_ub=-jnp.eye(2), b_ub=-jnp.ones(2)).x, [1.0, 1.0]),
    "quad": (lambda: integrate.quad(rlx.jit(lambda x: x**2), 0, 1)[0], 1 / 3),
    "quad_vec": (lambda: integrate.quad_vec(rlx.jit(lambda x: x * jnp.arange(3.0)), 0, 1)[0], np.arange(3) / 2),
    "dblquad": (lambda: integrate.dblquad(rlx.jit(lambda y, x: x * y), 0, 1, 0, 1)[0], 0.25),
    "simpson": (lambda: integrate.simpson(jnp.arange(5.0) ** 2, x=jnp.arange(5.0)), 64 / 3),
    "odeint": (lambda: integrate.odeint(lambda y, t: rlx.jit(decay)(t, y), jnp.ones(2), [0, 1.0])[-1, 0], np.exp(-2)),
    "CubicSpline": (lambda: interpolate.CubicSpline(jnp.arange(4.0), jnp.arange(4.0) ** 2)(jnp.array(0.5)), 0.25),
    "interp1d": (lambda: interpolate.interp1d(jnp.arange(4.0), jnp.arange(4.0) ** 2)(jnp.array(1.5)), 2.5),
    "PchipInterpolator": (lambda: interpolate.PchipInterpolator(jnp.arange(4.0), jnp.arange(4.0))(1.5), 1.5),
    "RegularGrid": (
        lambda: interpolate.RegularGridInterpolator((jnp.arange(3.0), jnp.arange(3.0)), jnp.asarray(MATRIX))(
            jnp.ones((1, 2))
        ),
        3.0,
    ),
    "cholesky": (lambda: scipy.linalg.cholesky(jnp.asarray(MATRIX)), np.linalg.cholesky(MATRIX).T),
    "solve": (lambda: scipy.linalg.solve(jnp.asarray(MATRIX), jnp.ones(3)), np.linalg.solve(MATRIX, np.ones(3))),
    "solve in place": (
        lambda: scipy.linalg.solve(jnp.asarray(MATRIX), jnp.ones(3), overwrite_a=True, overwrite_b=True),
        np.linalg.solve(MATRIX, np.ones(3)),
    ),
    "eigh": (lambda: scipy.linalg.eigh(jnp.asarray(MATRIX))[0], np.linalg.eigvalsh(MATRIX)),
    "cg": (
        lambda: sparse_linalg.cg(MATRIX, jnp.ones(3), rtol=1e-10)[0],
        np.linalg.solve(MATRIX, np.ones(3)),
    ),
    "eigsh": (
        lambda: sparse_linalg.eigsh(
            sparse_linalg.LinearOperator((3, 3), matvec=rlx.jit(lambda v: jnp.asarray(MATRIX) @ v), dtype=float), k=1
        )[0],
        np.linalg.eigvalsh(MATRIX)[-1:],
    ),
    "spsolve": (
        lambda: sparse_linalg.spsolve(sparse.csc_matrix(jnp.asarray(MATRIX)), jnp.ones(3)),
        np.linalg.solve(MATRIX, np.ones(3)),
    ),
    "csr @ x": (lambda: sparse.csr_matrix(jnp.asarray(MATRIX)) @ jnp.ones(3), MATRIX.sum(1)),
    "lfilter": (lambda: signal.lfilter([1.0], [1.0, 0.5], jnp.ones(3)), [1.0, 0.5, 0.75]),
    "savgol": (lambda: signal.savgol_filter(jnp.arange(20.0), 5, 2)[5], 5.0),
    "gaussian_filter": (lambda: ndimage.gaussian_filter(jnp.ones((4, 4)), 1), np.ones((4, 4))),
    "cdist": (lambda: spatial.distance.cdist(jnp.eye(2), jnp.eye(2))[0, 1], 2**0.5),
    "KDTree": (lambda: spatial.KDTree(jnp.eye(3)).query(jnp.eye(3))[1], [0, 1, 2]),
    "logpdf": (lambda: stats.norm.logpdf(jnp.zeros(2)), np.full(2, -0.5 * np.log(2 * np.pi))),
    "pearsonr": (lambda: stats.pearsonr(jnp.arange(4.0), 2 * jnp.arange(4.0))[0], 1.0),
    "zscore": (lambda: stats.zscore(jnp.array([1.0, -1.0])), [1.0, -1.0]),
}


@pytest.mark.selected(12)
@pytest.mark.parametrize("name", SOLVED)
def test_functions(name: str) -> None:
    """Values that are right."""
    solve, expected = SOLVED[name]
    np.testing.assert_allclose(solve(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA"])
def test_solve_ivp(method: str) -> None:
    """Explicit and implicit methods, with a Jacobian of rlx."""
    jac = {"jac": rlx.jit(rlx.jacfwd(decay, argnums=1))} if method in ("Radau", "BDF", "LSODA") else {}
    found = integrate.solve_ivp(rlx.jit(decay), (0, 1), jnp.ones(2), method=method, rtol=1e-6, **jac)
    np.testing.assert_allclose(found.y[0, -1], np.exp(-2), rtol=1e-4)
