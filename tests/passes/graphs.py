"""Small programs of ad hoc primitives, and how to run their plans on the reference backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.backends.reference.run import run_plan
from rlx.ir.kernels import Loops, Plan
from rlx.ir.options import LoweringOptions
from rlx.ir.program import Equation, Program, Var
from rlx.ir.types import TensorType
from rlx.ir.verify_plan import verify_plan
from rlx.lowering.lowered import LoweredValue
from rlx.passes.pipeline import lower_program


class Step:
    """A primitive whose lowering is one function."""

    def __init__(self, name: str, lower: Callable[..., Any]) -> None:
        self.name = name
        self._lower = lower

    def lower(self, k: Any, *values: Any, **params: Any) -> Any:
        return self._lower(k, *values, **params)

    def effect(self, **params: Any) -> bool:
        return False


class Graph:
    """Builds a Program; `x = graph.op(name, lower, type, *operands)` appends an equation."""

    def __init__(self) -> None:
        self.inputs: list[Var] = []
        self.equations: list[Equation] = []

    def input(self, shape: Sequence[int], dtype: Any = np.float32) -> Var:
        self.inputs.append(Var(TensorType(tuple(shape), dtype)))
        return self.inputs[-1]

    def op(self, name: str, lower: Callable[..., Any], out: Any, *operands: Var) -> Any:
        """`out`: a shape (dtype of the first operand), a TensorType, or a list of those."""
        outs = out if isinstance(out, list) else [out]
        types = [t if isinstance(t, TensorType) else TensorType(tuple(t), operands[0].type.dtype) for t in outs]
        variables = tuple(Var(t) for t in types)
        self.equations.append(Equation(Step(name, lower), operands, {}, variables))
        return list(variables) if isinstance(out, list) else variables[0]

    def map(self, name: str, function: Callable[..., Any], *operands: Var, dtype: Any = None) -> Var:
        """An elementwise equation over the broadcast shape."""
        shape = np.broadcast_shapes(*(v.type.shape for v in operands))
        type = TensorType(shape, dtype or operands[0].type.dtype)
        return self.op(name, lambda k, *xs: k.elementwise(function, xs, type), type, *operands)

    def reduce(self, op: str, x: Var, axes: Sequence[int]) -> Var:
        shape = tuple(n for a, n in enumerate(x.type.shape) if a not in axes)
        return self.op(f"reduce_{op}", lambda k, v: k.reduce(op, v, axes), shape, x)

    def reshape(self, x: Var, shape: Sequence[int]) -> Var:
        return self.op("reshape", lambda k, v: k.reshape(v, shape), shape, x)

    def transpose(self, x: Var, permutation: Sequence[int]) -> Var:
        shape = tuple(x.type.shape[p] for p in permutation)
        return self.op("transpose", lambda k, v: k.transpose(v, permutation), shape, x)

    def program(self, *outputs: Var) -> Program:
        return Program(self.inputs, self.equations, outputs)

    def plan(self, *outputs: Var, **options: Any) -> Plan:
        return lower_program(self.program(*outputs), LoweringOptions(**options))

    def run(self, outputs: Sequence[Var], *arrays: np.ndarray, **options: Any) -> list[np.ndarray]:
        return execute(self.plan(*outputs, **options), [v.type for v in outputs], arrays)


def execute(plan: Plan, types: Sequence[TensorType], arrays: Sequence[np.ndarray]) -> list[Any]:
    """Run a plan; results as arrays of the given types."""
    verify_plan(plan)
    flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
    outputs = [np.empty(t.size, t.dtype) for t in types]
    run_plan(plan, flat, outputs)
    return [o.reshape(t.shape) for o, t in zip(outputs, types, strict=True)]


def run_lowering(lower: Callable[..., Any], out: Any, *arrays: np.ndarray, **options: Any) -> Any:
    """Run one equation on arrays."""
    graph = Graph()
    operands = [graph.input(a.shape, a.dtype) for a in arrays]
    result = graph.op("test", lower, out, *operands)
    if isinstance(result, list):
        return graph.run(result, *arrays, **options)
    return graph.run([result], *arrays, **options)[0]


def loops(plan: Plan) -> list[Loops]:
    return [k for k in plan.kernels if isinstance(k, Loops)]


def ops_of(kernel: Loops) -> list[str]:
    return [i.op for i in kernel.instructions]


__all__ = ["Graph", "LoweredValue", "execute", "loops", "ops_of", "run_lowering"]
