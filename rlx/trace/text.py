"""The vocabulary of printed programs, and the way from their text back to a Program."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from math import inf, nan
from types import FunctionType
from typing import Any

import numpy as np

from rlx.array import ConcreteArray, array_of_type, asarray_numpy, is_concrete, wrap
from rlx.errors import RlxError
from rlx.ir.extended import KEY_DTYPES
from rlx.ir.program import Origin, Program
from rlx.ir.types import TensorType, dtype_named, is_key, supported_dtypes
from rlx.trace.builder import Builder
from rlx.trace.primitive import registry

_KEYS = {key.name: key for key in KEY_DTYPES.values()}
# names that a printed program may use
__all__ = ["array", "dtype", "inf", "nan", "ndarray", "ops", "program", "tensor", "weak"]


class _NamedPrimitives:
    """Every primitive by its name."""

    def __getattr__(self, name: str) -> Any:
        try:
            return registry[name]
        except KeyError:
            raise AttributeError(f"there is no primitive {name!r}") from None

    def __dir__(self) -> list[str]:
        return sorted(registry)


ops = _NamedPrimitives()


def dtype(name: str) -> Any:
    """The dtype of a name; including dtypes of ml_dtypes and of random keys."""
    if name in _KEYS:
        return _KEYS[name]
    return dtype_named(name)


def tensor(text: str) -> TensorType:
    """The TensorType that prints as `text`.

    >>> tensor("weak float32[2,3]").weak
    True
    """
    # a string annotation is quoted once more where annotations are not evaluated
    found = re.fullmatch(r"(weak )?([\w<>]+)\[([\d,]*)\]", text.strip("'\""))
    if found is None:
        raise RlxError(f"{text!r} is not the text of a tensor type.", 'Write for instance "float32[2,3]".')
    weak, name, sizes = found.groups()
    return TensorType(tuple(int(n) for n in sizes.split(",") if n), dtype(name), bool(weak))


def array(values: Any, name: str) -> np.ndarray:
    """A small array."""
    return np.array(values, dtype(name))


def ndarray(shape: tuple[int, ...], name: str, content: str) -> np.ndarray:
    """An array, or random keys, from the bytes in hexadecimal."""
    return np.frombuffer(bytes.fromhex(content), _record_of(dtype(name))).reshape(shape)


def _record_of(dtype: Any) -> np.dtype:
    """The dtype in memory."""
    return dtype.record if is_key(dtype) else dtype


def weak(value: Any, name: str) -> ConcreteArray:
    """A literal that yields to the dtypes of other operands."""
    return ConcreteArray(np.asarray(value, dtype(name)), True)


def _literal_of(type: np.dtype) -> Callable[[Any], np.ndarray]:
    def literal(value: Any) -> np.ndarray:
        """A number of this dtype, which does not yield to the dtypes of other operands."""
        return np.asarray(value, type)

    return literal


# float32(2.0), int32(1), bool_(True)...
for _dtype in supported_dtypes:
    _name = "bool_" if _dtype.kind == "b" else _dtype.name
    globals()[_name] = _literal_of(_dtype)
    __all__.append(_name)


def program(function: Any) -> Any:
    """Decorator: the Program of a function whose annotations are its input types.

    Keyword-only parameters are constants, with their values as defaults. `@program("name")` names
    the program differently from the function.

    >>> import rlx
    >>> @program
    ... def double(x: "float32[3]"):
    ...     return ops.add(x, x)
    >>> double
    @program
    def double(x0: "float32[3]"):
        v0 = ops.add(x0, x0)  # float32[3] ...
        return (v0,)
    """
    if isinstance(function, str):
        return lambda f: _record(f, function)
    return _record(function, function.__name__)


def _record(function: FunctionType, name: str) -> Program:
    parameters = inspect.signature(function).parameters.values()
    arguments = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    constants = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    with Builder(name) as builder:
        builder.at(Origin("<program>", function.__code__.co_firstlineno, name))
        inputs = [builder.input(tensor(p.annotation)) for p in arguments]
        held = {p.name: builder.input(tensor(p.annotation)) for p in constants}
        results = function(*inputs, **held)
        recorded, captured = builder.close(results if isinstance(results, (tuple, list)) else (results,))
    if captured:
        raise RlxError(f"The printed program {name} uses values that are not its own.")
    count = len(inputs)
    arrays = [_constant(p.default, tensor(p.annotation)) for p in constants]
    pairs = zip(recorded.inputs[count:], arrays, strict=True)
    return recorded.replace(inputs=recorded.inputs[:count], constants=pairs)


def _constant(value: Any, type: TensorType) -> ConcreteArray:
    if is_concrete(value):
        return value
    return array_of_type(value, type) if is_key(type.dtype) else wrap(asarray_numpy(value))


def program_from_text(text: str, bindings: Mapping[str, Any] | None = None) -> Program:
    """The program that `rlx.ir.show.show_program` printed.

    `bindings`: the values of its free names (`show_bindings` of the program that was printed).
    """
    names: dict[str, Any] = dict(bindings or {})
    exec(compile(text, "<program>", "exec", dont_inherit=True), names)
    programs = [value for value in names.values() if isinstance(value, Program)]
    if not programs:
        raise RlxError("The text contains no program.", "Pass a result of rlx.ir.show.show_program.")
    return programs[-1]
