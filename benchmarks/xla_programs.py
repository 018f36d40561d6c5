"""XLA's programs for a GPU, counted from their text: kernels and calls, and the bytes that they read and write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

__all__ = ["Counted", "counted"]

_BITS = re.compile(r"\d+")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%([\w.\-]+) = (.*)$")
_NAME = re.compile(r"%([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
# no kernel: names of values, and control flow, whose computations are counted
_FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id add-dependency opt-barrier"
    " async-update async-done copy-done custom-call-done".split()
)
_PARTS = ("slice", "dynamic-slice", "gather")


class Counted(NamedTuple):
    """Kernels and library calls, and bytes; loops of known length count once for each step.

    open: whether a loop has an unknown length, or branches differ: the first are counted once, the last all.
    """

    kernels: int
    moved_bytes: int
    open: bool

    def plus(self, other: Counted, times: int = 1) -> Counted:
        """The sum, with the other one `times` times."""
        kernels, moved = self.kernels + times * other.kernels, self.moved_bytes + times * other.moved_bytes
        return Counted(kernels, moved, self.open or other.open)


class _Instruction(NamedTuple):
    name: str
    type: str
    operation: str
    inside: str  # of its parentheses
    attributes: str
    root: bool

    @property
    def operands(self) -> list[str]:
        """The names of the operands."""
        return _NAME.findall(self.inside)

    @property
    def nbytes(self) -> int:
        """The bytes of the result."""
        return sum(map(_nbytes, _ARRAY.findall(self.type)))


Computation = dict[str, _Instruction]


def _nbytes(array: tuple[str, str]) -> int:
    dtype, sizes = array
    bits = _BITS.search(dtype)
    count = prod(int(size) for size in sizes.split(",")) if sizes else 1
    return count * (int(bits[0]) if bits is not None else 8) // 8


def _closing(text: str, start: int) -> int:
    """The position of the parenthesis that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if not depth:
            return at
    raise ValueError(f"unbalanced parentheses: {text[start : start + 80]}")


def _parsed(line: str) -> _Instruction | None:
    found = _INSTRUCTION.match(line)
    if found is None:
        return None
    root, name, rest = found.groups()
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    operation, _, tail = rest[end + 1 :].partition("(")
    close = _closing("(" + tail, 0)
    return _Instruction(name, rest[:end], operation, tail[: close - 1], tail[close:], bool(root))


def _computations(text: str) -> tuple[dict[str, Computation], str]:
    """The instructions of each computation by name, and the name of the entry."""
    found: dict[str, Computation] = {}
    entry, current = "", ""
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith((" ", "HloModule")):
            current = _NAME.findall(line)[0]
            found[current] = {}
            entry = current if line.startswith("ENTRY") else entry
        elif current and (instruction := _parsed(line)) is not None:
            found[current][instruction.name] = instruction
    return found, entry


def _called(attributes: str, *keys: str) -> list[str]:
    """The computations that an instruction names under these keys."""
    return [name for key in keys for part in re.findall(rf"\b{key}=(\{{[^}}]*\}}|%[\w.\-]+)", attributes)
            for name in _NAME.findall(part)]  # fmt: skip


def _read_of(fused: Computation, parameter: str, whole: int) -> int:
    """The bytes of a parameter that a fusion reads: of slices and gathers, their results."""
    users = [x for x in fused.values() if parameter in x.operands]
    if users and all(x.operation in _PARTS and x.operands[0] == parameter for x in users):
        return min(whole, sum(x.nbytes for x in users))
    if users and all(x.operation == "dynamic-update-slice" and x.operands[0] == parameter for x in users):
        return 0  # written in place
    return whole


def _written_by(fused: Computation) -> int:
    """The bytes that a fusion writes: of an update in place, the update."""
    (root,) = [x for x in fused.values() if x.root]
    results = [fused[name] for name in root.operands] if root.operation == "tuple" else [root]
    return sum(fused[x.operands[1]].nbytes if x.operation == "dynamic-update-slice" else x.nbytes for x in results)


def _fusion(instruction: _Instruction, computation: Computation, fused: Computation) -> int:
    parameters = {int(x.inside): x.name for x in fused.values() if x.operation == "parameter"}
    read = sum(_read_of(fused, parameters[n], computation[name].nbytes) for n, name in enumerate(instruction.operands))
    return read + _written_by(fused)


def counted(text: str) -> Counted:
    """The kernels of a compiled module, and the bytes of their operands and results."""
    computations, entry = _computations(text)
    return _count(computations, entry)


def _count(computations: Mapping[str, Computation], name: str) -> Counted:
    computation = computations[name]
    total = Counted(0, 0, False)
    for x in computation.values():
        if x.operation == "while":
            trips = _TRIPS.search(x.attributes)
            for body in _called(x.attributes, "body", "condition"):
                total = total.plus(_count(computations, body), int(trips[1]) if trips else 1)
            total = total._replace(open=total.open or trips is None)
        elif x.operation == "conditional":
            for branch in _called(x.attributes, "branch_computations", "true_computation", "false_computation"):
                total = total.plus(_count(computations, branch))._replace(open=True)
        elif x.operation in ("call", "async-start"):
            for inner in _called(x.attributes, "to_apply", "calls", "called_computations"):
                total = total.plus(_count(computations, inner))
        elif x.operation not in _FREE:
            operands = sum(computation[operand].nbytes for operand in x.operands if operand in computation)
            moved = operands + x.nbytes
            if x.operation == "fusion":
                (fused,) = _called(x.attributes, "calls")
                moved = _fusion(x, computation, computations[fused])
            total = total.plus(Counted(1, moved, False))
    return total
