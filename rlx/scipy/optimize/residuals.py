"""least_squares and curve_fit: SciPy's solvers with compiled residuals and Jacobians, dense or sparse."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import InputTypeError, OptionError, ShapeError
from rlx.scipy.host_functions import Host, HostFunction, Parameters, dense_jacobian, raveled, refuse_keywords
from rlx.scipy.jacobian_forms import jacobian_form
from rlx.trace.flat import check_function

__all__ = ["curve_fit", "least_squares"]

_IN_PROGRAMS = "There, rlx.scipy.optimize.minimize(method='BFGS') minimises the sum of the squares."
_SPARSE_METHODS = ("trf", "dogbox")


def least_squares(
    fun: Callable[..., Any],
    x0: Any,
    *,
    bounds: Any = (-np.inf, np.inf),
    method: str = "trf",
    sparse: bool | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    loss: str | Callable[[Any], Any] = "linear",
    tr_solver: str | None = None,
    **options: Any,
) -> Any:
    """The parameters with the least sum of squared residuals, by SciPy's solvers.

    Args:
      fun: fun(x, *args, **kwargs) returns the residuals, an array or a tree of arrays. It is compiled, and gets a tree
        like x0 with leaves of float64, whatever their dtype in x0.
      x0: where to start: an array of any shape, or a tree of arrays.
      bounds: (lower, upper), each a number or a tree like x0; or scipy.optimize.Bounds.
      method: "trf", "dogbox", or "lm", which takes neither bounds nor sparse Jacobians.
      sparse: the form of the Jacobian. None: sparse if its pattern, which rlx finds in the program of `fun`, has at
        most a tenth of the places of a large matrix.
      loss, tr_solver: see scipy.optimize.least_squares; with a sparse Jacobian, tr_solver is "lsmr".
      options: ftol, xtol, gtol, x_scale, f_scale, tr_options, max_nfev, verbose, callback: see SciPy's function.

    Returns: SciPy's OptimizeResult. Its x is a tree like x0, of NumPy arrays of float64; fun, grad, jac and active_mask
    belong to the vector of all residuals and parameters, in the order of the trees' leaves.

    Raises: ConcretizationTypeError in traced functions; OptionError for SciPy's keywords jac, jac_sparsity and
      diff_step, which rlx replaces; ShapeError, DtypeError for bounds and parameters that do not fit; ValueError (by
      SciPy) for a start outside the bounds, or with residuals that are not finite.

    Source: M. Branch, T. Coleman, Y. Li, A subspace, interior, and conjugate gradient method (1999), by SciPy.

    >>> import numpy as np
    >>> import rlx.numpy as jnp
    >>> from rlx.scipy.optimize import least_squares
    >>> t = np.linspace(0.0, 1.0, 9)
    >>> found = least_squares(lambda p: p["a"] * jnp.exp(-p["b"] * t) - 2 * np.exp(-3 * t), {"a": 1.0, "b": 1.0})
    >>> found.success, found.x["a"].round(6).item(), found.x["b"].round(6).item()
    (True, 2.0, 3.0)
    """
    from scipy import optimize

    check_function(fun)
    refuse_keywords("least_squares", {k: v for k, v in options.items() if k not in _OPTIONS})
    _check_method("least_squares", method)
    host = Host("least_squares", _IN_PROGRAMS)
    parameters, start = Parameters.of(host, x0)
    given = dict(kwargs or {})
    host.refuse_traced("args", (tuple(args), given))

    def residuals(vector: Any) -> Array:
        return raveled(host, "residuals", fun(parameters.tree(vector), *args, **given))

    run = host.compiled(residuals)
    rows = run(start).size
    jac, is_sparse = jacobian_form(host, residuals, rows, _sparse_form(sparse, method, tr_solver), start)
    if is_sparse:
        tr_solver = "lsmr"
    found = optimize.least_squares(
        run, start, jac=jac, bounds=_bounds(parameters, bounds), method=method,
        loss=_loss(host, loss), tr_solver=tr_solver, **_converted(parameters, options),
    )  # fmt: skip
    found.x = parameters.tree(found.x)
    return found


_OPTIONS = ("callback", "f_scale", "ftol", "gtol", "max_nfev", "tr_options", "verbose", "x_scale", "xtol")


def _check_method(name: str, method: str) -> None:
    if method not in ("trf", "dogbox", "lm"):
        raise OptionError(f"{name} got method={method!r}.", "Pass 'trf', 'dogbox' or 'lm'.")


def _sparse_form(sparse: bool | None, method: str, tr_solver: str | None) -> bool | None:
    """The wanted form, where the method and its solver take it. Raises OptionError."""
    takes = method in _SPARSE_METHODS and tr_solver != "exact"
    if sparse and not takes:
        raise OptionError(
            f"least_squares got sparse=True with method={method!r} and tr_solver={tr_solver!r}.",
            "Sparse Jacobians are for the methods 'trf' and 'dogbox' with tr_solver='lsmr'.",
        )
    return sparse if takes else False


def _bounds(parameters: Parameters, bounds: Any) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) as vectors."""
    lower, upper = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds
    return parameters.vector("a lower bound", lower), parameters.vector("an upper bound", upper)


def _loss(host: Host, loss: Any) -> Any:
    """A loss by name, or a compiled function of the squared residuals."""
    return host.compiled(loss) if callable(loss) else loss


def _converted(parameters: Parameters, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with trees as SciPy takes them."""
    converted = dict(options)
    scale = converted.get("x_scale")
    if scale is not None and not isinstance(scale, str):
        converted["x_scale"] = parameters.vector("x_scale", scale)
    return converted


# ------------------------------------------------------------------ curves
def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    *,
    full_output: bool = False,
    nan_policy: str | None = None,
    **options: Any,
) -> Any:
    """The parameters of a curve that fits data best, and their covariance, by SciPy's curve_fit with exact Jacobians.

    Args:
      f: f(xdata, *parameters) returns values like ydata. It is compiled; the parameters are numbers of float64.
      xdata: an array, or a tree of arrays. ydata: [m].
      p0: [n], where to start; None: ones, or numbers between the bounds, as many as f has parameters.
      sigma: errors of ydata, [m] or [m, m]; absolute_sigma: whether they are more than relative.
      bounds: (lower, upper), each a number or [n]. method: "lm" (without bounds), "trf" or "dogbox".
      check_finite, full_output, nan_policy, options: see scipy.optimize.curve_fit.

    Returns (popt [n], pcov [n, n]), NumPy arrays; with full_output also infodict, mesg and ier.

    Raises: ConcretizationTypeError in traced functions; OptionError for SciPy's keyword jac; ShapeError for p0 that is
      not a vector; ValueError, RuntimeError, OptimizeWarning as SciPy's function.

    >>> import numpy as np
    >>> import rlx.numpy as jnp
    >>> from rlx.scipy.optimize import curve_fit
    >>> x = np.linspace(0.0, 1.0, 9)
    >>> popt, pcov = curve_fit(lambda x, a, b: a * jnp.exp(-b * x), x, 2 * np.exp(-3 * x))
    >>> popt.round(6).tolist()
    [2.0, 3.0]
    """
    from scipy import optimize

    check_function(f)
    refuse_keywords("curve_fit", {k: v for k, v in options.items() if k in ("jac", "jac_sparsity", "diff_step")})
    if method is not None:
        _check_method("curve_fit", method)
    host = Host("curve_fit", _IN_PROGRAMS)
    host.refuse_traced("an argument", (xdata, ydata, p0, sigma))
    if p0 is not None and np.ndim(p0) > 1:
        raise ShapeError(
            f"curve_fit got p0 of shape {np.shape(p0)}.", "Pass a vector; least_squares takes any tree of parameters."
        )
    if p0 is None and not _counts_parameters(f):
        raise InputTypeError(
            "curve_fit cannot count the parameters of f, which takes any number of them.", "Pass p0, one number each."
        )

    def curve(x: Any, *parameters: Any) -> Array:
        found = raveled(host, "values", f(x, *parameters))
        if nan_policy != "omit" and found.size != data.size:  # SciPy then leaves out rows of both
            raise ShapeError(
                f"curve_fit got a function with {found.size} values for ydata of {data.size}.",
                "f(xdata, *parameters) returns one value for each element of ydata.",
            )
        return found

    run, data = functools.wraps(f)(host.compiled(curve)), np.asarray(ydata)
    return optimize.curve_fit(
        run, xdata, data, p0, sigma, absolute_sigma, check_finite, bounds, method,
        _slopes(host, curve, data.size), full_output=full_output, nan_policy=nan_policy, **options,
    )  # fmt: skip


def _counts_parameters(f: Callable[..., Any]) -> bool:
    kinds = [p.kind for p in inspect.signature(f).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL not in kinds


def _slopes(host: Host, curve: Callable[..., Any], rows: int) -> HostFunction:
    """The derivative of a curve by its parameters, jac(xdata, *parameters) [m, n]; it is compiled once."""
    found: list[HostFunction] = []

    def slopes(x: Any, *parameters: Any) -> np.ndarray:
        point = np.array(parameters, np.float64)
        if not found:
            found.append(dense_jacobian(host, lambda p, x: curve(x, *p), rows, point, x))
        return found[0](point, x)

    return slopes
