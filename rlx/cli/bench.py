"""rlx bench: a function's time, alone or alternating with other libraries in one process."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx
from rlx.bench.harness import MOST_ROUNDS, ROUNDS, Result, result_of
from rlx.bench.parity import parity
from rlx.bench.timing import times_in_turn
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
from rlx.cli.output import as_json, duration, rate
from rlx.cli.target import function_of, load, require_arguments, target_of, there
from rlx.cli.type_text import arguments_of
from rlx.columns import aligned
from rlx.errors import bytes_text

__all__ = ["add_options", "bench"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx bench`."""
    parser.add_argument("target", metavar="FILE:FUNCTION", help="a Python file or a module, and a function in it")
    parser.add_argument("--args", action="append", default=[], metavar="TYPES", help='such as "f32[64,32] i32[]"')
    parser.add_argument("--against", default="", metavar="LIBRARIES", help=f"some of {','.join(LIBRARIES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"turns of each (default {ROUNDS})")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the arguments' random values (default 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def bench(options: argparse.Namespace) -> int:
    """Time a function, compare its results with other libraries, and print both."""
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
            times = times_in_turn([version.run for version in versions], options.rounds)
        work = rlx.inspect(function)(*types).work  # now: a first call compiles
        parities = [None, *(parity(results[0], found) for found in results[1:])]
    names = [version.library for version in versions]
    found = [result_of(n, t, f, work, p) for n, t, f, p in zip(names, times, first, parities, strict=True)]
    rows = [_fields(result) for result in found]
    if options.json:
        print(as_json({
            "target": options.target, "args": options.args, "rounds": options.rounds, "seed": options.seed,
            "threads": rlx.get_num_threads(), "work": work_fields(work), "libraries": rows,
        }))  # fmt: skip
    else:
        _show(rows, work, options.rounds)
    return FINE if all(p is None or p.holds for p in parities) else FAILED


# ------------------------------------------------------------------ first calls
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


# ------------------------------------------------------------------ output
def _fields(result: Result) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "library": result.name,
        "first_call_seconds": result.first_call,
        "p50_seconds": result.p50,
        "p95_seconds": result.p95,
        "calls": result.calls,
        "gflops": result.gflops,
        "gigabytes_per_second": result.gbytes,
    }
    found = result.parity
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
    print("\n".join(aligned(lines, (0, 7))))
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
