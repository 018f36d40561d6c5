"""One process of a run: reads seeds from its input, writes what it found, a line of JSON each."""

from __future__ import annotations

import faulthandler
import json
import random
import sys
import traceback
import warnings
from typing import Any, NamedTuple

from .checks import Check, Failure, chosen_checks, run_check
from .generate import generate
from .interpret import Unsound, namespace
from .program import Program, all_steps
from .report import outcome_apart, source_of
from .shrink import shrink

__all__ = ["Finding", "examine", "main", "shrunk"]


class Finding(NamedTuple):
    """A program that fails, and how."""

    program: Program
    failure: Failure


def examine(seed: int, names: dict[str, Any], entered: Any = None) -> Finding | None:
    """Check the program of a seed; entered(check) is called before each check."""
    program = generate(seed, names)
    for check in chosen_checks(program, random.Random(seed)):
        if entered is not None:
            entered(check)
        try:
            failure = run_check(program, check, names, seed)
        except Unsound:
            continue
        if failure is not None:
            return Finding(program, failure)
    return None


def shrunk(found: Finding, names: dict[str, Any], seconds: float) -> Finding:
    """The smallest program that was found to fail as another does."""
    last = found

    def fails(program: Program, check: Check) -> bool:
        nonlocal last
        try:
            failure = run_check(program, check, names)
        except Exception:
            return False
        same = failure is not None and failure.kind == found.failure.kind
        if failure is None or not same or failure.kind == "raises" and failure.signature != found.failure.signature:
            return False
        last = Finding(program, failure)
        return True

    shrink(found.program, found.failure.check, fails, names, seconds)
    return last


def shrunk_apart(seed: int, name: str, kind: str, names: dict[str, Any], seconds: float) -> Finding | None:
    """As `shrunk`, for a program of which a process crashes or hangs: each is tried in a process of its own.

    None for a program that is only slow.
    """
    program = generate(seed, names)
    check = next(c for c in chosen_checks(program, random.Random(seed)) if c.name == name)
    last = Finding(program, Failure(check, kind, f"{kind} in {name}", f"the process {kind}"))

    def fails(program: Program, check: Check, patience: float = 30.0) -> bool:
        nonlocal last
        candidate = Finding(program, Failure(check, kind, f"{kind} in {check.name}", f"the process {kind}"))
        if outcome_apart(source_of(program, candidate.failure), patience) != kind:
            return False
        last = candidate
        return True

    if fails(program, check, 2 * seconds):
        shrink(program, check, fails, names, seconds)
    elif kind == "hangs":
        return None
    return last


def _answer(request: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    seed = request["seed"]
    if "apart" in request:
        found = shrunk_apart(seed, request["check"], request["apart"], names, request["seconds"])
        return _described(seed, found, apart=True) if found is not None else {"seed": seed, "failed": False}
    found = examine(seed, names, lambda check: _write({"check": check.name}))
    if found is None:
        return {"seed": seed, "failed": False}
    if found.failure.signature in request["known"] or not request["shrink"]:
        return {"seed": seed, "failed": True, "signature": found.failure.signature, "kind": found.failure.kind}
    _write({"check": "shrinking", "found": _described(seed, found)})
    return _described(seed, shrunk(found, names, request["seconds"]), apart=True)


def _described(seed: int, found: Finding, apart: bool = False) -> dict[str, Any]:
    """A finding as data. apart: with what it does in a process of its own."""
    source = source_of(*found)
    return {
        "seed": seed,
        "failed": True,
        "signature": found.failure.signature,
        "kind": found.failure.kind,
        "operations": sorted({s.operation for s in all_steps(found.program.steps)}),
        "alone": outcome_apart(source, 120.0) if apart else "was not tried",
        "source": source,
    }


def _write(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=_answers, flush=True)


_answers = sys.stdout


def main() -> None:
    """Answer requests until the input ends."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    names = namespace()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = _answer(request, names)
        except Exception as error:  # of the machinery itself
            text, signature = traceback.format_exc(), f"{type(error).__name__} outside of a check"
            answer = {"seed": request["seed"], "failed": True, "signature": signature, "kind": "raises", "source": text}
        _write(answer)


if __name__ == "__main__":
    main()
