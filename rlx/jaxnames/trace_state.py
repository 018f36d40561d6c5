"""The function that is being traced, which flax, dm-haiku, equinox and numpyro read from jax.core."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from rlx.trace.builder import Builder, Tracer, is_traced, state

__all__ = ["OpaqueTraceState", "TopTrace", "find_top_trace", "get_opaque_trace_state", "trace_state_clean"]


class OpaqueTraceState:
    """The innermost function that is being traced: equal if it is the same one, or if there is none.

    >>> from rlx.jaxnames.trace_state import get_opaque_trace_state
    >>> get_opaque_trace_state() == get_opaque_trace_state()
    True
    """

    def __init__(self, builder: Builder | None) -> None:
        # weak: a module that stores where it was created does not keep that function's program alive
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
    """The function whose tracers are among the values, as `main`.

    >>> from rlx.jaxnames.trace_state import find_top_trace
    >>> find_top_trace([1.0]).main is None
    True
    """

    def __init__(self, main: Any) -> None:
        self.main = main


def find_top_trace(values: Sequence[Any]) -> TopTrace:
    """The innermost traced function that values belong to."""
    builder = state.builder
    among = {id(x.builder) for x in values if is_traced(x)}
    while builder is not None and id(builder) not in among:
        builder = builder.parent
    return TopTrace(builder)


def _trace_of(tracer: Tracer) -> TopTrace:
    """The function whose arguments a tracer depends on; tracers of an inner function belong to that function."""
    builder = tracer.builder
    reached = set(builder.inputs)
    for equation in builder.equations:
        if not reached.isdisjoint(equation.inputs):
            reached.update(equation.outputs)
    return TopTrace(builder if tracer.atom in reached else builder.parent)


# equinox reads attributes of tracers, for instance whether a result depends on differentiated values
setattr(Tracer, "_trace", property(_trace_of))  # noqa: B010
