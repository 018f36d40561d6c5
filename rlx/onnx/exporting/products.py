"""Products and convolutions as ONNX."""

from __future__ import annotations

import numpy as np

from rlx.ir.program import Equation
from rlx.onnx.exporting.shapes import padded
from rlx.onnx.exporting.writer import FORMAT, Names, Rule, Writer
from rlx.standalone.spelling import entering, refused

__all__ = ["RULES"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name


@rule("dot_general")
def _dot(w: Writer, e: Equation, xs: Names) -> Names:
    (left, right), (left_batch, right_batch) = e.params["dimension_numbers"]
    a, b = (operand.type for operand in e.inputs)
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    one = [next(letters) for _ in a.shape]
    other: list[str] = [next(letters) for _ in b.shape]
    for i, j in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        other[j] = one[i]
    batch = [one[i] for i in left_batch]
    free = [x for i, x in enumerate(one) if i not in (*left, *left_batch)]
    free += [x for j, x in enumerate(other) if j not in (*right, *right_batch)]
    dtype = e.outputs[0].type.dtype
    working = (
        dtype if dtype.kind == "f" and dtype.itemsize >= 4 else np.dtype(np.float32 if dtype.kind == "f" else np.int64)
    )
    operands = [x if t.dtype == working else w.cast(x, working) for x, t in zip(xs, (a, b), strict=True)]
    found = w.node("Einsum", *operands, equation=f"{''.join(one)},{''.join(other)}->{''.join(batch + free)}")
    return [found if working == dtype else w.cast(found, dtype)]


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
    # first cut negative padding and insert zeros between elements
    between += [(min(a, 0), min(b, 0), d - 1) for (a, b), d in zip(p["padding"], p["lhs_dilation"], strict=True)]
    x = padded(w, x, w.constant(0, dtype), between, shape, dtype)
    pads = [max(a, 0) for a, _ in p["padding"]] + [max(b, 0) for _, b in p["padding"]]
    found = w.node(
        "Conv", x, kernel, strides=list(p["window_strides"]), pads=pads, dilations=list(p["rhs_dilation"]),
        group=p["feature_group_count"],
    )  # fmt: skip
    return [w.node("Transpose", found, perm=np.argsort(spec.out_spec).tolist())]
