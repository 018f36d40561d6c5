"""Keys become their words: programs of random keys as programs of uint32 arrays with one more axis, the last.

Kernels do not know keys. An operation that moves keys moves their words in the same way. Its batching rule does this,
with the words as the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.extended import KeyDtype
from rlx.ir.program import Equation, Program
from rlx.ir.types import TensorType, is_key, words_type
from rlx.passes.rebuild import bound
from rlx.trace.builder import Builder
from rlx.trace.interpret import Environment, origins_of
from rlx.trace.lower import map_regions
from rlx.trace.primitive import registry, type_of
from rlx.trace.tracing import finish

__all__ = ["keys_to_words"]

_CONVERSIONS = ("random_wrap", "random_unwrap")
# they take any operands unchanged
_INDIFFERENT = ("optimization_barrier", "stop_gradient", "checkpoint_name")


def keys_to_words(program: Program) -> Program:
    """The program with words in place of keys, including inputs and outputs; itself if it has no keys."""
    return _Conversion().run(program)


class _Conversion:
    """One walk over a program and its regions; each is converted once."""

    def __init__(self) -> None:
        self.done: dict[int, tuple[Program, Program]] = {}

    def run(self, program: Program) -> Program:
        """The program with words in place of keys."""
        found = self.done.get(id(program))
        if found is None:
            result = self.rebuilt(program) if _has_keys(program) else program
            found = self.done[id(program)] = program, result
        return found[1]

    def rebuilt(self, program: Program) -> Program:
        """A new program, recorded equation by equation."""
        with Builder(program.name) as builder, origins_of() as inherit:
            env = Environment(program, [builder.input(_converted(t)) for t in program.input_types])
            env.update((v, _constant_words(array)) for v, array in program.constants if is_key(v.type.dtype))
            for equation in program.equations:
                inherit(equation)
                results = self.results(equation, [env.read(a) for a in equation.inputs])
                env.update(zip(equation.outputs, results, strict=True))
            return finish(builder, [env.read(a) for a in program.outputs])

    def results(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """The results of an equation for the words of its operands."""
        if equation.primitive.name in _CONVERSIONS:
            return operands
        if equation.primitive.region:
            return bound(map_regions(equation, self.run), operands)
        keys = [is_key(a.type.dtype) for a in equation.inputs]
        if not any(keys) or equation.primitive.name in _INDIFFERENT:
            return bound(equation, operands)
        return _moved(equation, operands, keys)


def _moved(equation: Equation, operands: Sequence[Any], keys: Sequence[bool]) -> Sequence[Any]:
    """The results of an operation that moves keys, with the words' axis as a batch axis."""
    dims = [type_of(x).ndim - 1 if is_words else None for x, is_words in zip(operands, keys, strict=True)]
    size = next(type_of(x).shape[-1] for x, is_words in zip(operands, keys, strict=True) if is_words)
    out, out_dims = equation.primitive.batch(size, operands, dims, **equation.params)
    if not equation.primitive.multiple:
        out, out_dims = (out,), (out_dims,)
    if equation.primitive.across_words:
        return [registry[equation.primitive.across_words](out[0], axes=(out_dims[0],))]
    return [_words_last(x, d, v.type) for x, d, v in zip(out, out_dims, equation.outputs, strict=True)]


def _words_last(x: Any, dim: int | None, type: TensorType) -> Any:
    """A batch's result with its words along the last axis; for values that are not keys, the first word's result."""
    if dim is None:
        return x
    if is_key(type.dtype):
        rest = tuple(i for i in range(type.ndim + 1) if i != dim)
        return x if dim == type.ndim else registry["transpose"](x, permutation=(*rest, dim))
    shape = type_of(x).shape
    limits = (*shape[:dim], 1, *shape[dim + 1 :])
    first = registry["slice"](x, starts=(0,) * len(shape), limits=limits, strides=(1,) * len(shape))
    return registry["reshape"](first, shape=type.shape)


def _has_keys(program: Program) -> bool:
    made = (v for e in program.equations for v in e.outputs)
    variables = itertools.chain(program.inputs, (v for v, _ in program.constants), made)
    return any(type(v.type.dtype) is KeyDtype for v in variables) or any(map(_has_keys, program.regions()))


def _converted(type: TensorType) -> TensorType:
    return words_type(type) if is_key(type.dtype) else type


def _constant_words(array: Any) -> np.ndarray:
    return array.dtype.words_of(array.numpy())
