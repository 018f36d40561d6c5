"""How long a fresh process needs for the first result of a saved program, once rlx is imported.

    python -m benchmarks.first_result [--processes N] [--profile] [PROGRAM ...]

Each program is saved with its object code, and N processes without a cache of compiled kernels load and call it once:
`rlx.load_exported(path, trust=True)(*arguments)`, from after `import numpy, rlx` until the results are NumPy arrays.
Python's bytecode is there, as in an installation. A row shows medians of the time that passed and of the processor time
that the process took, of the former the part that goes by until the name `rlx.load_exported` is loaded, and the least
and largest; the bar is on the median of the time that passed. Start it on a machine that does nothing else; the load is
printed. --profile prints what one such process spends its processor time in.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from benchmarks.goals import FIRST
from benchmarks.profile_trust import load
from benchmarks.programs import programs

PROGRAMS = ("softmax_rows", "layer_norm_gradient", "convolution_gradient", "transformer_gradient")
HEADINGS = ("program", "wall", "processor", "loading", "least", "largest", "bar", "")
ALONE = """
import json, pickle, sys, time
import numpy as np, rlx
path, arguments, profiles = sys.argv[1], pickle.load(open(sys.argv[2], "rb")), sys.argv[3:] == ["profile"]
def first():
    result = load()(path, trust=True)(*arguments)
    return [np.asarray(leaf) for leaf in rlx.tree.leaves(result)]
def load():
    global loaded
    found = rlx.load_exported
    loaded = time.perf_counter()
    return found
if profiles:
    import cProfile
    profile = cProfile.Profile(time.process_time)
    profile.runcall(first)
    profile.print_stats("cumulative")
else:
    begun, used = time.perf_counter(), time.process_time()
    first()
    print(json.dumps([time.perf_counter() - begun, time.process_time() - used, loaded - begun]))
"""

Row = dict[str, Any]


def saved(name: str, folder: Path) -> list[str]:
    """The files of a program with object code, and of its arguments."""
    program = next(p for p in programs if p.name == name)
    function, arguments = program.build(rlx, np.random.default_rng(0))
    arguments = rlx.tree.map(np.asarray, arguments)
    paths = [folder / f"{name}.rlx", folder / f"{name}.arguments"]
    rlx.export(function)(*arguments).save(paths[0], object_code=True)
    paths[1].write_bytes(pickle.dumps(arguments))
    return [str(path) for path in paths]


def alone(files: list[str], *how: str) -> str:
    """What a fresh process without a cache prints."""
    environment = {**os.environ, "RLX_CACHE": "0", "PYTHONPYCACHEPREFIX": str(Path(files[0]).parent)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", ALONE, *files, *how]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def measure(name: str, files: list[str], processes: int) -> Row:
    """Medians over processes, in milliseconds."""
    alone(files)  # writes the bytecode
    found = [json.loads(alone(files)) for _ in range(processes)]
    columns = [sorted(1e3 * seconds for seconds in column) for column in zip(*found, strict=True)]
    wall, processor, loading = map(statistics.median, columns)
    least, largest = columns[0][0], columns[0][-1]
    return {"program": name, "times": (wall, processor, loading, least, largest)}


def text(rows: list[Row]) -> str:
    """The table."""
    table = [HEADINGS]
    for row in rows:
        times = (f"{ms:.1f} ms" for ms in row["times"])
        table.append((row["program"], *times, str(FIRST), FIRST.verdict(row["times"][0])))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)) for row in table)


def main() -> None:
    """Print the table, or profiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help=f"of benchmarks/programs.py; by default {', '.join(PROGRAMS)}")
    parser.add_argument("--processes", type=int, default=9)
    parser.add_argument("--profile", action="store_true", help="of one process for each program")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = {name: saved(name, Path(folder)) for name in options.programs or PROGRAMS}
        if options.profile:
            for name, paths in files.items():
                alone(paths)  # writes the bytecode
                print(f"{name}\n{alone(paths, 'profile')}")
            return
        print(f"load before: {load()}")
        print(text([measure(name, paths, options.processes) for name, paths in files.items()]))
        print(f"load after: {load()}")


if __name__ == "__main__":
    main()
