"""rlx bench: a function's time, alone and beside other libraries that take turns with it in one process."""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import rlx
from rlx.cli.inspect import work_fields
from rlx.cli.libraries import (
    LIBRARIES,
    Version,
    jax_width,
    random_arguments,
    require_installed,
    version_of,
    wide_types,
)
from rlx.cli.mistakes import FAILED, FINE, Mistake, told
from rlx.cli.output import as_json, duration, rate, table
from rlx.cli.target import function_of, load, require_arguments, target_of, there
from rlx.cli.type_text import arguments_of
from rlx.errors import bytes_text
from rlx.testing import tolerance

__all__ = ["Parity", "add_options", "bench", "parity", "percentile"]

ROUNDS, MOST_ROUNDS = 10, 10_000
TURN_SECONDS = 0.02  # a library's turn in a round has so many calls as fit, but not more than
MOST_CALLS = 1_000
SHORT_SECONDS = 1e-3  # calls that are shorter come behind one that is not timed, as in a loop
# the error that a whole program may make, as a multiple of that of a few operations, and at most
PROGRAM_ERRORS, LARGEST_ERROR = 100, 0.05


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `rlx bench` takes."""
    parser.add_argument("target", metavar="FILE:FUNCTION", help="a Python file or a module, and a function in it")
    parser.add_argument("--args", action="append", default=[], metavar="TYPES", help='such as "f32[64,32] i32[]"')
    parser.add_argument("--against", default="", metavar="LIBRARIES", help=f"some of {','.join(LIBRARIES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"turns of each (default {ROUNDS})")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the arguments' random values (default 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")


class Parity(NamedTuple):
    """How far results are from rlx's, relative to their norm, how far they may be, and what else is not equal."""

    error: float
    allowed: float
    difference: str

    @property
    def holds(self) -> bool:
        """Whether the results are the same."""
        return not self.difference and self.error <= self.allowed


def bench(options: argparse.Namespace) -> int:
    """Time a function, compare its results with those of other libraries, and print both."""
    if not 1 <= options.rounds <= MOST_ROUNDS:
        raise Mistake(f"--rounds is {options.rounds}.", f"Write 1 to {MOST_ROUNDS}.")
    if options.seed < 0:
        raise Mistake(f"--seed is {options.seed}.", "Write 0 or more.")
    against = list(dict.fromkeys(filter(None, (name.strip() for name in options.against.split(",")))))
    require_installed(against)
    target = target_of(options.target)
    types = [a for text in options.args for a in arguments_of(text)]
    with there(target, options.json):
        module = load(target)
        function = function_of(module, target)
        require_arguments(function, types)
        try:
            arguments = random_arguments(types, options.seed)
        except (MemoryError, ValueError) as error:
            raise Mistake(f"There is no memory for the arguments: {error}", "Write smaller sizes.") from None
        with jax_width("jax" in against and wide_types(arguments)):
            versions = [version_of(name, target, module, arguments) for name in ("rlx", *against)]
            results, first = _first_calls(versions, options.target)
            times = _timed(versions, options.rounds)
        work = rlx.inspect(function)(*types).work  # now: a first call compiles
        parities = {v.library: parity(results[0], found) for v, found in zip(versions[1:], results[1:], strict=True)}
    rows = [_fields(v, f, t, work, parities.get(v.library)) for v, f, t in zip(versions, first, times, strict=True)]
    if options.json:
        print(as_json({
            "target": options.target, "args": options.args, "rounds": options.rounds, "seed": options.seed,
            "threads": rlx.get_num_threads(), "work": work_fields(work), "libraries": rows,
        }))  # fmt: skip
    else:
        _show(rows, work, options.rounds)
    return FINE if all(p.holds for p in parities.values()) else FAILED


# ------------------------------------------------------------------ time
def _first_calls(versions: Sequence[Version], where: str) -> tuple[list[list[np.ndarray]], list[float]]:
    """The leaves of each library's result, and the seconds that its first call takes."""
    results, seconds = [], []
    for version in versions:
        start = time.perf_counter()
        try:
            with told(where):
                result = version.run()
        except Mistake as error:
            if version.library == "rlx":
                raise
            own = f"{where.rpartition(':')[2]}_{LIBRARIES[version.library]}"
            instead = f"{version.library} needs a version of its own here: write {own}."
            raise Mistake(f"With {version.library}: {error.what}", instead) from None
        seconds.append(time.perf_counter() - start)
        results.append(version.leaves(result))
    return results, seconds


def _timed(versions: Sequence[Version], rounds: int) -> list[list[float]]:
    """Seconds of each library's calls. In each round all have a turn, and another one is the first."""
    calls = [_calls_in_a_turn(version) for version in versions]
    times: list[list[float]] = [[] for _ in versions]
    gc.collect()
    for turn in range(rounds):
        for n in range(len(versions)):
            at = (turn + n) % len(versions)
            times[at] += _turn(versions[at], calls[at])
    return times


def _calls_in_a_turn(version: Version) -> int:
    """How many calls a turn has; by the quickest of a few, as the first ones may be slow."""
    quickest, taken = math.inf, 0.0
    while taken < TURN_SECONDS:
        start = time.perf_counter()
        version.run()
        seconds = time.perf_counter() - start
        quickest, taken = min(quickest, seconds), taken + seconds
    return max(1, min(MOST_CALLS, int(TURN_SECONDS / quickest)))


def _turn(version: Version, calls: int) -> list[float]:
    clock, run, found = time.perf_counter, version.run, []
    if TURN_SECONDS / calls < SHORT_SECONDS:
        run()
    for _ in range(calls):
        start = clock()
        run()
        found.append(clock() - start)
    return found


def percentile(sorted_values: Sequence[float], part: float) -> float:
    """The value that a part of the values is not above.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5), percentile([1.0, 2.0, 3.0, 4.0], 0.95)
    (2.0, 4.0)
    """
    return sorted_values[max(0, math.ceil(part * len(sorted_values)) - 1)]


# ------------------------------------------------------------------ parity
def parity(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> Parity:
    """How far the arrays of two results are from one another. Dtypes may differ: the narrower one counts.

    >>> parity([np.ones(3, np.float32)], [np.ones(3)]).holds, parity([np.ones(3)], [np.zeros(3)]).holds
    (True, False)
    """
    if len(ours) != len(theirs):
        return Parity(math.inf, 0.0, f"{len(theirs)} arrays instead of {len(ours)}")
    return max(map(_array_parity, ours, theirs), key=_badness, default=Parity(0.0, 0.0, ""))


def _badness(found: Parity) -> float:
    """The error as a part of what is allowed."""
    if found.difference:
        return math.inf
    return found.error / found.allowed if found.allowed else math.inf * found.error if found.error else 0.0


def _array_parity(x: np.ndarray, y: np.ndarray) -> Parity:
    if x.shape != y.shape:
        return Parity(math.inf, 0.0, f"shape {y.shape} instead of {x.shape}")
    allowed = min(PROGRAM_ERRORS * max(tolerance(x.dtype), tolerance(y.dtype)), LARGEST_ERROR)
    wide = np.complex128 if "c" in (x.dtype.kind, y.dtype.kind) else np.float64
    a, b = np.atleast_1d(x.astype(wide)), np.atleast_1d(y.astype(wide))
    finite = np.isfinite(a)
    if not (finite == np.isfinite(b)).all() or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return Parity(math.inf, allowed, "NaN or infinity in other places")
    norm = float(np.linalg.norm(a[finite]))
    distance = float(np.linalg.norm(a[finite] - b[finite]))
    return Parity(distance / norm if norm else distance, allowed, "")


# ------------------------------------------------------------------ what is shown
def _fields(version: Version, first: float, times: list[float], work: Any, found: Parity | None) -> dict[str, Any]:
    ordered = sorted(times)
    middle = percentile(ordered, 0.5)
    known = work.exact and middle > 0
    fields: dict[str, Any] = {
        "library": version.library,
        "first_call_seconds": first,
        "p50_seconds": middle,
        "p95_seconds": percentile(ordered, 0.95),
        "calls": len(times),
        "gflops": (work.flops + work.transcendentals) / middle / 1e9 if known else None,
        "gigabytes_per_second": work.bytes / middle / 1e9 if known else None,
    }
    if found is not None:
        fields["parity"] = {
            "holds": found.holds, "error": found.error, "allowed": found.allowed, "difference": found.difference,
        }  # fmt: skip
    return fields


def _show(rows: Sequence[dict[str, Any]], work: Any, rounds: int) -> None:
    lines = [("library", "first call", "p50", "p95", "times rlx", "GFLOP/s", "GB/s", "parity")]
    for row in rows:
        times = [duration(row[f"{name}_seconds"]) for name in ("first_call", "p50", "p95")]
        ratio = f"{row['p50_seconds'] / rows[0]['p50_seconds']:.2f}"
        rates = [rate(row["gflops"]), rate(row["gigabytes_per_second"])]
        lines.append((row["library"], *times, ratio, *rates, _said(row.get("parity"))))
    print(table(lines, (0, 7)))
    counted = f"{work.flops:.4g} flops, {work.transcendentals:.4g} transcendentals, {bytes_text(work.bytes)} moved"
    print(f"{rounds} rounds in turn, {rlx.get_num_threads()} threads; by rlx's count a call is {counted}")
    print("first calls find what caches on disk hold: RLX_CACHE=0 for one that compiles")


def _said(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    if found["holds"]:
        return f"ok ({found['error']:.1e})"
    why = found["difference"] or f"{found['error']:.1e} > {found['allowed']:.0e}"
    return f"failed: {why}"
