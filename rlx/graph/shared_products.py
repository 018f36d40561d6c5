"""Products of one operand with several matrices, as one product with the matrices side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.program import Atom, Equation, Program, Var
from rlx.passes.rebuild import rebuilt
from rlx.trace.primitive import registry, type_of

__all__ = ["FuseSharedInputMatMul"]


class FuseSharedInputMatMul:
    """A pass: x @ v, x @ w, ... become slices of x @ [v w ...], for matrices that are constants or inputs.

    constants_only: leave matrices alone that are not known, which every run would have to copy.
    Run ConstantFolding after it, so that known ones are joined once.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> from rlx import fusion
    >>> g = rlx.Graph.trace(lambda x, v, w: (x @ v, x @ w), *[jnp.ones((4, 4))] * 3)
    >>> joined = opt.run_passes(g, [fusion.FuseSharedInputMatMul(constants_only=False)])
    >>> [equation.primitive.name for equation in joined.program.equations].count("dot_general")
    1
    """

    name = "fuse_shared_input_matmul"

    def __init__(self, constants_only: bool = True) -> None:
        self.constants_only = constants_only

    def run(self, program: Program) -> Program:
        """The program with fewer products; regions are left alone."""
        groups = self._groups(program)
        group_of = {equation: group for group in groups for equation in group}
        results: dict[Equation, Any] = {}
        matrices = dict(program.constants)
        places = {v: number for number, v in enumerate(program.inputs)}
        given: list[Any] = []

        def read(atom: Atom) -> Any:
            assert isinstance(atom, Var)
            return given[places[atom]] if atom in places else matrices[atom]

        def replace(equation: Equation, operands: Sequence[Any]) -> Sequence[Any] | None:
            if equation not in group_of:
                return None
            if equation not in results:
                group = group_of[equation]
                joined = _joined(equation, operands[0], [read(e.inputs[1]) for e in group])
                results.update(zip(group, joined, strict=True))
            return (results[equation],)

        return rebuilt(program, replace, given)

    def _groups(self, program: Program) -> list[list[Equation]]:
        known = {v for v, _ in program.constants}
        allowed = known if self.constants_only else known | set(program.inputs)
        found: dict[Any, list[Equation]] = {}
        for equation in program.equations:
            if equation.primitive.name != "dot_general":
                continue
            x, matrix = equation.inputs
            plain = (((x.type.ndim - 1,), (0,)), ((), ()))
            if matrix in allowed and matrix.type.ndim == 2 and equation.params["dimension_numbers"] == plain:
                key = (x, equation.params["preferred_dtype"], equation.params.get("tf32", False))
                found.setdefault(key, []).append(equation)
        return [group for group in found.values() if len(group) > 1]


def _joined(equation: Equation, x: Any, matrices: Sequence[Any]) -> list[Any]:
    """The products of x with each matrix, as slices of one product."""
    wide = registry["concatenate"](*matrices, axis=1)
    product = equation.primitive.bind(x, wide, **equation.params)
    shape = type_of(product).shape
    parts, start = [], 0
    for matrix in matrices:
        stop = start + type_of(matrix).shape[1]
        lead = (0,) * (len(shape) - 1)
        parts.append(
            registry["slice"](
                product, starts=(*lead, start), limits=(*shape[:-1], stop), strides=(1,) * len(shape)
            )
        )
        start = stop
    return parts
