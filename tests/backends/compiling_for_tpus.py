"""Compiles primitives and benchmark programs for TPUs in a process of its own, which ends if XLA takes too long.

XLA's compiler cannot be interrupted, and for some programs it takes many minutes. `Compiler` therefore sends the name
of a program to a process and waits for a limited time; then it kills the process, and the next program starts another.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from primitive_cases import Case, cases_of
from test_primitives import is_claimed

import rlx
from benchmarks.programs import programs
from rlx.backends import backend_named
from rlx.errors import RlxError

# XLA implements this for TPUs only in 32 bits, or not at all
NARROW = {"float64": "float32", "complex128": "complex64", "int64": "int32", "uint64": "uint32"}
NARROWED = "select_and_scatter_add"


class Compiled(NamedTuple):
    """A program's texts, or the class and the text of the error; both are empty if the time was up."""

    texts: dict[str, str]
    error: str
    message: str
    seconds: float


def is_wide(case: Case) -> bool:
    """Whether an operand has more bits than a TPU computes with."""
    return any(a.dtype.name in NARROW for a in case.arrays)


def samples(name: str) -> list[int]:
    """The claimed samples of a primitive, those of dtypes that a TPU has first."""
    found = [case for case in cases_of(name) if is_claimed(case, backend_named("tpu"))]
    return [case.number for case in sorted(found, key=lambda case: is_wide(case))]


def described(case: Case) -> list[rlx.ShapeDtypeStruct]:
    """The operands; in 32 bits if XLA has no wider form."""
    dtypes = [a.dtype.name for a in case.arrays]
    narrowed = [NARROW.get(d, d) for d in dtypes] if case.primitive.name == NARROWED else dtypes
    return [rlx.ShapeDtypeStruct(a.shape, d) for a, d in zip(case.arrays, narrowed, strict=True)]


def inspect_primitive(name: str, number: int, device: str) -> dict[str, str]:
    case = next(case for case in cases_of(name) if case.number == number)
    with rlx.enable_x64(True):
        return dict(rlx.inspect(case.bind, device=device)(*described(case)).kernels.texts)


def inspect_program(name: str, device: str) -> dict[str, str]:
    given = next(given for given in programs if given.name == name)
    function, arguments = given.build(rlx, np.random.default_rng(0))
    return dict(rlx.inspect(function, device=device)(*arguments).kernels.texts)


def serve(connection: Any) -> None:
    """Compile what arrives until the other side closes."""
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        started = time.perf_counter()
        try:
            texts, error, message = function(*arguments), "", ""
        except RlxError as raised:
            texts, error, message = {}, type(raised).__name__, str(raised)
        connection.send(Compiled(texts, error, message, time.perf_counter() - started))


class Compiler:
    """A process that compiles, started when it is needed."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._process: Any = None
        self._connection: Any = None

    def compile(self, function: Callable[..., dict[str, str]], *arguments: Any) -> Compiled:
        """Call a function of this module in the process, which is killed after `limit` seconds."""
        if self._process is None:
            self._start()
        self._connection.send((function, arguments))
        if self._connection.poll(self.limit):
            return self._connection.recv()
        self.close()
        return Compiled({}, "", "", self.limit)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None
