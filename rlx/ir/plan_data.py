"""Plans as data for files: a table of values, in which each value refers to earlier ones.

The data is an object of JSON: "atoms" are numbers, texts, truth values and None; each of "nodes" is a kind and the
numbers of its parts, in the table of atoms and then nodes; the last node is the plan. Constants of the program
are written as their numbers, so that a file contains them once. The user's source lines and the decisions of fusion
are omitted. Reading returns an equal plan, or raises ValueError for any invalid data. verify_plan checks the plan
itself.
"""

from __future__ import annotations

import base64
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from rlx.ir.collectives import Exchange
from rlx.ir.kernels import (
    Access,
    Await,
    Branch,
    Buffer,
    Collective,
    Contract,
    Instruction,
    Library,
    Loops,
    Operand,
    Plan,
    RowTiles,
    Scan,
    Sort,
    Store,
    While,
)
from rlx.ir.types import dtype_named

__all__ = ["FORM", "Unwritable", "read_plan", "write_plan"]

_CLASSES: tuple[Any, ...] = (
    Access, Await, Branch, Buffer, Collective, Contract, Exchange, Instruction, Library, Loops, Operand, Plan, RowTiles,
    Scan, Sort, Store, While,
)  # fmt: skip
_LEFT_OUT = ("equations", "origins", "report", "unplaced")
_FIELDS = {kind: tuple(f.name for f in fields(kind) if f.name not in _LEFT_OUT) for kind in _CLASSES}
_READERS = {kind: operator.attrgetter(*names) for kind, names in _FIELDS.items()}
# the fields of every node kind: data of another form cannot be read
FORM = ";".join(f"{kind.__name__}({','.join(names)})" for kind, names in _FIELDS.items())
_ATOMS = (bool, int, float, str, type(None))
_MOST_BYTES = 1 << 20  # of an array that is not a constant of the program


class Unwritable(Exception):
    """A plan contains parts that cannot be written: Python functions, or large arrays made by the compiler."""


def write_plan(plan: Plan, constants: Sequence[np.ndarray] = ()) -> bytes:
    """A plan as data; `constants` are the program's. Raises Unwritable if part of the plan cannot be written.

    >>> import rlx
    >>> from rlx.passes.pipeline import lower_to_plan
    >>> plan = lower_to_plan(rlx.make_program(lambda x: x + 1)(rlx.numpy.ones(3)))
    >>> read_plan(write_plan(plan)).kernels[0].sizes == plan.kernels[0].sizes
    True
    """
    writer = _TableWriter(constants)
    writer.number(plan)
    count = len(writer.atoms)
    nodes = [[kind, *(n if n >= 0 else count + ~n for n in numbers)] for kind, numbers in writer.nodes]
    return json.dumps({"atoms": writer.atoms, "nodes": nodes}, separators=(",", ":")).encode()


class _TableWriter:
    """The table of a plan. While it grows, atoms count from 0 and nodes are ~0, ~1, ..."""

    def __init__(self, constants: Sequence[np.ndarray]) -> None:
        self.atoms: list[Any] = []
        self.nodes: list[tuple[str, tuple[int, ...]]] = []
        self._constants = {_place(array): number for number, array in enumerate(constants)}
        self._equal: dict[Any, int] = {}  # by their parts: equal nodes are written once
        self._same: dict[int, tuple[Any, int]] = {}  # by identity, which buffers, kernels and plans have

    def number(self, value: Any) -> int:
        if type(value) in _ATOMS:
            return self._atom(value)
        found = self._same.get(id(value))
        if found is None:
            found = self._same[id(value)] = (value, self._node(value))
        return found[1]

    def _atom(self, value: Any) -> int:
        key = (type(value), repr(value))  # 1, 1.0 and True are three, as 0.0 and -0.0 are two
        if key not in self._equal:
            self._equal[key] = len(self.atoms)
            self.atoms.append(value)
        return self._equal[key]

    def _node(self, value: Any) -> int:
        kind = type(value)
        if kind in _FIELDS:
            return self._add(kind.__name__, _READERS[kind](value), own=kind.__eq__ is object.__eq__)
        if kind is tuple:
            return self._add("tuple", value)
        if isinstance(value, Mapping):
            return self._add("mapping", [x for item in value.items() for x in item])
        if kind is bytes:
            return self._add("bytes", [base64.b64encode(value).decode()])
        if kind is complex:
            return self._add("complex", [value.real, value.imag])
        if isinstance(value, np.dtype):
            return self._add("dtype", [value.name])
        if isinstance(value, np.ndarray):
            return self._array(value)
        raise Unwritable(f"a plan contains {value!r:.80}, a {kind.__name__}")

    def _array(self, array: np.ndarray) -> int:
        number = self._constants.get(_place(array))
        if number is not None:
            return self._add("constant", [number])
        if array.nbytes > _MOST_BYTES:
            raise Unwritable(f"a plan contains an array of {array.nbytes} bytes")
        return self._add("array", [array.dtype, array.shape, np.ascontiguousarray(array).tobytes()])

    def _add(self, kind: str, parts: Sequence[Any], own: bool = False) -> int:
        node = (kind, tuple(map(self.number, parts)))
        if own or node not in self._equal:
            self._equal[node] = ~len(self.nodes)
            self.nodes.append(node)
        return self._equal[node]


def _place(array: np.ndarray) -> tuple[Any, ...]:
    """A key that is equal for arrays over the same memory."""
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype


# ------------------------------------------------------------------ reading
def read_plan(data: bytes | memoryview, constants: Sequence[np.ndarray] = ()) -> Plan:
    """The plan that `write_plan` wrote, of a program with these constants. Raises ValueError for other data."""
    reason = ""
    try:
        said = json.loads(bytes(data))
        table: list[Any] = [x for x in said["atoms"] if type(x) in _ATOMS]
        makers = _makers(constants)
        for kind, *numbers in said["nodes"]:
            if numbers and min(numbers) < 0:
                raise ValueError("a number is negative")
            table.append(makers[kind]([table[n] for n in numbers]))
        if isinstance(table[-1], Plan):
            return table[-1]
        reason = "the last node is not a plan"
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, AttributeError) as error:
        reason = f"{error}"
    raise ValueError(f"The data is not a plan: {reason:.200}")


def _makers(constants: Sequence[np.ndarray]) -> dict[str, Callable[[list[Any]], Any]]:
    """For each kind, a function that builds its value from the parts."""
    makers: dict[str, Callable[[list[Any]], Any]] = {kind.__name__: _maker(kind) for kind in _CLASSES}
    return makers | {
        "tuple": tuple,
        "mapping": lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)),
        "bytes": lambda parts: base64.b64decode(*parts, validate=True),
        "complex": lambda parts: complex(*parts),
        "dtype": lambda parts: dtype_named(*parts),
        "array": _array,
        "constant": lambda parts: constants[parts[0]],
    }


def _maker(kind: Any) -> Callable[[list[Any]], Any]:
    """A function that builds a dataclass from the values of its fields, in the order of FORM."""
    names = _FIELDS[kind]
    left_out = any(f.name in _LEFT_OUT for f in fields(kind))
    if left_out:  # fields behind those that are left out are given by name
        return lambda parts: kind(**dict(zip(names, parts, strict=True)))
    return lambda parts: kind(*parts)


def _array(parts: list[Any]) -> np.ndarray:
    dtype, shape, content = parts
    array = np.frombuffer(content, dtype).reshape(shape)
    array.flags.writeable = False
    return array
