"""The Jacobian that SciPy's solvers get: a sparse matrix where the program of the function has a sparse pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.errors import OptionError, UnsupportedError
from rlx.ir.types import is_complex
from rlx.scipy.host_functions import Host, HostFunction, dense_jacobian, first_differentiable
from rlx.sparse import CSR
from rlx.sparse_derivatives import Pattern, color, jacobian
from rlx.sparse_derivatives.pattern import pattern_of

__all__ = ["jacobian_form", "sparse_pattern"]

_LEAST_PLACES = 4096  # of a matrix whose sparse form is faster
_GREATEST_SHARE = 0.1  # of the places that are stored


def sparse_pattern(function: Callable[..., Any], *args: Any) -> Pattern | None:
    """The pattern of a function's Jacobian by its first argument, if a sparse form is worth its indices.

    It is for large matrices, with at most a tenth of the places.
    """
    try:
        pattern = pattern_of(function, 0, args, {}, share=_GREATEST_SHARE)
    except UnsupportedError:
        return None
    return pattern if pattern.shape[0] * pattern.shape[1] >= _LEAST_PLACES else None


def jacobian_form(
    host: Host, function: Callable[..., Any], rows: int, sparse: bool | None, x: np.ndarray, *args: Any
) -> tuple[HostFunction, bool]:
    """The compiled Jacobian of function(x, *args) by the vector x, and whether its results are SciPy's sparse arrays.

    sparse: True, False, or None: sparse if it has a `sparse_pattern`.
    """
    if sparse not in (True, False, None):
        raise OptionError(f"{host.name} got sparse={sparse!r}.", "There are True, False and None.")
    pattern = sparse_pattern(function, x, *args) if sparse is None else None
    if pattern is None and not sparse:
        return dense_jacobian(host, function, rows, x, *args), False
    coloring = None if pattern is None else color(pattern)
    forms = [{"coloring": coloring}, {"mode": "reverse"}]
    found = [_sparse(host, function, holomorphic=is_complex(x.dtype), **form) for form in forms]
    return first_differentiable(found, x, *args), True


def _sparse(host: Host, function: Callable[..., Any], **options: Any) -> HostFunction:
    """The Jacobian as SciPy's array, in the mode or with the colours of `options`."""
    run = host.compiled(jacobian(function, sparse=True, **options))

    def call(*args: Any) -> Any:
        found: CSR = run(*args)
        return found.toscipy()

    return call
