"""Patterns of derivatives: the places of a Jacobian or Hessian that may be other than zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from rlx.array import ConcreteArray, is_concrete, wrap
from rlx.errors import UnsupportedError
from rlx.ir.index_sets import IndexSet, TooLargeError, size_of, stored
from rlx.ir.program import Program, Var
from rlx.ir.types import TensorType, is_inexact
from rlx.ops.assumed_pattern import assumed_pattern
from rlx.sparse.patterns import RowPattern
from rlx.trace.builder import is_traced
from rlx.trace.flat import FlatFunction, as_array, check_function
from rlx.trace.tracing import trace_program
from rlx.transforms.dependence import Assumption, dependence_of, value_of
from rlx.transforms.functional import restricted, select_arguments
from rlx.transforms.reverse import grad
from rlx.transforms.varying import equations_behind, value_behind
from rlx.trees import tree

__all__ = ["Pattern", "assume_pattern", "hessian_sparsity", "pattern_of", "sparsity"]


_MOVES = object()  # in the place of an argument that is differentiated


class Pattern:
    """The places of a sparse matrix, by rows, each once.

    rows, cols: their rows and columns, sorted [nnz]. shape: (rows, columns). assumptions: operations that were assumed
    to depend on more elements than they may, each with a reason and the user's line; empty for an exact pattern.

    >>> import rlx
    >>> import numpy as np
    >>> found = rlx.sparsity(lambda x: x[1:] * x[:-1])(np.ones(3))
    >>> found
    Pattern(shape=(2, 3), nnz=4)
    >>> found.rows.tolist(), found.cols.tolist()
    ([0, 0, 1, 1], [0, 1, 1, 2])
    """

    def __init__(self, places: RowPattern, assumptions: Sequence[Assumption] = ()) -> None:
        self.places = places.canonical[0]
        self.assumptions = tuple(assumptions)

    @classmethod
    def of_pairs(cls, rows: Any, cols: Any, shape: tuple[int, int]) -> Pattern:
        """From the rows and columns of its places, in any order."""
        rows, cols = np.asarray(rows), np.asarray(cols)
        order = np.argsort(rows, kind="stable")
        indptr = np.searchsorted(rows[order], np.arange(shape[0] + 1))
        return cls(RowPattern(cols[order].astype(np.int64), indptr.astype(np.int64), shape))

    @property
    def rows(self) -> np.ndarray:
        """The row of each place."""
        return self.places.rows

    @property
    def cols(self) -> np.ndarray:
        """The column of each place."""
        return self.places.indices

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.places.shape

    @property
    def nnz(self) -> int:
        """The number of places."""
        return self.places.nnz

    def todense(self) -> np.ndarray:
        """A bool matrix, True at the places."""
        dense = np.zeros(self.shape, bool)
        dense[self.rows, self.cols] = True
        return dense

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.places == other.places

    def __hash__(self) -> int:
        return hash(self.places)

    def __repr__(self) -> str:
        assumed = f", assumptions={len(self.assumptions)}" if self.assumptions else ""
        return f"Pattern(shape={self.shape}, nnz={self.nnz}{assumed})"


# ------------------------------------------------------------- of functions
def sparsity(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, *, at: Any = None) -> Callable[..., Pattern]:
    """The sparsity pattern of the Jacobian of `fun`, found in its program without computing a derivative.

    Args:
      fun: a function of arrays, or trees of them.
      argnums: the arguments of the Jacobian's columns.
      at: the arguments, a tuple (or one array), at which the pattern is wanted: of the branches that are taken there
        and the elements that masks and indices choose. Without it, the pattern holds for all values.

    Returns: a function of the arguments, or of their types (anything with shape and dtype), that returns a Pattern. Its
    rows are the elements of the results, its columns the elements of the arguments, in the order of the trees' leaves;
    integers have neither. With `at` it takes no arguments.

    A place that is not in the pattern is zero for all values. x * 0 depends on x. An operation whose elements are not
    known, such as a gather with computed indices, reads whole axes: `Pattern.assumptions` names it.

    >>> import rlx
    >>> import numpy as np
    >>> rlx.sparsity(lambda x: x * x)(rlx.ShapeDtypeStruct((1000,), "float64"))
    Pattern(shape=(1000, 1000), nnz=1000)
    >>> largest = lambda x: rlx.lax.cond(x[0] > 0, lambda x: x, lambda x: x[::-1], x)
    >>> rlx.sparsity(largest)(np.ones(4)).nnz, rlx.sparsity(largest, at=np.ones(4))().nnz
    (8, 4)
    """
    check_function(fun)

    def found(*args: Any, **kwargs: Any) -> Pattern:
        if at is None:
            return pattern_of(fun, argnums, args, kwargs)
        return pattern_of(fun, argnums, at if isinstance(at, tuple) else (at,), {}, local=True)

    return found


def hessian_sparsity(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, *, at: Any = None
) -> Callable[..., Pattern]:
    """The sparsity pattern of the Hessian of a function with one real result; see `sparsity`.

    >>> import rlx
    >>> import numpy as np
    >>> rlx.hessian_sparsity(lambda x: (x[1:] * x[:-1]).sum())(np.ones(3)).todense().astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """
    return sparsity(grad(fun, argnums), argnums, at=at)


def assume_pattern(value: Any, pattern: Pattern) -> Any:
    """`value`, stated to depend on the differentiated arguments as `pattern` says, where its indices are not known.

    Args:
      value: an array in a function whose sparsity is found.
      pattern: a row for each element of value, a column for each element of the differentiated arguments.

    A place that is missing from the pattern makes derivatives wrong. With RLX_CHECK=1, sparse Jacobians of concrete
    arguments are compared with a product that does not use the pattern.

    >>> import rlx
    >>> import numpy as np
    >>> from rlx.sparse_derivatives import Pattern, assume_pattern
    >>> near = Pattern.of_pairs([0, 1, 2], [0, 1, 2], (3, 3))
    >>> def f(x, order):
    ...     return assume_pattern(x[order], near) ** 2
    >>> rlx.sparsity(f)(np.ones(3), np.arange(3)).nnz, rlx.sparsity(lambda x, i: x[i])(np.ones(3), np.arange(3)).nnz
    (3, 9)
    """
    x = as_array(value)
    assumed_pattern.type(x.type, rows=pattern.rows, cols=pattern.cols, shape=pattern.shape)  # eagerly as well
    return assumed_pattern(x, rows=pattern.rows, cols=pattern.cols, shape=pattern.shape)


def pattern_of(
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    local: bool = False,
    share: float = 1.0,
) -> Pattern:
    """The pattern of a function's Jacobian for arguments of these types; at these values if `local`.

    share: of the matrix's places. Raises UnsupportedError if the pattern has more, before it is stored.
    """
    part = select_arguments(args, argnums)
    every, treedef = tree.flatten((tuple(args), kwargs))
    marked = restricted(lambda *a, **k: (a, k), args, argnums, kwargs)(tree.map(lambda _: _MOVES, part))
    moving = [m is _MOVES for m in tree.leaves(marked)]
    leaves = [as_array(x) if local else x for x in every]
    types = [TensorType(tuple(x.shape), np.dtype(x.dtype)) if hasattr(x, "shape") else as_array(x).type for x in leaves]
    flat = FlatFunction(fun, treedef)
    program, captured = trace_program(flat, types, None, flat.name)
    program = _with_constants(program, captured)
    mask = tuple([False] * (len(program.inputs) - len(types)) + moving)
    if local:
        values = [None] * (len(program.inputs) - len(types)) + [np.asarray(x) for x in leaves]
        return _assembled(program, mask, values, share)
    return _remembered(program, mask, share)


def _with_constants(program: Program, captured: Sequence[Any]) -> Program:
    """The program with captured arrays that are known as constants; others remain its leading inputs."""
    pairs = [(v, x, _known(x)) for v, x in zip(program.inputs, captured, strict=False)]
    known = [(v, value) for v, _, value in pairs if value is not None]
    unknown = [v for v, _, value in pairs if value is None]
    inputs = (*unknown, *program.inputs[len(captured) :])
    return program.replace(inputs=inputs, constants=(*program.constants, *known))


def _known(value: Any) -> ConcreteArray | None:
    """A captured array, or traced integers that the enclosing function computes from known values; None for others."""
    if not is_traced(value):
        return value if is_concrete(value) else None
    if is_inexact(value.dtype) or not isinstance(value.atom, Var):
        return None
    equations, sources = equations_behind(value.builder, value.atom, ())
    given = [value_behind(value.builder, v) for v in sources]
    if not all(is_concrete(x) for x in given):
        return None
    found = value_of(Program(sources, equations, [value.atom]), [np.asarray(x) for x in given])
    return None if found is None else wrap(found)


@lru_cache(maxsize=64)
def _remembered(program: Program, moving: tuple[bool, ...], share: float) -> Pattern:
    return _assembled(program, moving, None, share)


def _assembled(program: Program, moving: Sequence[bool], values: Sequence[Any] | None, share: float) -> Pattern:
    moving = [m and is_inexact(v.type.dtype) for m, v in zip(moving, program.inputs, strict=True)]
    found, assumptions = dependence_of(program, moving, values, values is not None)
    widths = [v.type.size if m else 0 for v, m in zip(program.inputs, moving, strict=True)]
    starts = np.cumsum([0, *widths])
    kept = [(sets, t.shape) for sets, t in zip(found, program.output_types, strict=True) if is_inexact(t.dtype)]
    places = sum(size_of(one, shape) for sets, shape in kept for one in sets.values())
    if places > share * sum(widths) * sum(prod(shape) for _, shape in kept):
        raise UnsupportedError(f"The pattern has {places} places, more than {share} of the matrix.")
    rows, cols, height = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for sets, out in zip(found, program.output_types, strict=True):
        if not is_inexact(out.dtype):
            continue
        for number, one in sets.items():
            matrix = _stored(one, out).tocoo()
            rows.append(matrix.coords[0] + np.int64(height))
            cols.append(matrix.coords[1] + np.int64(starts[number]))
        height += prod(out.shape)
    pattern = Pattern.of_pairs(np.concatenate(rows), np.concatenate(cols), (height, int(starts[-1])))
    pattern.assumptions = assumptions
    return pattern


def _stored(found: IndexSet, out: TensorType) -> Any:
    try:
        return stored(found, out.shape).matrix
    except TooLargeError:
        raise UnsupportedError(
            f"The derivative of a result of {out!r} by an argument of shape {found.shape} is not sparse: its pattern"
            " has too many elements to be stored.",
            "Use rlx.jvp, rlx.vjp or rlx.hvp, which need no matrix.",
        ) from None
