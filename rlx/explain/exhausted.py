"""The error for a compiled program that gets no memory: how much it needs, and for which user values."""

from __future__ import annotations

from collections.abc import Iterator

from rlx.errors import OutOfMemoryError, bytes_text, source_line
from rlx.ir.kernels import Plan, nested_plans
from rlx.ir.program import Equation, Program
from rlx.ir.types import TensorType
from rlx.planning.memory import temporary_bytes
from rlx.trace.lower import inline_calls

__all__ = ["memory_exhausted"]

_SHOWN = 3  # this many of the largest values are named


def memory_exhausted(program: Program, plan: Plan | None) -> OutOfMemoryError:
    """The error for a program that needs more memory than available, at the line of its largest value.

    plan: None if the backend does not tell which values it keeps.
    """
    results = sum(type.nbytes for type in program.output_types)
    largest = _largest(program, plan)
    needs = f"{bytes_text(results)} for its results"
    if plan is not None:
        needs += f" and {bytes_text(temporary_bytes(plan))} for temporaries"
    named = ", ".join(f"{t!r} ({bytes_text(t.nbytes)}) of {e.primitive.name}" for t, e in largest)
    origin = largest[0][1].origin if largest else None
    return OutOfMemoryError(
        f"{program.name} needs {needs}, which the machine does not have. The largest values: {named}.",
        "Check the shapes; compute less at once, with rlx.lax.map(f, xs, batch_size=...) or rlx.lax.scan; keep less"
        " for derivatives, with rlx.checkpoint or rlx.jit(memory_limit=...).",
        source_line(*origin) if origin is not None else None,
    )


def _largest(program: Program, plan: Plan | None) -> list[tuple[TensorType, Equation]]:
    """The largest values that the plan keeps in memory, one for a line, with the equations that make them."""
    kept = set() if plan is None else _kept_sizes(plan)
    made = list(_values(program))
    found = [(t, e) for t, e in made if t.nbytes in kept] or made
    by_line = {(t, e.origin): (t, e) for t, e in found}
    ordered = sorted(by_line.values(), key=lambda value: value[0].nbytes, reverse=True)
    return [(t, e) for t, e in ordered[:_SHOWN] if t.nbytes > ordered[0][0].nbytes // 8]


def _kept_sizes(plan: Plan) -> set[int]:
    """Bytes of each result and temporary."""
    inner = [_kept_sizes(p) for kernel in plan.kernels for p in nested_plans(kernel)]
    return {b.nbytes for b in plan.buffers if b.role in ("output", "temporary")}.union(*inner)


def _values(program: Program) -> Iterator[tuple[TensorType, Equation]]:
    """Every value that a program computes, including its loops' bodies."""
    inlined = inline_calls(program)
    for equation in inlined.equations:
        yield from ((v.type, equation) for v in equation.outputs)
    for region in inlined.regions():
        yield from _values(region)
