"""Newton's method with a backtracking step for a system of equations, with a dense or a sparse Jacobian."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlx import sparse
from rlx.errors import OptionError, SingularMatrixError

__all__ = ["newton"]

_DECREASE = 1e-4  # of the norm, relative to the step's length
_LEAST_LENGTH = 2.0**-30
_MESSAGES = (
    "The values are within the tolerance.",
    "The maximum number of iterations was reached.",
    "No step along Newton's direction decreases the norm of the values.",
    "The Jacobian is singular or not finite.",
)
_OPTIONS = ("ftol", "maxiter")


class _Point(NamedTuple):
    """Unknowns, the values of the equations there, and their norm."""

    x: np.ndarray
    values: np.ndarray
    norm: float


def newton(
    function: Callable[[np.ndarray], np.ndarray], jacobian: Callable[[np.ndarray], Any], start: np.ndarray,
    tol: float | None, callback: Callable[..., Any] | None, options: Mapping[str, Any],
) -> Any:  # fmt: skip
    """SciPy's OptimizeResult for a zero of `function`; `jacobian` returns an array, or a sparse one of SciPy.

    Source: Nocedal and Wright 2006, section 11.2.
    """
    from scipy.optimize import OptimizeResult

    for name in options:
        if name not in _OPTIONS:
            raise OptionError(f"The method 'newton' of root has no option {name!r}.", f"There are {_OPTIONS}.")
    calls = [0, 0]

    def at(x: np.ndarray) -> _Point:
        calls[0] += 1
        values = function(x)
        return _Point(x, values, float(np.linalg.norm(values)))

    point = at(start)
    limit = options.get("ftol", 1e-10 * max(1.0, np.abs(point.values).max()) if tol is None else tol)
    status, steps = None, 0
    while status is None:
        if np.abs(point.values).max() <= limit:
            status = 0
        elif steps >= options.get("maxiter", 100):
            status = 1
        else:
            steps, calls[1] = steps + 1, calls[1] + 1
            direction = _direction(jacobian(point.x), point.values)
            further = None if direction is None else _step(at, point, direction)
            status = 3 if direction is None else 2 if further is None else None
            point = further or point
            if callback is not None and further is not None:
                callback(point.x, point.values)
    return OptimizeResult(
        x=point.x, success=status == 0, status=status, message=_MESSAGES[status], fun=point.values, nit=steps,
        nfev=calls[0], njev=calls[1], method="newton",
    )  # fmt: skip


def _direction(jacobian: Any, values: np.ndarray) -> np.ndarray | None:
    """Newton's direction; None if there is none."""
    try:
        if isinstance(jacobian, np.ndarray):
            found = np.linalg.solve(jacobian, -values)
        else:
            found = np.asarray(sparse.spsolve(sparse.CSR.fromscipy(jacobian), -values))
    except (np.linalg.LinAlgError, SingularMatrixError):
        return None
    return found if np.isfinite(found).all() else None


def _step(at: Callable[[np.ndarray], _Point], point: _Point, direction: np.ndarray) -> _Point | None:
    """The first point at lengths 1, 1/2, 1/4, ... with a sufficiently smaller norm; None if there is none."""
    length = 1.0
    while length >= _LEAST_LENGTH:
        found = at(point.x + length * direction)
        if found.norm <= (1 - _DECREASE * length) * point.norm:
            return found
        length /= 2
    return None
