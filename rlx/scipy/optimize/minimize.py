"""minimize: a minimum of a function of several variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, InputTypeError, OptionError, ShapeError
from rlx.ir.types import is_complex
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.host_functions import refuse_keywords
from rlx.scipy.optimize.quasi_newton import minimize_with_limited_memory, minimize_with_matrix
from rlx.scipy.optimize.scipy_methods import SCIPY_METHODS, minimize_by_scipy
from rlx.transforms.reverse import value_and_grad

__all__ = ["OptimizeResults", "minimize"]

_LIMITED = ("l-bfgs", "l-bfgs-experimental-do-not-rely-on-this")


class OptimizeResults(NamedTuple):
    """The result of `minimize`.

    x: where the minimum is; success; status: 0 for success, else the method's reason; fun, jac: value and
    gradient at x; hess_inv: approximate inverse Hessian (None for L-BFGS); nfev, njev: numbers of
    evaluations; nit: of iterations.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.scipy.optimize import minimize
    >>> found = minimize(lambda x: jnp.sum((x - 3.0) ** 2), jnp.zeros(2), method="BFGS")
    >>> found.success.item(), found.x.round(3).tolist()
    (True, [3.0, 3.0])
    """

    x: Array
    success: Array
    status: Array
    fun: Array
    jac: Array
    hess_inv: Array | None
    nfev: Array
    njev: Array
    nit: Array


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Any:
    """A local minimum of a function, found by its derivatives.

    "BFGS" and "L-BFGS" (also under JAX's name "l-bfgs-experimental-do-not-rely-on-this") are programs: they run in jit,
    grad and vmap. All other methods are SciPy's, and run on the host: not in traced functions.

    Args:
      fun: fun(x, *args) returns a real number; rlx derives its gradient, and products with its Hessian.
      x0: where to start. For BFGS and L-BFGS (n,), for L-BFGS also complex; for SciPy's methods an array of any shape
        or a tree of arrays, and fun gets a tree like it with leaves of float64.
      args: a tuple of further arguments.
      method: "BFGS", which holds an (n, n) matrix; "L-BFGS", which holds the last steps; or SciPy's "L-BFGS-B",
        "TNC", "SLSQP", "trust-constr", "CG", "Newton-CG", "trust-ncg", "trust-krylov", "trust-exact", "dogleg",
        "Nelder-Mead", "Powell", "COBYLA", "COBYQA".
      bounds: of L-BFGS-B, TNC, SLSQP, trust-constr, Nelder-Mead, Powell, COBYLA and COBYQA: for a vector x0 pairs
        (lower, upper), one for each number; for another tree x0 two trees like it; or scipy.optimize.Bounds.
      constraints: of SLSQP, trust-constr, COBYLA and COBYQA: dicts with type ("eq" or "ineq"), fun and args, or
        scipy.optimize.NonlinearConstraint, of functions of trees like x0, whose derivatives rlx finds; or
        LinearConstraint, of the vector of all leaves.
      tol: the same as the option gtol for BFGS and L-BFGS; for the others see scipy.optimize.minimize.
      callback: for SciPy's methods; it gets a tree like x0.
      options: for SciPy's methods, see scipy.optimize.minimize. For BFGS and L-BFGS gtol: stop if the
        gradient's norm is less (1e-5); norm: its order, as in numpy.linalg.norm (largest component); maxiter: the
        maximum number of iterations (200 n). For BFGS line_search_maxiter (10); for L-BFGS maxcor: steps in memory
        (10), ftol: least decrease of a step, maxfun, maxgrad: evaluations, maxls: doublings of a step (20).

    Returns: for BFGS and L-BFGS OptimizeResults. Status: 1: too many iterations; of BFGS 3, 5: no step was found; of
    L-BFGS 2, 3: too many evaluations, 4: no decrease, 5: no step was found. For SciPy's methods SciPy's
    OptimizeResult, whose x is a tree like x0, and whose other fields are of the vector of all leaves.
    Raises: InputTypeError if args is not a tuple; ShapeError if x0 is not a vector, and for bounds that do not fit;
      OptionError for another method, bounds and constraints that the method does not take, and SciPy's jac, hess and
      hessp, which rlx derives; ConcretizationTypeError for SciPy's methods in traced functions.

    >>> import rlx, rlx.numpy as jnp
    >>> parabola = lambda x, centre: jnp.sum((x - centre) ** 2)
    >>> found = rlx.scipy.optimize.minimize(parabola, jnp.zeros(2), (jnp.array([1.0, 2.0]),), method="BFGS")
    >>> found.x.round(3), found.success.item()
    (Array([1., 2.], dtype=float32), True)
    >>> bounds = [(0.0, 0.5), (0.0, None)]
    >>> rlx.scipy.optimize.minimize(parabola, [0.0, 0.0], (1.0,), method="L-BFGS-B", bounds=bounds).x.tolist()
    [0.5, 1.0]
    """
    if not isinstance(args, tuple):
        raise InputTypeError(f"minimize got args={args!r:.40}; args must be a tuple.", "Write args=(value,).")
    refuse_keywords("minimize", keywords)
    name = method.lower()
    if name in SCIPY_METHODS:
        return minimize_by_scipy(fun, x0, args, method, bounds, constraints, tol, callback, options)
    if name != "bfgs" and name not in _LIMITED:
        known = ", ".join(m.name for m in SCIPY_METHODS.values())
        raise OptionError(f"minimize has no method {method!r}.", f"Use 'BFGS' or 'L-BFGS', or SciPy's {known}.")
    if bounds is not None or constraints or callback is not None:
        raise OptionError(
            f"minimize got bounds, constraints or a callback for the method {method!r}, which is a compiled program.",
            "Use 'L-BFGS-B' or 'SLSQP', which run on the host.",
        )
    (start,) = promote_inexact("minimize", x0)
    if start.ndim != 1:
        raise ShapeError(f"minimize got x0 of shape {start.shape}.", "Pass a 1-d array; rlx.flatten_util makes one.")
    chosen = dict(options or {})
    if tol is not None:
        chosen.setdefault("gtol", tol)
    gradients = value_and_grad(lambda x: fun(x, *args))
    if name == "bfgs" and is_complex(start.dtype):
        raise DtypeError(f"BFGS does not take x0 of {start.dtype}.", "Use method='L-BFGS', or two real parts.")
    solver = minimize_with_matrix if name == "bfgs" else minimize_with_limited_memory
    end = solver(gradients, jnp.asarray(start), **chosen)
    return OptimizeResults(
        x=end.x,
        success=end.converged,
        status=end.status,
        fun=end.value,
        jac=end.gradient,
        hess_inv=end.memory[0] if name == "bfgs" else None,
        nfev=end.evaluations,
        njev=end.evaluations,
        nit=end.iterations,
    )
