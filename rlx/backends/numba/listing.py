"""A plan as readable Python: the source for the numba device, regardless of the device that runs it."""

from __future__ import annotations

from collections.abc import Iterator

from rlx.backends.loops.program import SourceUnit, function_of, parts_of
from rlx.backends.numba.dialect import PythonDialect
from rlx.ir.kernels import Callback, Collective, Kernel, Library, Loops, Plan, nested_plans

__all__ = ["kernel_listing", "plan_listing"]


def plan_listing(plan: Plan) -> str:
    """The functions of a plan, each after its callees; host steps are comments between them."""
    return "\n\n\n".join(dict.fromkeys(_blocks(plan)))


def kernel_listing(kernel: Loops) -> str:
    """The function of one loop nest."""
    return function_of(kernel, PythonDialect()).text


def _blocks(plan: Plan) -> Iterator[str]:
    for part in parts_of(plan, PythonDialect):
        if isinstance(part, SourceUnit):
            yield from (function.text for function in part.functions)
            continue
        yield f"# {_host_step(part)}"
        for inner in nested_plans(part):
            yield f"# the plan {inner.name}, run there"
            yield from _blocks(inner)


def _host_step(kernel: Kernel) -> str:
    """A comment line for a host kernel."""
    what = type(kernel).__name__.lower()
    if isinstance(kernel, Library):
        what = kernel.routine
    elif isinstance(kernel, Callback):
        what = f"callback {getattr(kernel.function, '__name__', 'a function')}"
    elif isinstance(kernel, Collective):
        what = kernel.exchange.kind
    operands, results = (", ".join(f"{b.dtype.name}[{b.size}]" for b in side) for side in (kernel.reads, kernel.writes))
    return f"here the host runs {what}: ({operands}) -> ({results})"
