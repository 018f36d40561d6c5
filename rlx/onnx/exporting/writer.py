"""The writer of the nodes and tensors of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from rlx.errors import UnsupportedError
from rlx.ir.extended import key_dtype_of
from rlx.ir.program import Atom, Equation, Literal, Program

__all__ = ["FORMAT", "IR_VERSION", "OPSET", "WIDE", "Names", "Rule", "Writer", "value_info"]

OPSET, IR_VERSION = 21, 10
FORMAT = "ONNX"
WIDE = (np.dtype(np.int32), np.dtype(np.int64))
Names = list[str]
Rule = Callable[["Writer", Equation, Names], Names]


def number_of(dtype: Any) -> int:
    try:
        return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    except (KeyError, ValueError, TypeError):
        found = None
    raise UnsupportedError(f"ONNX has no {dtype}." if found is None else "")


def value_info(name: str, type: Any) -> Any:
    """A name and its type, for inputs and outputs."""
    return helper.make_tensor_value_info(name, number_of(type.dtype), type.shape)


class Writer:
    """Nodes and tensors of a graph; subgraphs share names and tensors.

    `rule_of` returns the writer of an equation, or raises UnsupportedError.
    """

    def __init__(
        self, rule_of: Callable[[Equation], Rule], numbers: Any, tensors: dict[Any, Any] | None = None
    ) -> None:
        self.rule_of = rule_of
        self.numbers = numbers
        self.nodes: list[Any] = []
        self.tensors: dict[Any, Any] = {} if tensors is None else tensors

    def fresh(self) -> str:
        """A new name."""
        return f"v{next(self.numbers)}"

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The result of a node."""
        return self.several(kind, inputs, 1, **attributes)[0]

    def several(self, kind: str, inputs: Sequence[str], count: int, **attributes: Any) -> Names:
        """The results of a node."""
        results = [self.fresh() for _ in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), results, **attributes))
        return results

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of a constant."""
        array = np.asarray(value, dtype)
        keys = key_dtype_of(array.dtype)
        if keys is not None:  # operations on keys are operations on their words
            array = np.ascontiguousarray(keys.words_of(array))
        number_of(array.dtype)  # refuses dtypes that ONNX lacks
        key = (array.dtype.str + array.dtype.name, array.shape, array.tobytes() if array.size < 1 << 12 else id(value))
        if key not in self.tensors:
            self.tensors[key] = numpy_helper.from_array(array, f"c{len(self.tensors)}")
        return self.tensors[key].name

    def integers(self, values: Sequence[int]) -> str:
        """A list of integers as an operator's input."""
        return self.constant(np.asarray(list(values), np.int64))

    def cast(self, x: str, dtype: Any) -> str:
        """Convert to another dtype."""
        return self.node("Cast", x, to=number_of(dtype))

    def program(self, program: Program, inputs: Sequence[str]) -> Names:
        """The names of a program's results."""
        names: dict[Any, str] = dict(zip(program.inputs, inputs, strict=True))
        for variable, value in program.constants:
            names[variable] = self.constant(value.numpy() if hasattr(value, "numpy") else value)

        def read(atom: Atom) -> str:
            return self.constant(atom.value) if isinstance(atom, Literal) else names[atom]

        for equation in program.equations:
            found = self.rule_of(equation)(self, equation, list(map(read, equation.inputs)))
            names.update(zip(equation.outputs, found, strict=True))
        return list(map(read, program.outputs))

    def inner(self) -> Writer:
        """The writer of a node's subgraph."""
        return Writer(self.rule_of, self.numbers, self.tensors)

    def graph(self, program: Program, prefix: Sequence[str] = (), extra: Sequence[Any] = ()) -> Any:
        """A program as a node's subgraph: its writer, inputs and outputs. Its first inputs are `prefix`, names of the
        outer graph; `extra` precedes its own inputs."""
        inner = self.inner()
        own = program.inputs[len(prefix) :]
        names = [self.fresh() for _ in own]
        outputs = inner.program(program, [*prefix, *names])
        fresh = [inner.node("Identity", name) for name in outputs]
        values = [value_info(n, v.type) for n, v in zip(names, own, strict=True)]
        results = [value_info(n, t) for n, t in zip(fresh, program.output_types, strict=True)]
        return inner, [*extra, *values], results
