"""Blocks: calls that a backend may have a kernel for, and derivatives that are blocks again."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rlx.ir.program import Equation, Program, Var, dead_code, substitute
from rlx.ir.types import TensorType
from rlx.ops.call import CallLike, call
from rlx.ops.families import instantiate
from rlx.ops.linear_rule import linear_call
from rlx.ops.regions import batch_front, is_zero, keep
from rlx.ops.shape import reshape
from rlx.trace.interpret import interpret
from rlx.trace.lower import map_regions
from rlx.trace.primitive import primitive, type_of
from rlx.trace.replay import BlockDerivative, BlockFunction, blocks
from rlx.trace.tracing import trace_program
from rlx.trees import tree

__all__ = ["block"]

_GRADIENT = "_gradient"  # the suffix of names of blocks that are derivatives


@primitive
class block(CallLike):
    """A call that a backend may have a kernel for, by its name; elsewhere it is replaced by its equations.

    params: program; name; attributes: the function's static arguments by name, and under "operands" the names of the
    operands. alone: if equations pass values to one another that a kernel does not need: the results and operands of
    a kernel, which are the first ones. Transforms see the equations of the program, unless the function defines how it
    is batched, or that its derivative is a block (see rlx.trace.replay.block). A custom derivative rule is an equation
    of the program.
    """

    claimable = True

    def evaluate(self, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run op by op, as outside programs."""
        return tuple(interpret(params["program"], args))

    def jvp(
        self,
        t: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        name: str,
        attributes: dict[str, Any],
        alone: Program | None = None,
    ) -> Any:
        """The derivative of the equations; if the function names a block that begins its derivative, of that block."""
        known = blocks.get(name)
        if alone is None and known is not None and known.derivative is not None and len(program.outputs) == 1:
            found = _by_blocks(t, known.derivative, primals, tangents, name, attributes)
            if found is not None:
                return found
        return t.jvp_walk(program, primals, tangents)

    def split(self, t: Any, equation: Equation, unknown: Sequence[bool]) -> tuple[list[Equation], list[Equation]]:
        """Split as a call."""
        params = {name: equation.params[name] for name in ("program", "name")}
        return call.split(t, Equation(call, equation.inputs, params, equation.outputs, equation.origin), unknown)

    def transpose(self, t: Any, cotangents: Sequence[Any], *inputs: Any, program: Program, **params: Any) -> list[Any]:
        """The transpose of the equations."""
        return t.backward_walk(program, inputs, cotangents)

    def batch(
        self,
        t: Any,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        axis_name: Any,
        *,
        program: Program,
        name: str,
        attributes: dict[str, Any],
        alone: Program | None = None,
    ) -> Any:
        """The function's batching rule, if it has one; else the batch of the equations."""
        known = blocks.get(name)
        if alone is None and known is not None and known.batch is not None and axis_name is None:
            found = known.batch(known.function, inputs, dims, attributes)
            if found is not None:
                return found
        found = _by_one_call(t, size, inputs, dims, program, name, attributes, alone)
        return t.batch_walk(program, size, inputs, dims, axis_name) if found is None else found

    def lower(self, k: Any, *values: Any, program: Program, name: str, attributes: dict[str, Any], **_: Any) -> Any:
        return k.library(name, values, program.output_types, attributes, program)


# ------------------------------------------------------------------ batches as blocks
def _by_one_call(
    t: Any,
    size: int,
    inputs: Sequence[Any],
    dims: Sequence[int | None],
    program: Program,
    name: str,
    attributes: Mapping[str, Any],
    alone: Program | None,
) -> Any:
    """A batch of calls as one call of folded operands; None if the function does not fold them.

    If the equations pass values on, these are the equations of the batch, of the original operands: the block has both.
    """
    behind = alone is not None and name.endswith(_GRADIENT)
    known = blocks.get(name.removesuffix(_GRADIENT) if behind else name)
    if known is None or known.fold is None:
        return None
    names = attributes["operands"]
    if alone is None and len(names) != len(inputs):  # constants of the function follow the operands
        return None
    batched = [d is not None for d in dims]
    values, count = batch_front(inputs, dims, batched, size), len(names)
    folded = known.fold(names, values[:count], batched[:count], size)
    if folded is None:
        return None
    types = [type_of(x) for x in folded]
    whole = _gradient_of(t, known, types, attributes) if behind else _staged(known.function, types, names, attributes)
    results = (program if alone is None else alone).output_types
    if whole is None or any(
        math.prod(a.shape) != size * math.prod(b.shape) for a, b in zip(whole.output_types, results, strict=True)
    ):
        return None
    if alone is None:
        outs, wide = block.bind(*folded, program=whole, name=name, attributes=attributes), ()
    else:
        inner, wide = _of_batch(t, program, size, batched, whole)
        outs = block.bind(*folded, *values, program=inner, name=name, attributes=attributes, alone=whole)
    made = [reshape(x, shape=(size, *r.shape)) for x, r in zip(outs, results, strict=False)]
    more = [0 if w else None for w in wide[len(results) :]]
    return [*made, *outs[len(results) :]], [*(0 for _ in made), *more]


def _of_batch(
    t: Any, program: Program, size: int, batched: Sequence[bool], whole: Program
) -> tuple[Program, Sequence[bool]]:
    """The equations of a batch, after operands of one call that they do not read; the first results are that call's.

    Also returns which results are batched.
    """
    count, results = len(whole.inputs), len(whole.outputs)
    forced = [n < results for n in range(len(program.outputs))]
    inner, wide = t.batch(program, size, batched, forced, None)

    def compute(*values: Any) -> list[Any]:
        outs = interpret(inner, values[count:])
        first = (reshape(x, shape=ty.shape) for x, ty in zip(outs, whole.output_types, strict=False))
        return [*first, *outs[results:]]

    made, captured = trace_program(compute, [*whole.input_types, *inner.input_types])
    assert not captured, "programs are closed"
    return _without_lines(made), wide


def _gradient_of(
    t: Any, known: BlockFunction, types: Sequence[TensorType], attributes: Mapping[str, Any]
) -> Program | None:
    """The results of a gradient's kernel, of operands of these types."""
    assert known.derivative is not None
    names = attributes["operands"][: -1 - len(known.derivative.results)]
    ahead = _staged(known.derivative.ahead, types[: len(names)], names, attributes)
    if ahead is None:
        return None
    return _Halves.of(t, ahead, [name in attributes["wanted"] for name in names]).alone()


# ------------------------------------------------------------------ derivatives by blocks
def _by_blocks(
    t: Any,
    derivative: BlockDerivative,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    name: str,
    attributes: Mapping[str, Any],
) -> Any:
    """The result and its tangent, from a block with the residuals of a linear call whose transpose is also a block.

    Both pass on the residuals of the equations and the operands of a kernel; those that remain unused are not computed
    in the end.
    """
    ahead = _call_of(derivative.ahead, [type_of(x) for x in primals], attributes["operands"], attributes)
    if ahead is None:
        return None
    moving = [not is_zero(x) for x in tangents]
    halves = _Halves.of(t, ahead.params["program"], moving)
    outs = block.bind(*primals, **{**ahead.params, "program": halves.known, "alone": ahead.params["program"]})
    values = [*primals, *outs]
    given = ahead.params["attributes"]
    names = given["operands"]
    behind = {
        "name": name + _GRADIENT,
        "attributes": {
            **given, "operands": (*names, *derivative.results, "cotangent"), "wanted": tuple(keep(names, moving)),
        },
    }  # fmt: skip
    (tangent,) = linear_call.bind(
        *values,
        *map(instantiate, keep(tangents, moving)),
        program=halves.forward(),
        backward=halves.backward(behind),
        residuals=len(values),
    )
    return (outs[0],), (tangent,)


def _call_of(
    function: Callable[..., Any], types: Sequence[TensorType], names: Sequence[str], attributes: Mapping[str, Any]
) -> Equation | None:
    """The call of a block with operands of these names, and the static arguments of another call."""
    if len(names) != len(types):  # constants of the function follow the operands
        return None
    taken = inspect.signature(function).parameters
    static = {name: value for name, value in attributes.items() if name in taken}

    def call_it(*values: Any) -> list[Any]:
        return tree.leaves(function(**dict(zip(names, values, strict=True)), **static))

    staged, captured = trace_program(call_it, types)
    (equation,) = staged.equations
    return equation if not captured and len(equation.inputs) == len(types) else None


def _staged(
    function: Callable[..., Any], types: Sequence[TensorType], names: Sequence[str], attributes: Mapping[str, Any]
) -> Program | None:
    """The program of a block's call with operands of these names and the static arguments of another call."""
    equation = _call_of(function, types, names, attributes)
    return None if equation is None else equation.params["program"]


def _without_lines(program: Program) -> Program:
    """The program without source lines in its equations: the lines of the call are used."""
    placed = (map_regions(e, _without_lines) for e in program.equations)
    return program.replace(equations=[Equation(e.primitive, e.inputs, e.params, e.outputs) for e in placed])


class _Halves(NamedTuple):
    """The derivative of a program whose first result alone has one, split in two.

    known: operands -> results, then residuals of the equations. linear: residuals, then operands at `forwarded`, then
    tangents -> the tangent of the first result. transposed: with its cotangent instead of the tangents -> cotangents.
    results: of the program.
    """

    known: Program
    linear: Program
    transposed: Program
    forwarded: tuple[int, ...]
    results: int

    @classmethod
    def of(cls, t: Any, program: Program, moving: Sequence[bool]) -> _Halves:
        count, results = sum(moving), len(program.outputs)
        moved, kept = t.jvp(program, moving)
        assert kept == (True, *[False] * (results - 1)), "only the first result has a derivative"
        unknown = [*[False] * len(program.inputs), *[True] * count]
        halves = t.split(moved, unknown, [*[False] * results, True])
        behind = len(halves.linear.inputs) - count
        transposed = t.transpose(halves.linear, [*[False] * behind, *[True] * count])
        known, linear, transposed = map(_without_lines, (halves.known, halves.linear, transposed))
        return cls(known, linear, transposed, halves.forwarded, results)

    def _operands(self, inputs: Sequence[Var]) -> tuple[list[Var], list[Var], list[Var]]:
        """Variables for the inputs of a half: the operands, the residuals, and the inputs at the end."""
        kept = len(self.known.outputs) - self.results
        operands = [Var(v.type) for v in self.known.inputs]
        for number, var in zip(self.forwarded, inputs[kept:], strict=False):
            operands[number] = var
        return operands, list(inputs[:kept]), list(inputs[kept + len(self.forwarded) :])

    def _results(self) -> list[Var]:
        return [Var(a.type) for a in self.known.outputs[: self.results]]

    def forward(self) -> Program:
        """Operands, results, residuals, tangents -> the tangent of the first result."""
        operands, kept, tangents = self._operands(self.linear.inputs)
        return self.linear.replace(inputs=(*operands, *self._results(), *kept, *tangents))

    def backward(self, params: Mapping[str, Any]) -> Program:
        """Operands, results, residuals, a cotangent -> cotangents of the moving operands; one block."""
        operands, kept, cotangents = self._operands(self.transposed.inputs)
        program = self.transposed.replace(inputs=(*operands, *self._results(), *cotangents, *kept))
        inputs = [Var(v.type) for v in program.inputs]
        first = len(inputs) - len(kept)
        outputs = tuple(Var(a.type) for a in program.outputs)
        equation = Equation(block, tuple(inputs), {"program": program, **params, "alone": self.alone()}, outputs)
        ahead = first - len(cotangents)
        return Program((*inputs[:ahead], *inputs[first:], *inputs[ahead:first]), [equation], outputs, (), program.name)

    def alone(self) -> Program:
        """Operands, results, a cotangent -> cotangents of the moving operands; the residuals are recomputed."""
        operands, kept, cotangents = self._operands(self.transposed.inputs)
        again = dict(zip(kept, self.known.outputs[self.results :], strict=True))
        again.update(zip(operands, self.known.inputs, strict=True))
        behind = substitute(self.transposed, again)
        equations = [*self.known.equations, *behind.equations]
        inputs = (*self.known.inputs, *self._results(), *cotangents)
        constants = (*self.known.constants, *behind.constants)
        return dead_code(Program(inputs, equations, behind.outputs, constants, behind.name))
