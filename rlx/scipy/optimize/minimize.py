"""minimize: a minimum of a function of several variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, InputTypeError, OptionError, ShapeError
from rlx.ir.types import is_complex
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.optimize.quasi_newton import minimize_with_limited_memory, minimize_with_matrix
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
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """A local minimum of a function, found by its gradients.

    Args:
      fun: fun(x, *args) returns a real number; rlx derives its gradient.
      x0: where to start, (n,). For L-BFGS it may be complex.
      args: a tuple of further arguments.
      method: "BFGS", which holds an (n, n) matrix, or "L-BFGS", which holds the last steps (also under
        JAX's name "l-bfgs-experimental-do-not-rely-on-this").
      tol: the same as the option gtol.
      options: gtol: stop if the gradient's norm is less (1e-5); norm: its order, as in
        numpy.linalg.norm (largest component); maxiter: the maximum number of iterations (200 n). For BFGS
        line_search_maxiter (10); for L-BFGS maxcor: steps in memory (10), ftol: least decrease of a
        step, maxfun, maxgrad: evaluations, maxls: doublings of a step (20).

    Returns: OptimizeResults. Status: 1: too many iterations; of BFGS 3, 5: no step was found; of L-BFGS
    2, 3: too many evaluations, 4: no decrease, 5: no step was found.
    Raises: InputTypeError if args is not a tuple, ShapeError if x0 is not a vector.

    >>> import rlx, rlx.numpy as jnp
    >>> parabola = lambda x, centre: jnp.sum((x - centre) ** 2)
    >>> found = rlx.scipy.optimize.minimize(parabola, jnp.zeros(2), (jnp.array([1.0, 2.0]),), method="BFGS")
    >>> found.x.round(3), found.success.item()
    (Array([1., 2.], dtype=float32), True)
    """
    if not isinstance(args, tuple):
        raise InputTypeError(f"minimize got args={args!r:.40}; args must be a tuple.", "Write args=(value,).")
    name = method.lower()
    if name != "bfgs" and name not in _LIMITED:
        raise OptionError(
            f"minimize has no method {method!r}.",
            "Use 'BFGS' or 'L-BFGS'. Outside of jit, scipy.optimize.minimize has more methods and takes rlx functions.",
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
