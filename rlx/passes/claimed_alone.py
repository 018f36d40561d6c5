"""Pairs of blocks that pass values which a kernel does not need: both become kernels, or both equations.

A block that begins a derivative keeps values for the block that ends it (rlx.ops.blocks). If the second block is a
kernel, it reads none of these values. If nothing else reads them, the first block is also a kernel. Otherwise it
becomes its equations, inside loops as well as outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlx.ir.program import Equation, Program, Var
from rlx.trace.lower import inline_calls, map_regions

__all__ = ["claim_alone"]

Pass = Callable[[Program], Program]


def claim_alone(program: Program, pruned: Pass) -> Program:
    """A program whose blocks are all taken, with single kernels or equations in place of blocks that pass values on.

    pruned: removes unread values from a program, including results of loops.
    """
    if not any(map(_hands_on, _blocks(program))):
        return program
    program = _without_operands(program)
    if any(_hands_on(e) for region in program.regions() for e in _blocks(region)):
        program = pruned(program)
    program = _without_results(program)
    return inline_calls(program, lambda equation: not _hands_on(equation))


def _hands_on(equation: Equation) -> bool:
    return equation.primitive.claimable and equation.params.get("alone") is not None


def _blocks(program: Program) -> Iterator[Equation]:
    """Blocks of a program, and of those in its loops and branches."""
    yield from (e for e in program.equations if e.primitive.claimable)
    for region in program.regions():
        yield from _blocks(region)


def _alone(equation: Equation) -> Equation:
    """The block as its kernel computes it."""
    program: Program = equation.params["alone"]
    params = {name: value for name, value in equation.params.items() if name != "alone"}
    inputs, outputs = equation.inputs[: len(program.inputs)], equation.outputs[: len(program.outputs)]
    return Equation(equation.primitive, inputs, {**params, "program": program}, outputs, equation.origin)


def _changed(program: Program, function: Pass, equations: list[Equation]) -> Program:
    return program.replace(equations=[map_regions(e, function) for e in equations])


def _without_operands(program: Program) -> Program:
    """Drop operands that a block's kernel does not read, if the block has only the kernel's results."""

    def narrow(equation: Equation) -> Equation:
        whole = _hands_on(equation) and len(equation.outputs) == len(equation.params["alone"].outputs)
        return _alone(equation) if whole else equation

    return _changed(program, _without_operands, list(map(narrow, program.equations)))


def _without_results(program: Program) -> Program:
    """Drop results that a block's kernel does not return, if nothing reads them."""
    read = {a for e in program.equations for a in e.inputs if isinstance(a, Var)} | {*program.outputs}

    def narrow(equation: Equation) -> Equation:
        if not _hands_on(equation) or read & {*equation.outputs[len(equation.params["alone"].outputs) :]}:
            return equation
        return _alone(equation)

    return _changed(program, _without_results, list(map(narrow, program.equations)))
