"""How many operations of MLX the benchmark programs are: counted in graphs, beside some written by hand for MLX.

`python -m benchmarks.mlx_calls` prints for each program the kernels of its plan, the functions that are traced, what
the host steps through, operations and views in the graph, all nodes after mx.compile, and the operations of a program
written by hand, in brackets of one that checks bounds as NumPy and JAX do. A view (a reshape, a transposition, a
broadcast) computes nothing. Graphs are those for a GPU, where functions of float32 are MLX's own, and sums of all of an
array one operation; they are made, and not run. Nothing is timed: MLX on Linux says nothing of a Mac.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import rlx
from benchmarks.mlx_programs import careful
from benchmarks.mlx_programs import programs as by_hand
from benchmarks.programs import Program, programs

VIEWS = frozenset(
    "AsStrided Broadcast ExpandDims Flatten Reshape Slice Split Squeeze StopGradient Transpose Unflatten View".split()
)


class Counts(NamedTuple):
    """Of a program on the device: kernels of its plan, traced functions, loops that the host steps through, host steps,
    operations and views of its graphs, and their nodes after mx.compile; each step of a loop once."""

    kernels: int
    traced: int
    loops: int
    host_steps: int
    operations: int
    views: int
    compiled: int


def names_of(arrays: Sequence[Any]) -> list[str]:
    """The operations that arrays of MLX wait for."""
    from mlx import core as mx

    text = io.StringIO()
    mx.export_to_dot(text, *arrays)
    lines = [line for line in text.getvalue().splitlines() if "rectangle" in line]
    return [line.split('label ="')[1].split('"')[0] for line in lines]


def counted(names: Sequence[str]) -> tuple[int, int]:
    """Operations and views."""
    views = sum(name.partition(" ")[0] in VIEWS for name in names)
    return len(names) - views, views


def _needed(part: Any) -> dict[Any, None]:
    """The buffers that have to be there when a part begins."""
    written: set[Any] = set(part.constants)
    found: dict[Any, None] = {}
    for kernel in part.kernels:
        found.update((b, None) for b in kernel.reads if b not in written)
        written.update(kernel.writes)
    return found


def _function_of(part: Any, buffers: Sequence[Any]) -> Any:
    """A part as a function of the arrays of these buffers."""
    return lambda *arrays: part.traced(dict(zip(buffers, arrays, strict=True)))


def counts_of(program: Program) -> Counts:
    """What a program is on a GPU."""
    from rlx.backends.mlx.library import UNITS, MlxDevice, at_work, computing_on, dtype_of_memory, mx
    from rlx.backends.mlx.program import traced_parts

    function, arguments = program.build(rlx, np.random.default_rng(0))
    with rlx.default_device("mlx"):
        found = rlx.inspect(function)(*arguments)
    plan: Any = found.executable.function
    operations = views = compiled = 0
    # graphs that are not computed may be a GPU's on every machine
    with computing_on(MlxDevice("gpu", UNITS[0].stream)), at_work():
        for part in traced_parts(plan):
            dtypes = {b: dtype_of_memory(b.dtype) for b in _needed(part)}
            given = {b: mx.zeros((b.nbytes // dtype.size,), dtype) for b, dtype in dtypes.items()}
            mx.eval(*given.values())
            more = counted(names_of(part.traced(given)))
            operations, views = operations + more[0], views + more[1]
            compiled += len(names_of(mx.compile(_function_of(part, list(given)))(*given.values())))
    loops, host = len(plan.host_loops), len(plan.host_steps)
    return Counts(len(found.plan.kernels), plan.traced, loops, host, operations, views, compiled)


def counts_by_hand(program: Program, written: Mapping[str, Any] = by_hand) -> tuple[int, int] | None:
    """Operations and views of the program that is written for MLX; None where there is none."""
    from mlx import core as mx

    if program.name not in written:
        return None
    _, arguments = program.build(rlx, np.random.default_rng(0))
    given = rlx.tree.map(mx.array, arguments)
    mx.eval(given)
    return counted(names_of(rlx.tree.leaves(written[program.name](mx)(*given))))


def report() -> str:
    """The table."""
    lines = [
        "| program | kernels | traced | loops | host steps | operations | views | compiled | by hand | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for program in programs:
        c, hand, same = counts_of(program), counts_by_hand(program), counts_by_hand(program, careful)
        beside = ["", ""] if hand is None else [str(hand[0]), f"{c.operations / hand[0]:.2f}"]
        if same is not None:
            beside = [f"{beside[0]} ({same[0]})", f"{beside[1]} ({c.operations / same[0]:.2f})"]
        row = [program.name, c.kernels, c.traced, c.loops, c.host_steps, c.operations, c.views, c.compiled, *beside]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(report())


if __name__ == "__main__":
    main()
