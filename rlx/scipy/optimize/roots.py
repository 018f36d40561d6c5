"""root: a zero of a system of equations, by SciPy's solvers or Newton's method, with exact Jacobians."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx.array import Array
from rlx.errors import OptionError, ShapeError
from rlx.scipy.host_functions import Host, Parameters, dense_jacobian, raveled, refuse_keywords
from rlx.scipy.jacobian_forms import jacobian_form
from rlx.scipy.optimize.newton import newton
from rlx.scipy.optimize.scipy_methods import tree_callback
from rlx.trace.flat import check_function

__all__ = ["root"]

_IN_PROGRAMS = (
    "There, rlx.lax.custom_root differentiates Newton's method; rlx.jacobian(fun, sparse=True) and"
    " rlx.sparse.spsolve make its steps."
)
_WITH_JACOBIAN = ("hybr", "lm")
_METHODS = (
    "newton", *_WITH_JACOBIAN, "broyden1", "broyden2", "anderson", "linearmixing", "diagbroyden", "excitingmixing",
    "krylov", "df-sane",
)  # fmt: skip


def root(
    fun: Callable[..., Any],
    x0: Any,
    args: Sequence[Any] = (),
    method: str = "hybr",
    *,
    sparse: bool | None = None,
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Any:
    """x with fun(x) = 0, by SciPy's solvers or by Newton's method.

    Args:
      fun: fun(x, *args) returns as many numbers as x has, an array or a tree of arrays. It is compiled, and gets a tree
        like x0 with leaves of float64.
      x0: where to start: an array of any shape, or a tree of arrays.
      method: "newton", for systems with many unknowns and a sparse Jacobian; "hybr" or "lm", which use the exact dense
        Jacobian; or a method that needs none: "krylov", "broyden1", "broyden2", "anderson", "linearmixing",
        "diagbroyden", "excitingmixing", "df-sane".
      sparse: for "newton", the form of the Jacobian. None: sparse if its pattern, which rlx finds in the program of
        `fun`, has at most a tenth of the places of a large matrix.
      tol, callback, options: see scipy.optimize.root; the callback gets a tree like x0. The options of "newton" are
        ftol, the largest value that counts as zero (1e-10, relative to the values at x0 if they are larger than 1), and
        maxiter (100); tol is ftol. A step is halved until the norm of the values decreases.

    Returns: SciPy's OptimizeResult. Its x is a tree like x0, of NumPy arrays of float64.

    Raises: ConcretizationTypeError in traced functions; OptionError for SciPy's keyword jac, for another method, and
      for `sparse` with a method that has no sparse Jacobian;
      ShapeError if fun returns more or fewer numbers than x0 has.

    >>> import rlx.numpy as jnp
    >>> from rlx.scipy.optimize import root
    >>> found = root(lambda x: {"sum": x["a"] + x["b"] - 3, "product": x["a"] * x["b"] - 2}, {"a": 0.5, "b": 4.0})
    >>> found.success, found.x["a"].round(6).item(), found.x["b"].round(6).item()
    (True, 1.0, 2.0)
    >>> found = root(lambda u: 3 * u + u**3 - jnp.roll(u, 1) - jnp.roll(u, -1) - 2, jnp.zeros(1000), method="newton")
    >>> found.success, found.x[0].round(6).item()
    (True, 1.0)
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
    if method == "newton":
        jacobian, _ = jacobian_form(host, equations, rows, sparse, start)
        found = newton(run, jacobian, start, tol, tree_callback(parameters, callback), options or {})
        found.x = parameters.tree(found.x)
        return found
    if sparse is not None:
        raise OptionError(f"root got sparse={sparse} with method={method!r}.", "Sparse Jacobians are for 'newton'.")
    jac = dense_jacobian(host, equations, rows, start) if method in _WITH_JACOBIAN else None
    found = optimize.root(
        run, start, method=method, jac=jac, tol=tol, callback=tree_callback(parameters, callback),
        options=dict(options or {}),
    )  # fmt: skip
    found.x = parameters.tree(found.x)
    return found
