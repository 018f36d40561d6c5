"""check: a condition that must hold, and the message if it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.array import ConcreteArray
from rlx.errors import CheckError
from rlx.ir.program import Origin, Program
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import convert, subtract
from rlx.ops.comparison import greater
from rlx.ops.families import to_front
from rlx.ops.indexing import dynamic_slice
from rlx.ops.reduction import argmax
from rlx.ops.shape import reshape
from rlx.trace.origins import current_origin
from rlx.trace.primitive import Linear, Primitive, Zero, primitive, type_of
from rlx.trees import tree

__all__ = [
    "DivisionByZeroError",
    "FailedCheckError",
    "Failure",
    "NaNError",
    "OOBError",
    "check",
    "has_check",
    "report",
]


class FailedCheckError(CheckError):
    """A user's `check` failed."""


class NaNError(CheckError):
    """An operation produced a NaN."""


class DivisionByZeroError(CheckError):
    """A divisor was zero."""


class OOBError(CheckError):
    """An index was out of bounds."""


@dataclass(frozen=True)
class Failure:
    """A way to fail: its category, a format string, the structure of the values that it is filled with, and where."""

    category: type[CheckError]
    text: str
    structure: tree.TreeDef
    origin: Origin | None = None

    @property
    def count(self) -> int:
        """The number of arrays that fill it."""
        return self.structure.num_leaves

    def message(self, payload: Sequence[Any]) -> str:
        """The text with the values inserted."""
        args, kwargs = tree.unflatten(self.structure, [ConcreteArray(np.asarray(x)) for x in payload])
        return self.text.format(*args, **kwargs)

    def error(self, payload: Sequence[Any]) -> CheckError:
        """The exception, which names the line of the check."""
        return self.category(self.message(payload), line=f"  at {self.origin}" if self.origin else None)

    def encode_key(self) -> str:
        """The content, for structural hashes."""
        return repr((self.category.__name__, self.text, str(self.structure), self.origin))


def chosen(failures: Sequence[Failure], code: int, payload: Sequence[Any]) -> tuple[Failure, Sequence[Any]]:
    """The failure of a code (counted from 1), and its part of the common payload."""
    start = sum(f.count for f in failures[: code - 1])
    failure = failures[code - 1]
    return failure, payload[start : start + failure.count]


@primitive
class check(Primitive):
    """Raises unless its code is 0; the code k > 0 means failure k.

    Operands: the code, an int32 scalar; the values of all failures. params: failures; debug: nothing is raised, only
    checkify looks.
    """

    multiple = True

    def type(self, code: TensorType, *payload: TensorType, failures: tuple[Failure, ...], debug: bool) -> Any:
        return ()

    def effect(self, **params: Any) -> bool:
        return True

    def reference(self, code: np.ndarray, *payload: np.ndarray, failures: tuple[Failure, ...], debug: bool) -> Any:
        if code > 0 and not debug:
            failure, values = chosen(failures, int(code), payload)
            raise failure.error(values)
        return ()

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """The check of the primals."""
        self.bind(*primals, **params)
        return (), ()

    def transpose(self, cotangents: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        return tuple(Zero(x.type) if isinstance(x, Linear) else None for x in inputs)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        """The check of the first lane that fails, or of one that does not."""
        front = [to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        lane = argmax(greater(front[0], 0), axis=0, index_dtype=np.dtype(np.int32))
        self.bind(*[_row(x, lane) for x in front], **params)
        return (), ()

    def lower(self, k: Any, *values: Any, failures: tuple[Failure, ...], debug: bool) -> Any:
        if debug:
            return ()
        raise CheckError(
            f"A check is compiled, but no call of checkify collects its failures: {failures[0].text!r}.",
            "Jit the function that checkify returns, rlx.jit(checkify.checkify(f)), and inspect its error.",
            line=f"  at {failures[0].origin}" if failures[0].origin else None,
        )


def report(holds: Any, message: str) -> None:
    """A condition that fails in functions of checkify, and is ignored elsewhere."""
    failure = Failure(FailedCheckError, f"{message} (`check` failed)", tree.structure(((), {})), current_origin())
    code = subtract(np.int32(1), convert(holds, dtype=np.dtype(np.int32)))
    check(code, failures=(failure,), debug=True)


def _row(x: Any, lane: Any) -> Any:
    shape = type_of(x).shape[1:]
    row = dynamic_slice(x, lane, *[np.int32(0)] * len(shape), sizes=(1, *shape))
    return reshape(row, shape=shape)


def has_check(program: Program) -> bool:
    """Whether a program, or one inside it, has a check that may raise."""
    for e in program.equations:
        if e.primitive is check and not e.params["debug"]:
            return True
        for value in e.params.values():
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Program) and has_check(part):
                    return True
    return False
