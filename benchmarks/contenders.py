"""The libraries that run a program in turn in one process: their first calls, their times, their memory."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.programs import Program
from benchmarks.torch_programs import leaves, torch_programs

__all__ = ["Contender", "contenders", "measure"]

ROUND_SECONDS = 0.05
SEED = 0
# a result further than this from rlx's, relative to its norm, is another result
TOLERANCE = 1e-2


class Contender:
    """A library's version of a program: its arguments on its own arrays, its first call, its times."""

    def __init__(self, call: Callable[..., Any], arguments: tuple[Any, ...], wait: Callable[[Any], Any]) -> None:
        self.call, self.arguments, self.wait = call, arguments, wait
        self.times: list[float] = []
        start = time.perf_counter()
        self.result = wait(call(*arguments))
        self.cold = time.perf_counter() - start

    def seconds(self, repeats: int) -> float:
        """Mean seconds of `repeats` calls in a row."""
        start = time.perf_counter()
        for _ in range(repeats):
            result = self.call(*self.arguments)
        self.wait(result)
        return (time.perf_counter() - start) / repeats

    @property
    def median(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.times)


def _jitted(program: Program, library: Any) -> Contender:
    """The program jitted by a library with JAX's names."""
    function, arguments = program.build(library, np.random.default_rng(SEED))
    arguments = library.tree.map(library.numpy.asarray, arguments)
    return Contender(library.jit(function), arguments, library.block_until_ready)


def _torch(program: Program, rlx: Any, torch: Any, wrapper: Callable[..., Any]) -> Contender:
    """The program in PyTorch."""
    _, arguments = program.build(rlx, np.random.default_rng(SEED))
    arguments = rlx.tree.map(lambda leaf: torch.from_numpy(np.array(leaf)), arguments)
    return Contender(torch_programs[program.name](torch, wrapper), arguments, lambda result: result)


def contenders(program: Program, libraries: dict[str, Any]) -> Iterator[tuple[str, Contender]]:
    """Each library's version, by the name in tables; making one makes its first call."""
    rlx, torch = libraries["rlx"], libraries.get("torch")
    yield "rlx", _jitted(program, rlx)
    yield "jax", _jitted(program, libraries["jax"])
    if torch is not None and program.name in torch_programs:
        yield "torch", _torch(program, rlx, torch, lambda function: function)
        torch.compiler.reset()
        yield "torch.compile", _torch(program, rlx, torch, torch.compile)
    if program.numpy is not None:
        _, arguments = program.build(rlx, np.random.default_rng(SEED))
        yield "numpy", Contender(program.numpy, arguments, lambda result: result)


def distance(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest relative distance between corresponding leaves."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            raise AssertionError(f"results differ in shape: {a.shape} and {b.shape}")
        wide, other = a.astype(np.float64), b.astype(np.float64)
        worst = max(worst, float(np.linalg.norm(wide - other) / (np.linalg.norm(other) + 1e-30)))
    return worst


def temporary_bytes(program: Program, libraries: dict[str, Any]) -> dict[str, int]:
    """Bytes of temporaries in a call of rlx's and JAX's program: arguments and results are not among them."""
    compiled = {}
    for name in ("rlx", "jax"):
        function, arguments = program.build(libraries[name], np.random.default_rng(SEED))
        compiled[name] = libraries[name].jit(function).lower(*arguments).compile()
    executable = compiled["rlx"]._compiled.executable
    return {
        # more than the plan's arena: arenas of loops' bodies and scratch of every thread are in it
        "rlx": 0 if executable is None else int(executable._table.arena),
        "jax": int(compiled["jax"].memory_analysis().temp_size_in_bytes),
    }


def measure(program: Program, libraries: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Run the contenders of one program in turn: seconds and bytes by library, and how far results are from rlx's."""
    there = dict(contenders(program, libraries))
    warm = sum(c.seconds(1) for c in there.values()) / len(there)
    repeats = max(1, min(5000, int(ROUND_SECONDS / warm)))
    gc.collect()
    for _ in range(rounds):
        for contender in there.values():
            contender.times.append(contender.seconds(repeats))
    results = {name: [np.asarray(leaf) for leaf in leaves(c.result)] for name, c in there.items()}
    differences = {name: distance(found, results["rlx"]) for name, found in results.items() if name != "rlx"}
    return {
        "name": program.name,
        "median": {name: c.median for name, c in there.items()},
        "cold": {name: c.cold for name, c in there.items() if name != "numpy"},
        "memory": temporary_bytes(program, libraries),
        "difference": differences,
        "wrong": [name for name, value in differences.items() if not value < TOLERANCE],
        "rounds": {name: c.times for name, c in there.items()},
    }
