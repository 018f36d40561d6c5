"""Exact simplifications of scalar operations as they are recorded."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.size_functions import plain_size
from rlx.ir.sized_scalars import SizedScalar, array_of
from rlx.ir.types import dtype_kind
from rlx.lowering.nodes import INT64, Node, NodeTable, constant_value

__all__ = ["fold"]

_FOLDED: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": np.minimum,
    "max": np.maximum,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
    "neg": operator.neg,
    "sqrt": np.sqrt,
}


def fold(table: NodeTable, op: str, args: tuple[Node, ...], dtype: np.dtype, attribute: Any = None) -> Node:
    """The node of an operation, or a simpler one of exactly the same value."""
    if op == "cast":
        simpler = _fold_cast(table, args[0], dtype)
    elif op == "select":
        simpler = _fold_select(args)
    elif all(a.op == "constant" for a in args):
        simpler = _fold_constants(table, op, args, dtype)
    elif len(args) == 2:
        simpler = _fold_binary(table, op, args[0], args[1])
    else:
        simpler = args[0].args[0] if op in ("neg", "not") and args[0].op == op else None
    return simpler if simpler is not None else table.make(op, args, dtype, attribute)


def _fold_constants(table: NodeTable, op: str, args: tuple[Node, ...], dtype: np.dtype) -> Node | None:
    function = _FOLDED.get(op)
    if function is None and not (op == "div" and dtype.kind == "f"):
        return None
    if any(isinstance(a.attribute, SizedScalar) for a in args):
        return _fold_sized(table, op, args, dtype)
    with np.errstate(all="ignore"):
        values = [np.full((1,), constant_value(a)) for a in args]
        result = (function or operator.truediv)(*values)[0]
    return table.constant(result, dtype)


def _fold_sized(table: NodeTable, op: str, args: tuple[Node, ...], dtype: np.dtype) -> Node | None:
    """As _fold_constants, where some depend on symbolic sizes."""
    function = _FOLDED.get(op, operator.truediv)
    if dtype == INT64 and op in ("add", "sub", "mul"):
        return table.constant(function(*map(constant_value, args)), dtype)
    dtypes = [a.dtype for a in args]

    def folded(*values: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            arrays = [np.asarray(v, d).reshape(1) for v, d in zip(values, dtypes, strict=True)]
            return np.asarray(function(*arrays)[0]).astype(dtype)

    known = [a.attribute if isinstance(a.attribute, SizedScalar) else constant_value(a) for a in args]
    key = ("folded", op, dtype, *((a.attribute, a.dtype) for a in args))
    return table.constant(array_of(key, folded, known, dtype), dtype)


def _fold_cast(table: NodeTable, node: Node, dtype: np.dtype) -> Node | None:
    if node.dtype == dtype:
        return node
    plain = dtype.kind in "biuf" and dtype.itemsize >= 1 and dtype.type.__module__ == "numpy"
    exact_kind = dtype_kind(node.dtype) in "biu" or dtype.kind == "f"
    wide = dtype.kind != "f" or dtype.itemsize >= 4
    if node.op == "constant" and plain and exact_kind and wide:
        with np.errstate(all="ignore"):
            sized = isinstance(node.attribute, SizedScalar)
            return table.constant(node.attribute if sized else constant_value(node), dtype)
    return None


def _fold_select(args: tuple[Node, ...]) -> Node | None:
    predicate, on_true, on_false = args
    if on_true is on_false:
        return on_true
    if predicate.op == "constant":
        return on_true if constant_value(predicate) else on_false
    return None


def _fold_binary(table: NodeTable, op: str, x: Node, y: Node) -> Node | None:
    if x.dtype == INT64 and "affine" in (x.op, y.op):
        combined = _fold_affine(table, op, x, y)
        if combined is not None:
            return combined
    if y.op == "constant":
        return _right_identity(op, x, constant_value(y))
    if x.op == "constant" and op in ("add", "mul", "and", "or"):
        return _right_identity(op, y, constant_value(x))
    return None


def _right_identity(op: str, x: Node, value: Any) -> Node | None:
    """x where `x op value` is exactly x; adding +0. is not exact, it turns -0. into +0."""
    if op in ("mul", "div"):
        return x if value == 1 else None
    if op == "sub":
        return x if value == 0 and not np.signbit(value) else None
    if op == "add":
        integral = dtype_kind(x.dtype) in "iu"
        return x if value == 0 and (integral or np.signbit(value)) else None
    if x.dtype.kind == "b":
        return x if (op == "and" and value) or (op == "or" and not value) else None
    return None


def _linear(node: Node) -> tuple[tuple[int, ...] | None, int] | None:
    if node.op == "affine":
        strides, offset = node.attribute
        return strides, offset
    if node.op == "constant":
        return None, plain_size(constant_value(node))
    return None


def _fold_affine(table: NodeTable, op: str, x: Node, y: Node) -> Node | None:
    first, second = _linear(x), _linear(y)
    if first is None or second is None:
        return None
    if op == "mul":
        (strides, offset), (other, factor) = (first, second) if first[0] else (second, first)
        if other is not None or strides is None:
            return None
        return table.affine(tuple(s * factor for s in strides), offset * factor)
    if op not in ("add", "sub"):
        return None
    sign = 1 if op == "add" else -1
    rank = len(first[0] or second[0] or ())
    left, right = first[0] or (0,) * rank, second[0] or (0,) * rank
    strides = tuple(a + sign * b for a, b in zip(left, right, strict=True))
    return table.affine(strides, first[1] + sign * second[1])
