"""jax.interpreters.partial_eval: evaluation of the parts of a function that depend on known arguments (flax)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rlx.errors import UnsupportedError
from rlx.jaxnames.avals import AbstractArray, aval_of, tensor_type
from rlx.jaxnames.linear_util import WrappedFun
from rlx.jaxnames.views import view_of
from rlx.trace.builder import Builder, is_traced
from rlx.trace.flat import as_array
from rlx.trace.interpret import interpret
from rlx.trace.tracing import close_over
from rlx.transforms.programs import split_program

__all__ = ["PartialVal", "trace_to_jaxpr_dynamic", "trace_to_jaxpr_nounits"]


class PartialVal(NamedTuple):
    """A value: the aval of an unknown value, or None and the known value.

    >>> from rlx.jaxnames.partial_eval import PartialVal
    >>> PartialVal.known(3).is_known(), PartialVal.known(3).get_known()
    (True, 3)
    """

    aval: AbstractArray | None
    const: Any

    @classmethod
    def known(cls, value: Any) -> PartialVal:
        """A known value."""
        return cls(None, value)

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal:
        """A value whose type is known."""
        return cls(aval, None)

    def is_known(self) -> bool:
        """Whether the value is known."""
        return self.aval is None

    def get_known(self) -> Any:
        """The value, None if it is unknown."""
        return self.const if self.aval is None else None

    def get_aval(self) -> AbstractArray:
        """The type."""
        return aval_of(as_array(self.const).type) if self.aval is None else self.aval


def trace_to_jaxpr_nounits(fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: Any = False) -> Any:
    """A function of flat, partly unknown values: (jaxpr of the unknown part, results, captured values).

    Results that do not depend on unknown arguments are computed immediately, and known.

    >>> import rlx
    >>> from rlx.jaxnames.linear_util import wrap_init
    >>> from rlx.jaxnames.partial_eval import PartialVal, trace_to_jaxpr_nounits
    >>> unknown = PartialVal.unknown(rlx.compat.typeof(1.0))
    >>> _, (first, second), _ = trace_to_jaxpr_nounits(
    ...     wrap_init(lambda x, y: (x + 1, x * y)), [PartialVal.known(2), unknown]
    ... )
    >>> first.const, second.aval.shape
    (3, ())
    """
    with Builder("partial_eval") as builder:
        values = [p.const if p.is_known() else builder.input(tensor_type(p.aval)) for p in pvals]
        unknowns = len(builder.inputs)
        outs = list(fun.call_wrapped(*values))
        mine = [is_traced(x) and x.builder is builder for x in outs]
        program, captured = builder.close([x for x, own in zip(outs, mine, strict=True) if own])
    halves = split_program(program, [False] * len(captured) + [True] * unknowns, instantiate is True)
    found = interpret(halves.known, captured)
    kept = len(halves.unknown_out) - sum(halves.unknown_out)
    known, hidden = iter(found[:kept]), iter(halves.linear.output_types)
    unknown_out = iter(halves.unknown_out)
    pairs = []
    for value, own in zip(outs, mine, strict=True):
        if not own:
            pairs.append(PartialVal.known(value))
        elif next(unknown_out):
            pairs.append(PartialVal.unknown(aval_of(next(hidden))))
        else:
            pairs.append(PartialVal.known(next(known)))
    held = [*found[kept:], *[captured[i] for i in halves.forwarded]]
    return view_of(halves.linear).jaxpr, pairs, held


def trace_to_jaxpr_dynamic(fun: WrappedFun, in_avals: Sequence[Any], **_: Any) -> Any:
    """A function of flat values as (jaxpr, avals of its results, constants).

    >>> import rlx
    >>> from rlx.jaxnames.linear_util import wrap_init
    >>> from rlx.jaxnames.partial_eval import trace_to_jaxpr_dynamic
    >>> jaxpr, avals, consts = trace_to_jaxpr_dynamic(wrap_init(lambda x: [x + 1]), [rlx.compat.typeof(1.0)])
    >>> [eqn.primitive.name for eqn in jaxpr.eqns]
    ['add']
    """
    with Builder("jaxpr") as builder:
        outs = fun.call_wrapped(*[builder.input(tensor_type(a)) for a in in_avals])
        program, captured = builder.close(list(map(as_array, outs)))
    if any(is_traced(x) for x in captured):
        raise UnsupportedError(
            "trace_to_jaxpr_dynamic met a traced value that the function closes over.",
            "Pass it as an argument: rlx.closure_convert turns captured values into arguments.",
        )
    closed = view_of(close_over(program, captured))
    return closed.jaxpr, closed.out_avals, closed.consts
