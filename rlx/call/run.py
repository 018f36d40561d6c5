"""Running the compiled program of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.array import ConcreteArray, is_concrete, is_plain, memory_of, owned
from rlx.call.arguments import Arguments
from rlx.call.cache import ReadyCall, SignatureEntry
from rlx.call.compiled import CompiledProgram
from rlx.call.donation import donating
from rlx.config import config
from rlx.errors import NanError
from rlx.ir.program import Program
from rlx.trace.interpret import interpret
from rlx.trace.lower import inline_calls
from rlx.trace.primitive import refused, watching

__all__ = ["check_results", "ready_call", "run_compiled"]


def run_compiled(
    compiled: CompiledProgram, arguments: Arguments, operands: list[Any], brings: bool = True
) -> list[ConcreteArray]:
    """The results of a program for operands: captured values, then the arguments. brings: some may be in other
    memories. NumPy arrays are read in place; a copy is returned of one that is a result."""
    if arguments.roles.donates and not compiled.memory.host and not watching():
        outs = compiled.run_giving(operands, arguments.donated(operands))
    else:
        outs = compiled.run(operands) if brings else compiled.run_there(operands)
    if not compiled.passes_inputs:
        return outs
    foreign = {id(x) for x, given in zip(arguments.leaves, arguments.given, strict=True) if x is not given}
    return [owned(x) if id(x) in foreign else x for x in outs]


def ready_call(
    arguments: Arguments, entry: SignatureEntry, compiled: CompiledProgram, brings: bool, automatic: bool
) -> ReadyCall | None:
    """What later calls with the same key run; None if each call must look at its arguments again.

    automatic: a policy chooses devices.
    """
    # the key does not say whether arrays on the host were put there
    looks = (arguments.away or config.watched) and any(is_concrete(x) and memory_of(x) is None for x in arguments.given)
    moves = automatic and not compiled.memory.host
    if looks or moves or arguments.cells or watching():
        return None
    donates = arguments.roles.donates
    if donates and not (compiled.memory.host and not brings and all(map(is_plain, arguments.given))):
        return None
    out_tree = None if entry.out_tree.spec.is_leaf() else entry.out_tree.maker()
    run = _with_cells(entry, _with_places(entry, compiled.run if brings else compiled.caller()))
    if donates:
        run = donating(arguments.roles.name, run, arguments.donated_leaves())
    return run, out_tree, compiled.passes_inputs, None


def _with_places(entry: SignatureEntry, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return run if entry.places is None else lambda leaves: entry.placed(run(leaves))


def _with_cells(entry: SignatureEntry, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return run if entry.cells is None else lambda leaves: entry.returned(run(entry.operands(leaves)))


def check_results(outs: Sequence[Any], name: str, program: Program, args: Sequence[Any]) -> None:
    """With debug_nans or debug_infs: if a result has such a value, run the program again op by op, which raises
    NanError with the user's line where one is first made."""
    found = refused(outs) if watching() else ""
    if found:
        interpret(inline_calls(program), args)
        raise NanError(
            f"{name} returned {found} that no operation made: it came in with the arguments or a constant.",
            "Look at what is passed in, and at the constants that the function uses.",
        )
