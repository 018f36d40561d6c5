"""Which function is being traced: what flax, dm-haiku, equinox and numpyro ask jax.core for."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from rlx.trace.builder import Builder, Tracer, state

__all__ = ["OpaqueTraceState", "TopTrace", "find_top_trace", "get_opaque_trace_state", "trace_state_clean"]


class OpaqueTraceState:
    """The innermost function that is being traced: equal where it is the same one, or none is.

    >>> from rlx.jaxnames.trace_state import get_opaque_trace_state
    >>> get_opaque_trace_state() == get_opaque_trace_state()
    True
    """

    def __init__(self, builder: Builder | None) -> None:
        # weak: a module that remembers where it was made does not hold the program of that function
        self._builder = None if builder is None else weakref.ref(builder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueTraceState) and self._builder == other._builder

    def __hash__(self) -> int:
        return hash(self._builder)


def get_opaque_trace_state(convention: str = "") -> OpaqueTraceState:
    """The function that is being traced, to be compared with another's.

    >>> import rlx
    >>> from rlx.jaxnames.trace_state import get_opaque_trace_state
    >>> outside = get_opaque_trace_state()
    >>> rlx.jit(lambda x: print(get_opaque_trace_state() == outside))(1.0)
    False
    """
    return OpaqueTraceState(state.builder)


def trace_state_clean() -> bool:
    """Whether no function is being traced.

    >>> from rlx.jaxnames.trace_state import trace_state_clean
    >>> trace_state_clean()
    True
    """
    return state.builder is None


class TopTrace:
    """The function whose tracers are among values, as `main`.

    >>> from rlx.jaxnames.trace_state import find_top_trace
    >>> find_top_trace([1.0]).main is None
    True
    """

    def __init__(self, main: Any) -> None:
        self.main = main


def find_top_trace(values: Sequence[Any]) -> TopTrace:
    """The innermost traced function that values belong to."""
    builder = state.builder
    among = {id(x.builder) for x in values if isinstance(x, Tracer)}
    while builder is not None and id(builder) not in among:
        builder = builder.parent
    return TopTrace(builder)


def _trace_of(tracer: Tracer) -> TopTrace:
    """The function of whose arguments a tracer is made; another that is recorded in it is none of its tracers."""
    builder = tracer.builder
    reached = set(builder.inputs)
    for equation in builder.equations:
        if not reached.isdisjoint(equation.inputs):
            reached.update(equation.outputs)
    return TopTrace(builder if tracer.atom in reached else builder.parent)


# equinox asks tracers themselves, for instance whether a result moves with what is differentiated
setattr(Tracer, "_trace", property(_trace_of))  # noqa: B010
