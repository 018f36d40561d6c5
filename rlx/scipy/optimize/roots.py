"""root: a zero of a system of equations, by SciPy's solvers with compiled functions and exact Jacobians."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx.array import Array
from rlx.errors import OptionError, ShapeError
from rlx.scipy.host_functions import Host, Parameters, dense_jacobian, raveled, refuse_keywords
from rlx.scipy.optimize.scipy_methods import tree_callback
from rlx.trace.flat import check_function

__all__ = ["root"]

_IN_PROGRAMS = (
    "There, rlx.lax.custom_root differentiates Newton's method; rlx.jacobian(fun, sparse=True) and"
    " rlx.sparse.spsolve make its steps."
)
_WITH_JACOBIAN = ("hybr", "lm")
_METHODS = (
    *_WITH_JACOBIAN, "broyden1", "broyden2", "anderson", "linearmixing", "diagbroyden", "excitingmixing", "krylov",
    "df-sane",
)  # fmt: skip


def root(
    fun: Callable[..., Any],
    x0: Any,
    args: Sequence[Any] = (),
    method: str = "hybr",
    *,
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Any:
    """x with fun(x) = 0, by SciPy's solvers.

    Args:
      fun: fun(x, *args) returns as many numbers as x has, an array or a tree of arrays. It is compiled, and gets a tree
        like x0 with leaves of float64.
      x0: where to start: an array of any shape, or a tree of arrays.
      method: "hybr" or "lm", which use the exact Jacobian, or a method that needs none: "krylov", "broyden1",
        "broyden2", "anderson", "linearmixing", "diagbroyden", "excitingmixing", "df-sane".
      tol, callback, options: as of scipy.optimize.root; the callback gets a tree like x0.

    Returns: SciPy's OptimizeResult. Its x is a tree like x0, of NumPy arrays of float64.

    Raises: ConcretizationTypeError in traced functions; OptionError for SciPy's keyword jac and for another method;
      ShapeError if fun returns more or fewer numbers than x0 has.

    Sparse systems of many equations: `least_squares`, or Newton's method with `rlx.jacobian(fun, sparse=True)`.

    >>> import rlx.numpy as jnp
    >>> from rlx.scipy.optimize import root
    >>> found = root(lambda x: {"sum": x["a"] + x["b"] - 3, "product": x["a"] * x["b"] - 2}, {"a": 0.5, "b": 4.0})
    >>> found.success, found.x["a"].round(6).item(), found.x["b"].round(6).item()
    (True, 1.0, 2.0)
    """
    from scipy import optimize

    check_function(fun)
    refuse_keywords("root", keywords)
    if method not in _METHODS:
        raise OptionError(f"root has no method {method!r}.", f"There are {', '.join(map(repr, _METHODS))}.")
    if "col_deriv" in (options or {}):
        raise OptionError("root does not take the option col_deriv.", "rlx derives the Jacobian: leave it out.")
    host = Host("root", _IN_PROGRAMS)
    parameters, start = Parameters.of(host, x0)
    host.refuse_traced("args", tuple(args))

    def equations(vector: Any) -> Array:
        return raveled(host, "values", fun(parameters.tree(vector), *args))

    run = host.compiled(equations)
    rows = run(start).size
    if rows != start.size:
        raise ShapeError(
            f"root got a function with {rows} results for {start.size} unknowns.",
            "Return one number for each unknown; least_squares takes any number.",
        )
    jac = dense_jacobian(host, equations, rows, start) if method in _WITH_JACOBIAN else None
    found = optimize.root(
        run, start, method=method, jac=jac, tol=tol, callback=tree_callback(parameters, callback),
        options=dict(options or {}),
    )  # fmt: skip
    found.x = parameters.tree(found.x)
    return found
