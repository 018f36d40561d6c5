"""The methods of minimize that run on the host: SciPy's solvers with compiled values, gradients and Hessians."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import OptionError, ShapeError
from rlx.scipy.host_functions import Host, Parameters, dense_jacobian, raveled
from rlx.transforms.functional import hessian, hvp
from rlx.transforms.reverse import value_and_grad

__all__ = ["SCIPY_METHODS", "minimize_by_scipy", "tree_callback"]


class _Method(NamedTuple):
    """A method's name in SciPy, the derivatives it uses, and whether it takes bounds and constraints."""

    name: str
    derivatives: tuple[str, ...] = ()
    bounds: bool = False
    constraints: bool = False


_GRADIENT, _PRODUCTS, _HESSIAN = ("jac",), ("jac", "hessp"), ("jac", "hess")
_TABLE = (
    _Method("L-BFGS-B", _GRADIENT, bounds=True),
    _Method("TNC", _GRADIENT, bounds=True),
    _Method("SLSQP", _GRADIENT, bounds=True, constraints=True),
    _Method("trust-constr", _PRODUCTS, bounds=True, constraints=True),
    _Method("CG", _GRADIENT),
    _Method("Newton-CG", _PRODUCTS),
    _Method("trust-ncg", _PRODUCTS),
    _Method("trust-krylov", _PRODUCTS),
    _Method("trust-exact", _HESSIAN),
    _Method("dogleg", _HESSIAN),
    _Method("Nelder-Mead", bounds=True),
    _Method("Powell", bounds=True),
    _Method("COBYLA", bounds=True, constraints=True),
    _Method("COBYQA", bounds=True, constraints=True),
)
SCIPY_METHODS = {method.name.lower(): method for method in _TABLE}

_HOST = Host("minimize", "There, the methods 'BFGS' and 'L-BFGS' are compiled, and have derivatives.")


def minimize_by_scipy(
    fun: Callable[..., Any], x0: Any, args: tuple[Any, ...], method: str, bounds: Any, constraints: Any,
    tol: float | None, callback: Callable[..., Any] | None, options: Mapping[str, Any] | None,
) -> Any:  # fmt: skip
    """SciPy's result for one of SCIPY_METHODS; x is a tree like x0."""
    from scipy import optimize

    chosen = SCIPY_METHODS[method.lower()]
    parameters, start = Parameters.of(_HOST, x0)
    _HOST.refuse_traced("args", args)
    _check_limits(chosen, bounds, constraints)
    value = _value_of(fun, parameters, args)
    found = optimize.minimize(
        _HOST.compiled(value_and_grad(value)) if chosen.derivatives else _HOST.compiled(value), start,
        method=chosen.name, bounds=_bounds(parameters, bounds),
        constraints=_constraints(parameters, constraints, chosen), tol=tol,
        callback=tree_callback(parameters, callback), options=dict(options or {}), **_derivatives(value, chosen),
    )  # fmt: skip
    found.x = parameters.tree(found.x)
    return found


def _value_of(fun: Callable[..., Any], parameters: Parameters, args: tuple[Any, ...]) -> Callable[[Any], Any]:
    """The function of a vector."""

    def value(vector: Any) -> Any:
        found = fun(parameters.tree(vector), *args)
        return found.astype(np.float64) if hasattr(found, "astype") and found.dtype.kind in "fiub" else found

    return value


def _derivatives(value: Callable[[Any], Any], method: _Method) -> dict[str, Any]:
    """The keywords of scipy.optimize.minimize for the derivatives that a method uses."""
    found: dict[str, Any] = {"jac": True} if "jac" in method.derivatives else {}
    if "hess" in method.derivatives:
        found["hess"] = _HOST.compiled(hessian(value))
    if "hessp" in method.derivatives:
        found["hessp"] = _HOST.compiled(lambda x, v: hvp(value, (x,), (v.astype(x.dtype),)))
    return found


def tree_callback(parameters: Parameters, callback: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """A callback with trees of parameters in place of vectors."""
    if callback is None or parameters.is_vector:
        return callback
    if set(inspect.signature(callback).parameters) == {"intermediate_result"}:

        def with_result(intermediate_result: Any) -> Any:
            intermediate_result.x = parameters.tree(intermediate_result.x)
            return callback(intermediate_result=intermediate_result)

        return with_result
    return lambda vector, *more: callback(parameters.tree(vector), *more)


# ------------------------------------------------------------------ bounds and constraints
def _check_limits(method: _Method, bounds: Any, constraints: Any) -> None:
    """Raise OptionError for bounds or constraints that the method would ignore."""
    for what, given, takes in (("bounds", bounds, method.bounds), ("constraints", constraints, method.constraints)):
        if given is not None and not (isinstance(given, (list, tuple)) and not given) and not takes:
            names = [m.name for m in _TABLE if getattr(m, what)]
            raise OptionError(f"The method {method.name} takes no {what}.", f"Use {', '.join(names)}.")


def _bounds(parameters: Parameters, bounds: Any) -> Any:
    """SciPy's Bounds: of a vector from its pairs, of another tree from two trees."""
    from scipy.optimize import Bounds

    if bounds is None:
        return None
    if isinstance(bounds, Bounds):
        lower, upper = bounds.lb, bounds.ub
    elif parameters.is_vector:
        pairs = [tuple(pair) for pair in bounds]
        if len(pairs) != parameters.shapes[0][0] or any(len(pair) != 2 for pair in pairs):
            raise ShapeError(
                f"minimize got {len(pairs)} bounds for {parameters.shapes[0][0]} parameters.",
                "Pass a pair (lower, upper) for each, with None for no bound, or scipy.optimize.Bounds(lower, upper).",
            )
        lower = np.array([-np.inf if low is None else low for low, _ in pairs], np.float64)
        upper = np.array([np.inf if high is None else high for _, high in pairs], np.float64)
    else:
        lower, upper = bounds
    keep = getattr(bounds, "keep_feasible", False)
    return Bounds(parameters.vector("a lower bound", lower), parameters.vector("an upper bound", upper), keep)


def _constraints(parameters: Parameters, constraints: Any, method: _Method) -> Any:
    """Constraints of functions of trees as constraints of compiled functions of vectors, with their derivatives."""
    if constraints is None:
        return ()
    several = constraints if isinstance(constraints, Sequence) else [constraints]
    return [_constraint(parameters, each, method) for each in several]


def _constraint(parameters: Parameters, constraint: Any, method: _Method) -> Any:
    """One constraint: a dict, a NonlinearConstraint, or a LinearConstraint, which stays as it is."""
    from scipy.optimize import LinearConstraint, NonlinearConstraint

    if isinstance(constraint, LinearConstraint):
        return constraint
    by_name = constraint if isinstance(constraint, Mapping) else vars(constraint)
    jac = by_name.get("jac")
    if callable(jac):
        raise OptionError("A constraint has the key jac.", "rlx derives it: leave jac out.")
    args = tuple(by_name.get("args", ()))

    def function(vector: Any) -> Array:
        return raveled(_HOST, "constraints", by_name["fun"](parameters.tree(vector), *args))

    run, start = _HOST.compiled(function), np.zeros(sum(int(np.prod(s)) for s in parameters.shapes))
    slope = dense_jacobian(_HOST, function, run(start).size, start)
    if isinstance(constraint, Mapping):
        return {"type": constraint["type"], "fun": run, "jac": slope}
    if "hessp" not in method.derivatives:  # SciPy warns of a Hessian
        return NonlinearConstraint(run, constraint.lb, constraint.ub, slope)
    curvature = _HOST.compiled(hessian(lambda x, v: jnp.dot(function(x), v)))
    return NonlinearConstraint(run, constraint.lb, constraint.ub, slope, curvature, constraint.keep_feasible)
