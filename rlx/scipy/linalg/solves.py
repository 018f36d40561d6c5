"""Linear systems under SciPy's names and conventions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.numpy.halves import in_single
from rlx.numpy.linalg import det as numpy_det
from rlx.numpy.linalg import inv as numpy_inv
from rlx.numpy.linalg import solve as numpy_solve
from rlx.numpy.linalg.common import aligned, square
from rlx.numpy.manipulation import reshape
from rlx.numpy.promotion import broadcast_array, inexact, promote_inexact
from rlx.ops import factorisations
from rlx.ops import solves as primitives
from rlx.ops.matrices import take_rows
from rlx.scipy.linalg.factorisations import cho_factor
from rlx.trace.flat import as_array

__all__ = ["cho_solve", "det", "inv", "lu_solve", "solve", "solve_sylvester", "solve_triangular"]

_TRANSPOSES = {0: (False, False), "N": (False, False), 1: (True, False), "T": (True, False)}
_TRANSPOSES |= {2: (True, True), "C": (True, True)}


@in_single
def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinant: rlx.numpy.linalg.det.

    Args: a: (..., n, n). Returns: (...).

    >>> import rlx
    >>> rlx.scipy.linalg.det(rlx.numpy.eye(2)).item()
    1.0
    """
    return numpy_det(a)


@in_single
def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverse: rlx.numpy.linalg.inv.

    Args: a: (..., n, n). Returns: (..., n, n).

    >>> import rlx
    >>> rlx.scipy.linalg.inv(2 * rlx.numpy.eye(1))
    Array([[0.5]], dtype=float32)
    """
    return numpy_inv(a)


def _columns(name: str, a: Any, b: Any) -> tuple[Any, Any, bool]:
    """Systems and right sides with equal batch axes; whether the right side was a vector."""
    system, right = promote_inexact(name, a, b)
    if right.ndim < 1:
        raise ShapeError(f"{name} got a 0-d right side.", "Pass a vector or a matrix of columns.")
    vector = right.ndim == 1
    if vector:
        right = reshape(right, (*right.shape, 1))
    if system.ndim < 2 or system.shape[-2] != right.shape[-2]:
        raise ShapeError(f"{name} got shapes {system.shape} and {right.shape}.", "Rows must be equally many.")
    return (*aligned(name, system, right), vector)


def _shaped(x: Any, vector: bool) -> Any:
    return reshape(x, x.shape[:-1]) if vector else x


def _transposition(name: str, trans: Any) -> tuple[bool, bool]:
    if trans not in _TRANSPOSES:
        raise ValueError(f'{name}: trans must be 0, 1, 2, "N", "T" or "C", not {trans!r}.')
    return _TRANSPOSES[trans]


@in_single
def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Array:
    """The solution of triangular systems.

    Args: a: (..., n, n); b: (n,) or (..., n, k); trans: 0 for a, 1 for a^T, 2 for a^H; lower: the triangle
    that is read; unit_diagonal: take its diagonal for ones. Returns: an array like b.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.scipy.linalg.solve_triangular(2 * jnp.eye(1), jnp.ones(1))
    Array([0.5], dtype=float32)
    """
    transposed, conjugated = _transposition("solve_triangular", trans)
    system, right, vector = _columns("solve_triangular", a, b)
    x = primitives.triangular_solve(
        system,
        right,
        left_side=True,
        lower=lower,
        transpose_a=transposed,
        conjugate_a=conjugated,
        unit_diagonal=unit_diagonal,
    )
    return _shaped(x, vector)


@in_single
def cho_solve(c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """The solution of a x = b from `cho_factor(a)`.

    Args: c_and_lower: a Cholesky factor; b: (n,) or (..., n, k). Returns: an array like b.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.scipy.linalg.cho_solve((2 * jnp.eye(1), True), jnp.ones(1))
    Array([0.25], dtype=float32)
    """
    factor, lower = c_and_lower
    system, right, vector = _columns("cho_solve", factor, b)
    first = {"transpose_a": not lower, "conjugate_a": not lower}
    then = {"transpose_a": bool(lower), "conjugate_a": bool(lower)}
    x = primitives.triangular_solve(system, right, left_side=True, lower=bool(lower), **first)
    return _shaped(primitives.triangular_solve(system, x, left_side=True, lower=bool(lower), **then), vector)


@in_single
def lu_solve(
    lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """The solution of op(a) x = b from `lu_factor(a)`.

    Args: lu_and_piv: packed factors and pivots; b: (n,) or (..., n, k); trans: 0 for a, 1 for a^T, 2 for
    a^H. Returns: an array like b.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.scipy.linalg.lu_solve(rlx.scipy.linalg.lu_factor(2 * jnp.eye(1)), jnp.ones(1))
    Array([0.5], dtype=float32)
    """
    factors, pivots = lu_and_piv
    system, right, vector = _columns("lu_solve", factors, b)
    transposed, conjugated = _transposition("lu_solve", trans)
    permutation = factorisations.pivots_to_permutation(as_array(pivots), rows=system.shape[-1])
    permutation = broadcast_array(permutation, system.shape[:-1])
    if transposed:
        params = {"left_side": True, "transpose_a": True, "conjugate_a": conjugated}
        x = primitives.triangular_solve(system, right, lower=False, **params)
        x = primitives.triangular_solve(system, x, lower=True, unit_diagonal=True, **params)
        return _shaped(take_rows(x, permutation.argsort(axis=-1)), vector)
    x = primitives.triangular_solve(system, take_rows(right, permutation), left_side=True, unit_diagonal=True)
    return _shaped(primitives.triangular_solve(system, x, left_side=True, lower=False), vector)


@in_single
def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """The solution of linear systems a x = b.

    Args: a: (..., n, n); b: (n,) or (..., n, k); assume_a: "gen", "sym", "her", or "pos" for positive
    definite matrices (only the triangle named by lower is read). Returns: an array like b.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.scipy.linalg.solve(4 * jnp.eye(1), jnp.ones(1), assume_a="pos")
    Array([0.25], dtype=float32)
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise UnsupportedError(f"solve has no assume_a={assume_a!r}.", 'Use "gen", "sym", "her" or "pos".')
    if assume_a != "pos":
        return numpy_solve(a, b)
    system, right, vector = _columns("solve", square(a, "solve"), inexact(b, "solve"))
    return _shaped(cho_solve(cho_factor(system, lower), right), vector)


@in_single
def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """The solution x of A x + x B = C.

    Args: A: (..., m, m); B: (..., n, n); C: (..., m, n); method: "schur" or "eigen", tol: accepted, both mean
    LAPACK's Schur method. Returns: (..., m, n), NaN where there is no single solution.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.scipy.linalg.solve_sylvester(jnp.eye(1), jnp.eye(1), jnp.eye(1))
    Array([[0.5]], dtype=float32)
    """
    if method not in ("schur", "eigen"):
        raise ValueError(f'method must be "schur" or "eigen", not {method!r}.')
    left, right, target = promote_inexact("solve_sylvester", A, B, C)
    if min(left.ndim, right.ndim, target.ndim) < 2:
        return primitives.sylvester(left, right, target)  # raises
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in (left, right, target)))
    operands = (broadcast_array(x, (*batch, *x.shape[-2:])) for x in (left, right, target))
    return primitives.sylvester(*operands)
