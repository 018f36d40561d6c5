"""The Jacobian that SciPy's solvers get: a sparse matrix where the program of the function has a sparse pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.errors import OptionError, UnsupportedError
from rlx.ir.types import is_complex
from rlx.scipy.host_functions import Host, HostFunction, dense_jacobian, first_differentiable
from rlx.sparse import CSR
from rlx.sparse_derivatives import Pattern, jacobian, sparsity

__all__ = ["is_sparse", "jacobian_form", "sparse_pattern"]

_LEAST_PLACES = 4096  # of a matrix whose sparse form is faster
_GREATEST_SHARE = 0.1  # of the places that are stored


def is_sparse(pattern: Pattern) -> bool:
    """Whether a sparse form is worth its indices: of large matrices with at most a tenth of the places."""
    places = pattern.shape[0] * pattern.shape[1]
    return places >= _LEAST_PLACES and pattern.nnz <= _GREATEST_SHARE * places


def sparse_pattern(function: Callable[..., Any], *args: Any) -> Pattern | None:
    """The pattern of a function's Jacobian by its first argument if it is sparse."""
    try:
        pattern = sparsity(function)(*args)
    except UnsupportedError:  # it has too many elements to be stored
        return None
    return pattern if is_sparse(pattern) else None


def jacobian_form(
    host: Host, function: Callable[..., Any], rows: int, sparse: bool | None, x: np.ndarray, *args: Any
) -> tuple[HostFunction, bool]:
    """The compiled Jacobian of function(x, *args) by the vector x, and whether its results are SciPy's sparse arrays.

    sparse: True, False, or None: sparse if `is_sparse`.
    """
    if sparse not in (True, False, None):
        raise OptionError(f"{host.name} got sparse={sparse!r}.", "There are True, False and None.")
    if sparse is False or (sparse is None and sparse_pattern(function, x, *args) is None):
        return dense_jacobian(host, function, rows, x, *args), False
    holomorphic = is_complex(x.dtype)
    forms = [_sparse(host, function, mode, holomorphic) for mode in ("auto", "reverse")]
    return first_differentiable(forms, x, *args), True


def _sparse(host: Host, function: Callable[..., Any], mode: str, holomorphic: bool) -> HostFunction:
    run = host.compiled(jacobian(function, holomorphic=holomorphic, sparse=True, mode=mode))

    def call(*args: Any) -> Any:
        found: CSR = run(*args)
        return found.toscipy()

    return call
