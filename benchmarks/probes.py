"""Figures that need a process of their own, each printed as a line of JSON.

    python -m benchmarks.probes NAME LIBRARY [LAYERS]

import   seconds to import the library
second   seconds from before the import to the first gradient of a GPT
batch    a GPT's gradient and a perceptron's training step: first call, first call with another batch size, calls after
         that, and the kernels that the new size made the library compile
depth    seconds of the first call of the gradient of a GPT of so many layers
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

start = time.perf_counter()

Figures = dict[str, Any]


def library_named(name: str) -> Any:
    """rlx, or JAX."""
    return importlib.import_module(name)


def first_call(library: Any, function: Callable[..., Any], arguments: Any) -> float:
    """Seconds of a call whose arguments are on the library's own arrays."""
    arguments = library.tree.map(library.numpy.asarray, arguments)
    began = time.perf_counter()
    library.block_until_ready(function(*arguments))
    return time.perf_counter() - began


def ready(name: str) -> tuple[Any, Any]:
    """The library, which has compiled something trivial, and a generator of random numbers."""
    import numpy as np

    library = library_named(name)
    library.block_until_ready(library.jit(lambda x: x + 1.0)(np.ones(3, np.float32)))
    return library, np.random.default_rng(0)


def imported(name: str) -> Figures:
    """Seconds to import a library; NumPy's are part of everyone's."""
    library_named(name)
    return {"seconds": time.perf_counter() - start}


def second(name: str) -> Figures:
    """Seconds from before the import to the first gradient."""
    library = library_named(name)
    import numpy as np

    from benchmarks.programs import transformer

    function, arguments = transformer(library, np.random.default_rng(0), layers=3, sequences=8)
    first_call(library, library.jit(function), arguments)
    return {"seconds": time.perf_counter() - start}


def compiled_kernels(name: str) -> int:
    """Kernels that rlx compiled so far; JAX does not count, and compiles the whole program anew."""
    if name != "rlx":
        return 0
    return importlib.import_module("rlx.backends.cpu.runtime.store").statistics().compiled


def batch(name: str) -> Figures:
    """Batch sizes from the third on."""
    from benchmarks.programs import perceptron, transformer

    library, generator = ready(name)
    cases = {
        "transformer_gradient": [transformer(library, generator, layers=3, sequences=n) for n in (8, 12, 10, 14)],
        "mlp_adam_step": [perceptron(library, generator, examples=n) for n in (100, 160, 120, 140)],
    }
    found: Figures = {}
    for program, sizes in cases.items():
        jitted = library.jit(sizes[0][0])
        cold = first_call(library, jitted, sizes[0][1])
        first_call(library, jitted, sizes[1][1])  # the second size of an axis makes a program for further ones
        before = compiled_kernels(name)
        new = [first_call(library, jitted, arguments) for _, arguments in sizes[2:]]
        compiled = compiled_kernels(name) - before
        again = first_call(library, jitted, sizes[-1][1])
        found[program] = {"cold": cold, "new": sum(new) / len(new), "again": again, "compiled": compiled}
    return found


def depth(name: str, layers: int) -> Figures:
    """The first call of a network of so many layers; a process each, as equal layers share kernels."""
    from benchmarks.programs import transformer

    library, generator = ready(name)
    function, arguments = transformer(library, generator, layers=layers, sequences=2)
    return {"seconds": first_call(library, library.jit(function), arguments)}


PROBES: dict[str, Callable[..., Figures]] = {"import": imported, "second": second, "batch": batch, "depth": depth}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))))
