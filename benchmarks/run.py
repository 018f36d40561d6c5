"""Time rlx beside JAX, PyTorch where it is installed, and NumPy where that is natural: `make bench`.

    python -m benchmarks.run [--quick] [--only NAME,NAME] [--rounds N] [--json FILE]

Each round runs every library once (A B C A B C ...), so that what else the machine does falls on all alike; a row shows
medians. A first call traces, compiles and runs with an empty disk cache, after each library has compiled something
trivial. Memory is what the compilers of rlx and JAX plan for temporaries. Below the programs stand figures that need a
process of their own. Every figure has a bar (benchmarks/goals.py) beside it, and `missed` where it does not reach it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders import measure
from benchmarks.figures import figures
from benchmarks.programs import programs
from benchmarks.report import figure_rows, program_rows, text

RESULTS = Path(__file__).resolve().parent / "results"
ROUNDS, QUICK_ROUNDS = 7, 3
# rounds of figures that start processes
PROCESS_ROUNDS = 3


def chosen(names: str | None) -> list[str]:
    """The programs and figures that --only names, all by default."""
    there = [*(p.name for p in programs), *figures]
    wanted = there if names is None else names.split(",")
    unknown = set(wanted) - set(there)
    if unknown:
        raise SystemExit(f"nothing is called {', '.join(sorted(unknown))}; there are: {', '.join(there)}")
    return [name for name in there if name in wanted]


def libraries() -> dict[str, Any]:
    """The libraries that are installed, each of which has compiled something trivial."""
    found = {name: importlib.import_module(name) for name in ("rlx", "jax")}
    for library in found.values():
        library.block_until_ready(library.jit(lambda x: x + 1.0)(np.ones(3, np.float32)))
    if importlib.util.find_spec("torch") is not None:
        torch = found["torch"] = importlib.import_module("torch")
        torch.compile(lambda x: x + 1.0)(torch.ones(3))
    return found


def processor() -> str:
    """The processor's name, where the system says it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def machine(found: dict[str, Any]) -> dict[str, Any]:
    """Where and with what the numbers were measured."""
    versions = {name: library.__version__ for name, library in (found | {"numpy": np}).items()}
    where = {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    busy = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    return {"when": datetime.now(UTC).isoformat(timespec="seconds"), **where, "load": busy, **versions}


def measured(selected: list[str], rounds: int, process_rounds: int) -> dict[str, Any]:
    """Everything that is selected, said line by line while it is measured."""
    found = libraries()
    results: dict[str, Any] = {"where": machine(found), "rounds": rounds, "programs": [], "figures": {}}
    for program in programs:
        if program.name in selected:
            results["programs"].append(measure(program, found, rounds))
            times = ", ".join(f"{n} {s * 1e3:.3f} ms" for n, s in results["programs"][-1]["median"].items())
            print(f"{program.name}: {times}", flush=True)
    for name, figure in figures.items():
        if name in selected:
            results["figures"][name] = figure(process_rounds)
            print(f"{name}: measured", flush=True)
    return results


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of programs and figures, separated by commas")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds, one of each process")
    parser.add_argument("--rounds", type=int, help=f"how often each library runs a program (default {ROUNDS})")
    parser.add_argument("--json", type=Path, default=RESULTS / "latest.json", help="where the results go")
    options = parser.parse_args()
    selected = chosen(options.only)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    # cold means cold: disk caches of this run's own, named before the libraries are imported
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        os.environ["RLX_CACHE_DIR"] = f"{cache}/rlx"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{cache}/torch"
        results = measured(selected, rounds, 1 if options.quick else PROCESS_ROUNDS)
    for rows in (program_rows(results["programs"]), figure_rows(results)):
        if len(rows) > 1:
            print(f"\n{text(rows)}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {options.json}")


if __name__ == "__main__":
    main()
