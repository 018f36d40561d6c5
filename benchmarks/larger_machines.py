"""What more threads than this machine has could do for each benchmark program, by Amdahl's law over its kernels.

Run `python -m benchmarks.larger_machines [PROGRAM ...]`. Each kernel is timed on one thread. Its time on n threads is
estimated as that time divided by the number of threads, at most n, that its work can be divided over. Memory bandwidth
and the cost of handing work to threads are left out, so the figures are upper bounds.

`--more-threads` runs the programs on more threads than processors: whether their results have the same bits, and how
much slower they are. RLX_DETERMINISTIC=1 is needed for equal bits of matrix products.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

import rlx
from benchmarks.programs import Program, programs
from rlx.backends.cpu.emit.tiling import tiled
from rlx.backends.cpu.routines.radix_sort import sort_form, suits_radix_sort
from rlx.backends.cpu.runtime.cost import parallel_parts
from rlx.ir.kernels import Contract, Kernel, Library, Loops, RowTiles, Sort
from rlx.profiling.timed_call import TimedCall

__all__ = ["Row", "measured", "most_threads", "table"]

THREADS = (2, 4, 16, 64)
CROWDS = (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 4, 8)
ROUNDS = 15


def most_threads(kernel: Kernel) -> int:
    """The most threads that the work of a kernel is divided over, whatever the machine has.

    1 for routines: those over batches use more threads, so for them this is a lower bound.
    """
    parts = parallel_parts(kernel)
    if isinstance(kernel, Loops) and kernel.chunks > 1:
        return min(parts, kernel.chunks)
    if isinstance(kernel, Loops):
        run = tiled(kernel).kernel
        return min(parts, math.prod(run.sizes[: run.parallel])) if run.parallel else 1
    if isinstance(kernel, RowTiles):
        return min(parts, kernel.count)
    if isinstance(kernel, Sort):
        form = sort_form(kernel, parts, THREADS[-1])
        return max(form.chunks, form.row_tasks) if suits_radix_sort(kernel) else 1
    return parts if isinstance(kernel, Contract) else 1


class Row(NamedTuple):
    """A program: its time on one thread, and the estimated speed-up by threads. serial: seconds in kernels that use one
    thread, by kind of kernel. kernels: how many run in a call."""

    name: str
    seconds: float
    kernels: int
    speedups: Mapping[int, float]
    serial: Mapping[str, float]

    @property
    def slowest_serial(self) -> str:
        """The kind of kernel with the most serial time, with its share of the program's time."""
        kind, seconds = max(self.serial.items(), key=lambda item: item[1], default=("", 0.0))
        return f"{kind} {100 * seconds / self.seconds:.0f} %" if seconds > 0.005 * self.seconds else ""


def measured(program: Program) -> Row:
    """Time the kernels of a program on one thread."""
    fun, arguments = program.build(rlx, np.random.default_rng(0))
    before = rlx.get_num_threads()
    rlx.set_num_threads(1)
    try:
        call = TimedCall(fun, rlx.tree.map(rlx.numpy.asarray, arguments), {})
        runs = [call.run().times for _ in range(ROUNDS)]
    finally:
        rlx.set_num_threads(before)
    medians = [statistics.median(run[n].nanoseconds for run in runs) / 1e9 for n in range(len(call.steps))]
    kernels = [step.kernel for step in call.steps]
    return row_of(program.name, [(k, t) for k, t in zip(kernels, medians, strict=True) if k is not None])


def row_of(name: str, kernels: Sequence[tuple[Kernel, float]]) -> Row:
    """The row of a program from its kernels and their seconds on one thread."""
    seconds = sum(t for _, t in kernels)
    speedups = {n: seconds / sum(t / min(most_threads(k), n) for k, t in kernels) for n in THREADS}
    serial: dict[str, float] = defaultdict(float)
    for kernel, t in kernels:
        if most_threads(kernel) == 1:
            serial[kind(kernel)] += t
    return Row(name, seconds, len(kernels), speedups, serial)


def kind(kernel: Kernel) -> str:
    """A kernel's class with its label, or the routine's name."""
    if isinstance(kernel, Library):
        return kernel.routine.name
    return f"{type(kernel).__name__} {kernel.label}".strip() if isinstance(kernel, Loops) else type(kernel).__name__


def table(rows: Iterable[Row]) -> str:
    """The rows as a table in Markdown."""
    heads = ["program", "one thread, ms", "kernels", *(f"{n} threads" for n in THREADS), "most serial work"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        speedups = (f"{row.speedups[n]:.1f}" for n in THREADS)
        cells = [row.name, f"{1e3 * row.seconds:.2f}", str(row.kernels), *speedups, row.slowest_serial]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


class Crowd(NamedTuple):
    """A program on more threads than processors.

    slowdowns: by threads, the time relative to one thread for each processor. same_bits: of all results.
    """

    name: str
    slowdowns: Mapping[int, float]
    same_bits: bool


def crowded(program: Program) -> Crowd:
    """Run a program on more and more threads, in turn."""
    fun, arguments = program.build(rlx, np.random.default_rng(0))
    given = rlx.tree.map(rlx.numpy.asarray, arguments)
    before = rlx.get_num_threads()
    calls, bits, times = {}, set(), defaultdict(list)
    try:
        for count in (1, *CROWDS):
            rlx.set_num_threads(count)
            rlx.clear_caches()
            calls[count] = rlx.jit(fun)
            bits.add(tuple(np.asarray(x).tobytes() for x in rlx.tree.leaves(calls[count](*given))))
        for _ in range(ROUNDS):
            for count in CROWDS:
                rlx.set_num_threads(count)
                calls[count](*given)
                start = time.perf_counter()
                rlx.block_until_ready(calls[count](*given))
                times[count].append(time.perf_counter() - start)
    finally:
        rlx.set_num_threads(before)
    medians = {count: statistics.median(found) for count, found in times.items()}
    return Crowd(program.name, {n: t / medians[CROWDS[0]] for n, t in medians.items()}, len(bits) == 1)


def main(arguments: Sequence[str]) -> None:
    """Print the table for the named programs, or for all."""
    names = [name for name in arguments if not name.startswith("--")]
    chosen = [program for program in programs if not names or program.name in names]
    if "--more-threads" not in arguments:
        print(table(map(measured, chosen)))
        return
    crowds = [crowded(program) for program in chosen]
    for crowd in crowds:
        slower = ", ".join(f"{n} threads {ratio:.2f}" for n, ratio in crowd.slowdowns.items())
        print(f"{crowd.name}: {slower}; {'the same' if crowd.same_bits else 'DIFFERENT'} bits")
    for count in CROWDS[1:]:
        print(f"{count} threads: geometric mean {statistics.geometric_mean(c.slowdowns[count] for c in crowds):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
