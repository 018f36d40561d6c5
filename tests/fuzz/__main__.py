"""Run programs of new seeds for some time: `python -m tests.fuzz --seconds 300 --seed $(git rev-parse HEAD)`."""

from __future__ import annotations

import argparse
import os
import sys

from .runner import Run


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long to go on")
    parser.add_argument("--seed", default="0", help="where seeds begin: any text, say a commit's hash")
    parser.add_argument("--processes", type=int, default=2, help="processes at work")
    parser.add_argument("--findings", default="", help="a file to which findings are appended")
    parser.add_argument("--device", default="", help="the device of compiled programs")
    parser.add_argument("--only", type=int, help="check the program of one seed in this process, and shrink it")
    chosen = parser.parse_args()
    os.environ["RLX_FUZZ_DEVICE"] = chosen.device  # read where checks are imported, here and in the processes at work
    if chosen.only is not None:
        return only(chosen.only)
    run = Run(chosen.seed, chosen.seconds, chosen.processes, chosen.findings)
    run.go()
    print(f"{run.programs} programs, {run.failed} failed")
    return 1 if run.failed else 0


def only(seed: int) -> int:
    """Check one program."""
    from .interpret import namespace
    from .report import source_of
    from .worker import examine, shrunk

    names = namespace()
    found = examine(seed, names, lambda check: print(check.name, flush=True))
    if found is None:
        print("1 programs, 0 failed")
        return 0
    print(source_of(*found), "\nshrunk:\n", sep="\n")
    print(source_of(*shrunk(found, names, 60)))
    print("1 programs, 1 failed")
    return 1


if __name__ == "__main__":
    sys.exit(main())
