"""The writer of the nodes and tensors of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rlx.backends.claims import Claims
from rlx.errors import UnsupportedError
from rlx.ir.extended import key_dtype_of
from rlx.ir.program import Atom, Equation, Literal, Program
from rlx.ir.types import TensorType, is_complex, is_float
from rlx.ops.matrices import real_dtype
from rlx.passes.decompose_routines import decompose_routines
from rlx.standalone.spelling import refused

__all__ = [
    "FORMAT",
    "WIDE",
    "Name",
    "Names",
    "Parts",
    "Rule",
    "Writer",
    "flat",
    "has_operator",
    "infos_of",
    "named",
    "paired",
    "working_dtype",
]

FORMAT = "ONNX"
WIDE = (np.dtype(np.int32), np.dtype(np.int64))
ROUTINES = Claims(routines=frozenset())  # factorisations, solves and transforms become loops and products


class Parts(NamedTuple):
    """The names of the real and the imaginary part of a complex array: ONNX has no operations on complex numbers."""

    real: str
    imag: str


Name = Any  # a text, or Parts
Names = list[Name]
Rule = Callable[["Writer", Equation, Names], Names]


def flat(names: Iterable[Name]) -> list[str]:
    """Names with the two of a complex array one after the other."""
    return [text for name in names for text in (name if isinstance(name, Parts) else (name,))]


def paired(texts: Iterable[str], types: Iterable[TensorType]) -> Names:
    """The inverse of `flat`, for arrays of these types."""
    left = iter(texts)
    return [Parts(next(left), next(left)) if is_complex(t.dtype) else next(left) for t in types]


def number_of(dtype: Any) -> int:
    try:
        return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    except (KeyError, ValueError, TypeError):
        found = None
    raise UnsupportedError(f"ONNX has no {dtype}." if found is None else "")


@cache
def has_operator(kind: str, opset: int) -> bool:
    """Whether a version of ONNX's operator set has an operator."""
    try:
        return not onnx.defs.get_schema(kind, opset, "").deprecated
    except onnx.defs.SchemaError:
        return False


def working_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which runtimes compute with numbers of a real dtype."""
    if is_float(dtype):
        return dtype if dtype.itemsize >= 4 else np.dtype(np.float32)
    return dtype if dtype in WIDE else np.dtype(np.int64)


def named(letter: str, types: Iterable[Any]) -> Names:
    """Names of arguments or results by number: `x0`, or `x0_real` and `x0_imag` of a complex array."""

    def name(number: int, type: Any) -> Name:
        whole = f"{letter}{number}"
        return Parts(f"{whole}_real", f"{whole}_imag") if is_complex(type.dtype) else whole

    return [name(number, type) for number, type in enumerate(types)]


def infos_of(names: Iterable[Name], types: Iterable[TensorType]) -> list[Any]:
    """Names with their types, for the inputs and outputs of a graph."""
    found = []
    for name, type in zip(names, types, strict=True):
        number = number_of(real_dtype(type.dtype))
        found += [helper.make_tensor_value_info(text, number, type.shape) for text in flat([name])]
    return found


class Writer:
    """Nodes and tensors of a graph; subgraphs share names and tensors.

    `rule_of` returns the writer of an equation, or raises UnsupportedError. `opset`: the version of the operator set.
    `any_size`: the graph is for symbolic sizes, so numbers that depend on sizes must not be attributes.
    """

    def __init__(
        self,
        rule_of: Callable[[Equation], Rule],
        opset: int,
        any_size: bool,
        numbers: Any,
        tensors: dict[Any, Any] | None = None,
    ) -> None:
        self.rule_of, self.opset, self.any_size = rule_of, opset, any_size
        self.numbers = numbers
        self.nodes: list[Any] = []
        self.tensors: dict[Any, Any] = {} if tensors is None else tensors
        self.equation: Equation | None = None  # the one that is being written
        self.inside = False  # whether the graph is a node's

    def fresh(self) -> str:
        """A new name."""
        return f"v{next(self.numbers)}"

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The result of a node."""
        return self.several(kind, inputs, 1, **attributes)[0]

    def several(self, kind: str, inputs: Sequence[str], count: int, **attributes: Any) -> Names:
        """The results of a node."""
        if not has_operator(kind, self.opset) and self.equation is not None:
            since = next(v for v in range(self.opset, onnx.defs.onnx_opset_version() + 1) if has_operator(kind, v))
            reason = f"it needs {kind}, which opset {self.opset} lacks; write opset={since} or more"
            raise refused(self.equation, FORMAT, reason)
        results = [self.fresh() for _ in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), results, **attributes))
        return results

    def constant(self, value: Any, dtype: Any = None) -> Name:
        """The name of a constant."""
        array = np.asarray(value, dtype)
        if is_complex(array.dtype):
            return Parts(self.constant(array.real.copy()), self.constant(array.imag.copy()))
        keys = key_dtype_of(array.dtype)
        if keys is not None:  # operations on keys are operations on their words
            array = np.ascontiguousarray(keys.words_of(array))
        number_of(array.dtype)  # refuses dtypes that ONNX lacks
        content: Any = array.tobytes() if array.size < 1 << 12 else id(value)
        key: Any = (array.dtype.str + array.dtype.name, array.shape, content)
        if self.any_size and array.dtype.kind == "i":  # equal only for some sizes, perhaps
            key = len(self.tensors)
        if key not in self.tensors:
            self.tensors[key] = numpy_helper.from_array(array, f"c{len(self.tensors)}")
        return self.tensors[key].name

    def integers(self, values: Sequence[int]) -> str:
        """A list of integers as an operator's input."""
        return self.constant(np.asarray(list(values), np.int64))

    def spread(self, x: str, shape: Sequence[int]) -> str:
        """An array, broadcast to a shape."""
        return self.node("Expand", x, self.integers(shape))

    def empty(self, type: TensorType) -> Name:
        """An array without elements."""
        if not self.any_size:
            return self.constant(np.zeros(type.shape, type.dtype))
        zero = [numpy_helper.from_array(np.zeros(1, real_dtype(type.dtype))) for _ in range(1 + is_complex(type.dtype))]
        texts = [self.node("ConstantOfShape", self.integers(type.shape), value=value) for value in zero]
        return paired(texts, [type])[0]

    def cast(self, x: str, dtype: Any) -> str:
        """Convert to another dtype."""
        return self.node("Cast", x, to=number_of(dtype))

    def widened(self, x: str, dtype: np.dtype) -> str:
        """An array in the dtype in which runtimes compute: int32, int64, float32 or float64."""
        working = working_dtype(dtype)
        return x if working == dtype else self.cast(x, working)

    def narrowed(self, x: str, dtype: np.dtype) -> str:
        """The inverse of `widened`."""
        return x if working_dtype(dtype) == dtype else self.cast(x, dtype)

    def reduction(self, kind: str, x: str, axes: Sequence[int]) -> str:
        """A reduction without the reduced axes, which opset 17 takes as an attribute except for sums."""
        if self.opset < 18 and kind != "ReduceSum":
            return self.node(kind, x, axes=list(axes), keepdims=0)
        return self.node(kind, x, self.integers(axes), keepdims=0)

    def line(self, size: int, axis: int, rank: int) -> str:
        """The numbers from 0 up to a size along one of several axes, as int64."""
        bounds = [self.constant(n, np.int64) for n in (0, size, 1)]
        shape = self.integers([-1 if a == axis else 1 for a in range(rank)])
        return self.node("Reshape", self.node("Range", *bounds), shape)

    def bits(self, x: str, dtype: np.dtype) -> str:
        """The bits of numbers, read in another dtype of the same width."""
        return self.node("BitCast", x, to=number_of(dtype))

    def shifted(self, x: str, dtype: np.dtype) -> str:
        """Integers shifted right by 0, 1, ... to their width, along a new last axis, without sign."""
        unsigned = np.dtype(f"u{dtype.itemsize}")
        column = self.node("Unsqueeze", x if dtype == unsigned else self.cast(x, unsigned), self.integers([-1]))
        places = self.constant(np.arange(8 * dtype.itemsize, dtype=unsigned))
        return self.node("BitShift", column, places, direction="RIGHT")

    def unpacked(self, x: str, dtype: np.dtype) -> str:
        """The bits of integers, the lowest first, along a new last axis, as int64."""
        one = self.constant(1, np.dtype(f"u{dtype.itemsize}"))
        return self.cast(self.node("BitwiseAnd", self.shifted(x, dtype), one), np.int64)

    def packed(self, bits: str, dtype: np.dtype) -> str:
        """The inverse of `unpacked`, in halves of 32 bits: onnxruntime's sums of int64 lose digits beyond 2^53."""
        places = np.arange(8 * dtype.itemsize)

        def half(first: int) -> str:
            weights = np.where(places // 32 == first // 32, np.int64(1) << places % 32, 0)
            return self.reduction("ReduceSum", self.node("Mul", bits, self.constant(weights)), [-1])

        found = half(0)
        if dtype.itemsize == 8:
            found = self.node("Add", found, self.node("Mul", half(32), self.constant(1 << 32, np.int64)))
        return self.cast(found, dtype)

    def program(self, program: Program, inputs: Sequence[Name]) -> Names:
        """The names of a program's results."""
        program = decompose_routines(program, ROUTINES)
        names: dict[Any, Name] = dict(zip(program.inputs, inputs, strict=True))
        for variable, value in program.constants:
            names[variable] = self.constant(value.numpy() if hasattr(value, "numpy") else value)

        def read(atom: Atom) -> Name:
            return self.constant(atom.value) if isinstance(atom, Literal) else names[atom]

        for equation in program.equations:
            self.equation = equation
            found = self.rule_of(equation)(self, equation, list(map(read, equation.inputs)))
            names.update(zip(equation.outputs, found, strict=True))
        return list(map(read, program.outputs))

    def inner(self) -> Writer:
        """The writer of a node's subgraph."""
        inner = Writer(self.rule_of, self.opset, self.any_size, self.numbers, self.tensors)
        inner.equation, inner.inside = self.equation, True
        return inner

    def inputs(self, types: Iterable[TensorType]) -> Names:
        """New names for arrays of these types."""
        return [Parts(self.fresh(), self.fresh()) if is_complex(t.dtype) else self.fresh() for t in types]

    def renamed(self, names: Iterable[Name], types: Iterable[TensorType]) -> list[Any]:
        """The outputs of a subgraph: other names of the same arrays, with their types."""
        types = list(types)
        return infos_of(paired([self.node("Identity", text) for text in flat(names)], types), types)

    def graph(self, program: Program, prefix: Sequence[Name] = (), extra: Sequence[Any] = ()) -> Any:
        """A program as a node's subgraph: its writer, inputs and outputs. Its first inputs are `prefix`, names of the
        outer graph; `extra` precedes its own inputs."""
        inner = self.inner()
        own = program.input_types[len(prefix) :]
        names = self.inputs(own)
        outputs = inner.program(program, [*prefix, *names])
        return inner, [*extra, *infos_of(names, own)], inner.renamed(outputs, program.output_types)
