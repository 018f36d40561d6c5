"""solve_ivp: SciPy's integrators with a compiled right-hand side and its exact Jacobian, sparse where it is sparse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, OptionError, ShapeError
from rlx.ir.types import is_complex
from rlx.scipy.host_functions import Host, refuse_keywords
from rlx.scipy.jacobian_forms import jacobian_form
from rlx.trace.flat import as_array, check_function
from rlx.trees import tree

__all__ = ["solve_ivp"]

_HOST = Host("solve_ivp", "There, write rlx.experimental.ode.odeint(f, y0, t, method='bdf'); f is called as f(y, t).")
_EXPLICIT, _SPARSE, _DENSE = ("RK45", "RK23", "DOP853"), ("Radau", "BDF"), ("LSODA",)
_REAL = ("Radau", "LSODA")
_OPTIONS = ("atol", "first_step", "max_step", "min_step", "rtol")


def solve_ivp(
    fun: Callable[..., Any],
    t_span: Sequence[float],
    y0: Any,
    method: str = "RK45",
    t_eval: Any = None,
    dense_output: bool = False,
    events: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    *,
    args: Sequence[Any] = (),
    sparse: bool | None = None,
    **options: Any,
) -> Any:
    """The solution of dy/dt = fun(t, y, *args) with y(t_span[0]) = y0, by SciPy's integrators.

    Args:
      fun: returns the rate of change of y: an array [n], or a list of n numbers. It is compiled; t and y are float64
        (y complex128 if y0 is complex).
      t_span: (first, last) time. y0: [n], real or complex.
      method: "BDF" or "Radau" for stiff systems, with the exact Jacobian; "LSODA", which finds out, with the dense
        Jacobian; "RK45", "RK23", "DOP853" for others.
      t_eval, dense_output: see scipy.integrate.solve_ivp.
      events: functions event(t, y, *args), compiled, whose zeros are found; their attributes terminal and direction
        count as in SciPy.
      args: further arguments of fun and events.
      sparse: the form of the Jacobian of BDF and Radau. None: sparse if its pattern, which rlx finds in the program of
        `fun`, has at most a tenth of the places of a large matrix.
      options: first_step, max_step, rtol, atol, min_step (LSODA): see SciPy's function.

    Returns: SciPy's result: t, y [n, times], sol, t_events, y_events, nfev, njev, nlu, status, message, success.

    Raises: ConcretizationTypeError in traced functions; OptionError for another method, and for SciPy's keywords jac,
      jac_sparsity, lband, uband and vectorized, which rlx replaces; ShapeError for y0 that is not a vector, and for a
      rate of another length; DtypeError for a complex state of Radau and LSODA.

    >>> import rlx.numpy as jnp
    >>> from rlx.scipy.integrate import solve_ivp
    >>> def reactions(t, y):
    ...     slow, fast = 0.04 * y[0], 1e4 * y[1] * y[2]
    ...     return jnp.stack([fast - slow, slow - fast - 3e7 * y[1] ** 2, 3e7 * y[1] ** 2])
    >>> found = solve_ivp(reactions, (0.0, 40.0), [1.0, 0.0, 0.0], method="BDF", rtol=1e-6, atol=1e-10)
    >>> found.success, found.y[:, -1].round(4).tolist()
    (True, [0.7158, 0.0, 0.2842])
    """
    from scipy import integrate

    check_function(fun)
    refuse_keywords("solve_ivp", {k: v for k, v in options.items() if k not in _OPTIONS})
    if method not in (*_EXPLICIT, *_SPARSE, *_DENSE):
        raise OptionError(
            f"solve_ivp has no method {method!r}.", "There are RK45, RK23, DOP853, Radau, BDF and LSODA, as strings."
        )
    args = tuple(args)
    _HOST.refuse_traced("an argument", (tuple(t_span), y0, t_eval, args))
    start, first = _state(y0, method), np.float64(t_span[0])

    def rate(y: Any, t: Any) -> Array:
        return _as_vector(fun(t, y, *args), start)

    run = _HOST.compiled(rate)
    run(start, first)
    if method not in _EXPLICIT:
        form, _ = jacobian_form(_HOST, rate, start.size, sparse if method in _SPARSE else False, start, first)
        options["jac"] = lambda t, y: form(y, np.float64(t))
    return integrate.solve_ivp(
        lambda t, y: run(y, np.float64(t)), tuple(t_span), start, method=method, t_eval=t_eval,
        dense_output=dense_output, events=_events(events, args), **options,
    )  # fmt: skip


def _state(y0: Any, method: str) -> np.ndarray:
    """The initial state in double precision."""
    start = np.asarray(as_array(np.asarray(y0) if isinstance(y0, (list, tuple)) else y0))
    if start.ndim != 1 or not start.size:
        raise ShapeError(
            f"solve_ivp got y0 of shape {start.shape}.",
            "Pass a vector of one number at least; rlx.flatten_util.ravel_pytree makes one of a tree.",
        )
    if is_complex(start.dtype) and method in _REAL:
        raise DtypeError(f"{method} does not take complex states.", "Use BDF, or a vector of real and imaginary parts.")
    return start.astype(np.complex128 if is_complex(start.dtype) else np.float64)


def _as_vector(value: Any, like: np.ndarray) -> Array:
    """A rate of change as a vector like the state. Raises ShapeError, DtypeError."""
    parts = [as_array(x) for x in tree.leaves(value)]
    if sum(x.size for x in parts) != like.size:
        raise ShapeError(
            f"solve_ivp's fun returned shapes {[x.shape for x in parts]} for a state of shape {like.shape}.",
            "Return the rate of change of each number.",
        )
    if any(is_complex(x.dtype) for x in parts) and not is_complex(like.dtype):
        raise DtypeError("solve_ivp's fun returned complex numbers for a real state.", "Write y0.astype(complex).")
    return jnp.concatenate([x.reshape(-1).astype(like.dtype) for x in parts])


def _events(events: Any, args: tuple[Any, ...]) -> Any:
    """Compiled events with the attributes of the given ones."""
    if events is None:
        return None
    return [_event(event, args) for event in ([events] if callable(events) else events)]


def _event(event: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[float, np.ndarray], float]:
    run = _HOST.compiled(lambda t, y: event(t, y, *args))

    def value(t: float, y: np.ndarray) -> float:
        found = run(np.float64(t), y)
        if np.size(found) != 1:
            raise ShapeError(f"An event of solve_ivp returned shape {np.shape(found)}.", "Return one number.")
        return found.item()

    for name in ("terminal", "direction"):
        if hasattr(event, name):
            setattr(value, name, getattr(event, name))
    return value
