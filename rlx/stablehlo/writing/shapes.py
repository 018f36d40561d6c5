"""Operations that move elements, as StableHLO."""

from __future__ import annotations

from rlx.ir.program import Equation
from rlx.stablehlo.text import array_attribute
from rlx.stablehlo.writing.writer import Rule, Values, Writer, shape_of
from rlx.standalone.spelling import entering

__all__ = ["RULES"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name


@rule("stop_gradient", "copy", "checkpoint_name", "random_wrap", "random_unwrap")
def _same(w: Writer, e: Equation, xs: Values) -> Values:
    return xs


@rule("optimization_barrier")
def _barrier(w: Writer, e: Equation, xs: Values) -> Values:
    return w.several("stablehlo.optimization_barrier", xs, [(x.shape, x.dtype) for x in xs])


@rule("reshape")
def _reshape(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.reshape(xs[0], shape_of(e.outputs[0].type)[0])]


@rule("transpose")
def _transpose(w: Writer, e: Equation, xs: Values) -> Values:
    shape, dtype = shape_of(e.outputs[0].type)
    order = [*e.params["permutation"], *range(len(e.params["permutation"]), len(shape))]
    return [w.op("stablehlo.transpose", xs, shape, dtype, permutation=array_attribute(order))]


@rule("broadcast_in_dim")
def _broadcast(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.broadcast(xs[0], e.params["shape"], e.params["dims"])]


@rule("iota")
def _iota(w: Writer, e: Equation, xs: Values) -> Values:
    kind = e.params["type"]
    return [w.iota(kind.shape, kind.dtype, e.params["axis"])]


@rule("slice")
def _slice(w: Writer, e: Equation, xs: Values) -> Values:
    rest = xs[0].shape[len(e.params["starts"]) :]
    p = e.params
    return [w.slice(xs[0], (*p["starts"], *[0] * len(rest)), (*p["limits"], *rest), (*p["strides"], *[1] * len(rest)))]


@rule("reverse")
def _reverse(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.op("stablehlo.reverse", xs, xs[0].shape, xs[0].dtype, dimensions=array_attribute(e.params["axes"]))]


@rule("concatenate")
def _concatenate(w: Writer, e: Equation, xs: Values) -> Values:
    shape, dtype = shape_of(e.outputs[0].type)
    return [w.op("stablehlo.concatenate", xs, shape, dtype, dimension=f"{e.params['axis']} : i64")]


@rule("pad")
def _pad(w: Writer, e: Equation, xs: Values) -> Values:
    return [w.pad(xs[0], xs[1], e.params["config"])]
