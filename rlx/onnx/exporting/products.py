"""Products and convolutions as ONNX."""

from __future__ import annotations

import numpy as np

from rlx.ir.program import Equation
from rlx.onnx.exporting.shapes import padded, sliced
from rlx.onnx.exporting.writer import FORMAT, Names, Rule, Writer, working_dtype
from rlx.standalone.spelling import entering, refused

__all__ = ["RULES"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name


@rule("dot_general")
def _dot(w: Writer, e: Equation, xs: Names) -> Names:
    (left, right), (left_batch, right_batch) = e.params["dimension_numbers"]
    a, b = (operand.type for operand in e.inputs)
    dtype = e.outputs[0].type.dtype
    operands = [w.cast(x, working_dtype(dtype)) if t.dtype != working_dtype(dtype) else x
                for x, t in zip(xs, (a, b), strict=True)]  # fmt: skip
    used = (*left, *left_batch), (*right, *right_batch)
    free = [[i for i in range(len(t.shape)) if i not in taken] for t, taken in zip((a, b), used, strict=True)]
    orders = [*left_batch, *free[0], *left], [*right_batch, *right, *free[1]]
    # onnxruntime 1.32 merges transpositions into MatMul wrongly if they are in a loop, or if an operand is a vector
    merged = w.inside and any(order != sorted(order) for order in orders)
    if len(left) == len(free[1]) == 1 and (len(free[0]) == 1 or (free[0] and not left_batch)) and not merged:
        rows, columns = (_arranged(w, x, order) for x, order in zip(operands, orders, strict=True))
        return [w.narrowed(w.node("MatMul", rows, columns), dtype)]
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    one = [next(letters) for _ in a.shape]
    other = [next(letters) for _ in b.shape]
    for i, j in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        other[j] = one[i]
    kept = [one[i] for i in (*left_batch, *free[0])] + [other[j] for j in free[1]]
    found = w.node("Einsum", *operands, equation=f"{''.join(one)},{''.join(other)}->{''.join(kept)}")
    return [w.narrowed(found, dtype)]


def _arranged(w: Writer, x: str, order: list[int]) -> str:
    return x if order == sorted(order) else w.node("Transpose", x, perm=order)


@rule("conv_general_dilated")
def _convolution(w: Writer, e: Equation, xs: Names) -> Names:
    p, spec = e.params, e.params["dimension_numbers"]
    if p["batch_group_count"] != 1:
        raise refused(e, FORMAT, "its batch is in groups")
    x = w.node("Transpose", xs[0], perm=list(spec.lhs_spec))
    kernel = w.node("Transpose", xs[1], perm=list(spec.rhs_spec))
    dtype = e.inputs[0].type.dtype
    shape = [e.inputs[0].type.shape[a] for a in spec.lhs_spec]
    between = [(0, 0, 0), (0, 0, 0)]
    if dtype.kind in "iu":
        between += [(a, b, d - 1) for (a, b), d in zip(p["padding"], p["lhs_dilation"], strict=True)]
        x = padded(w, x, w.constant(0, dtype), between, shape, dtype)
        return [w.node("Transpose", _of_integers(w, e, x, kernel), perm=np.argsort(spec.out_spec).tolist())]
    # first cut negative padding and insert zeros between elements; padding that may depend on sizes is not an attribute
    own = [(0, 0) if w.any_size else (max(a, 0), max(b, 0)) for a, b in p["padding"]]
    before = [(a - x, b - y) for (a, b), (x, y) in zip(p["padding"], own, strict=True)]
    between += [(a, b, d - 1) for (a, b), d in zip(before, p["lhs_dilation"], strict=True)]
    x = padded(w, x, w.constant(0, dtype), between, shape, dtype)
    pads = [a for a, _ in own] + [b for _, b in own]
    found = w.node(
        "Conv", x, kernel, strides=list(p["window_strides"]), pads=pads, dilations=list(p["rhs_dilation"]),
        group=p["feature_group_count"],
    )  # fmt: skip
    return [w.node("Transpose", found, perm=np.argsort(spec.out_spec).tolist())]


def _of_integers(w: Writer, e: Equation, x: str, kernel: str) -> str:
    """The sum over the kernel's positions of products: ONNX's Conv takes no integers. x: padded, channels second."""
    spec, dtype, groups = e.params["dimension_numbers"], e.outputs[0].type.dtype, e.params["feature_group_count"]
    wide = working_dtype(dtype)
    features, depth, *window = (e.inputs[1].type.shape[a] for a in spec.rhs_spec)
    images, _, *sizes = (e.outputs[0].type.shape[a] for a in spec.out_spec)
    steps, apart = e.params["window_strides"], e.params["rhs_dilation"]
    x, kernel = w.cast(x, wide), w.cast(kernel, wide)
    axes = "uvwxyz"[: len(window)]
    total = None
    for position in np.ndindex(*window):
        first = [at * d for at, d in zip(position, apart, strict=True)]
        last = [a + (n - 1) * s + 1 for a, n, s in zip(first, sizes, steps, strict=True)]
        part = sliced(w, x, (0, 0, *first), (images, groups * depth, *last), (1, 1, *steps))
        part = w.node("Reshape", part, w.integers([images, groups, depth, *sizes]))
        ends = (features, depth, *(at + 1 for at in position))
        row = sliced(w, kernel, (0, 0, *position), ends, (1,) * len(ends))
        row = w.node("Reshape", row, w.integers([groups, features // groups, depth]))
        product = w.node("Einsum", part, row, equation=f"bgi{axes},goi->bgo{axes}")
        total = product if total is None else w.node("Add", total, product)
    if total is None:  # a kernel without positions
        return w.node("Expand", w.constant(0, dtype), w.integers([images, features, *sizes]))
    return w.narrowed(w.node("Reshape", total, w.integers([images, features, *sizes])), dtype)
