"""What a GPU does with rlx's programs, and what it should do.

    python -m benchmarks.gpu --predict                        the cost model, on a machine without a GPU
    python -m benchmarks.gpu [--device cuda] [--part NAME] [--only NAME,NAME] [--rounds N]

Parts: `facts` (launches, copy bandwidth, what a library makes of NaN), `right` (every program against the CPU), `times`
(every program, its share of the copy bandwidth, the cost model beside it, JAX and torch if they have a GPU). Each
writes its results to benchmarks/results/<device>.json when it is done, so that one that failed can be started again. No
figure of a GPU has been published: nobody has run this on one yet.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from benchmarks.contenders import SEED
from benchmarks.programs import Program, programs
from rlx.backends import backend_named
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.cuda.products import is_library_product
from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.cost import H100, Prediction, predict
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.options import claims_of, lowering_options
from rlx.backends.gpu.program import DeviceProgram
from rlx.passes.pipeline import Context, lower_to_plan

RESULTS = Path(__file__).resolve().parent / "results"
LIMITS = Limits()
COPIED = 1 << 28  # bytes


def predicted(program: Program) -> tuple[Prediction, list[str]]:
    """What the model says of a program on an H100, and how its launches share their work."""
    function, arguments = program.build(rlx, np.random.default_rng(SEED))
    context = Context(lowering_options(LIMITS), claims_of())
    plan = lower_to_plan(rlx.make_program(function)(*arguments), context=context)
    made = DeviceProgram(plan, CudaDialect(products=is_library_product), LIMITS)
    return predict(plan, made, H100, LIMITS), [s.strategy for steps in made.steps.values() for s in steps]


def show_predictions(wanted: list[Program]) -> None:
    """A row for each program."""
    print(f"{'program':26} {'launches':>8} {'MB moved':>9} {'ms':>9} {'share':>6}   strategies")
    for program in wanted:
        found, strategies = predicted(program)
        counts = ", ".join(f"{strategies.count(s)} {s}" for s in dict.fromkeys(strategies))
        print(
            f"{program.name:26} {found.launches:8} {found.moved_bytes / 1e6:9.1f} {found.seconds * 1e3:9.3f}"
            f" {found.share(H100):6.0%}   {counts}",
            flush=True,
        )


def seconds(function: Callable[[], Any], repeats: int, rounds: int) -> float:
    """The median time of a call, queued `repeats` times before it is waited for."""
    rlx.block_until_ready(function())
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(repeats):
            result = function()
        rlx.block_until_ready(result)
        times.append((time.perf_counter() - begin) / repeats)
    return statistics.median(times)


def facts(device: str, rounds: int) -> dict[str, float]:
    """Launches and copies."""
    small = rlx.device_put(np.zeros(8, np.float32), device)
    large = rlx.device_put(np.zeros(COPIED // 4, np.float32), device)
    add = rlx.jit(lambda x: x + 1.0)
    undefined = rlx.device_put(np.full((64, 64), np.nan, np.float32), device)
    rectified = rlx.jit(lambda x: rlx.nn.relu(x @ x))(undefined)
    return {
        "relu of NaN is NaN behind a product": float(np.isnan(np.asarray(rectified)).all()),
        "launch microseconds, waited for": seconds(lambda: add(small), 1, rounds) * 1e6,
        "launch microseconds, queued": seconds(lambda: add(small), 200, rounds) * 1e6,
        "copy GB/s": 2 * COPIED / seconds(lambda: add(large), 10, rounds) / 1e9,
    }


def on(device: str, program: Program) -> tuple[Callable[..., Any], Any]:
    """A program jitted for a device, and its arguments there."""
    function, arguments = program.build(rlx, np.random.default_rng(SEED))
    return rlx.jit(function, device=device), rlx.tree.map(lambda a: rlx.device_put(np.asarray(a), device), arguments)


def right(device: str, wanted: list[Program]) -> dict[str, float]:
    """How far the device's results are from the CPU's, relative to their norm."""
    apart = {}
    for program in wanted:
        results = []
        for name in ("cpu", device):
            function, arguments = on(name, program)
            leaves = rlx.tree.leaves(function(*arguments))
            results.append(np.concatenate([np.ravel(np.asarray(x)).astype("float64") for x in leaves]))
        apart[program.name] = float(np.linalg.norm(results[1] - results[0]) / (np.linalg.norm(results[0]) + 1e-30))
        print(f"{program.name:26} {apart[program.name]:.1e}", flush=True)
    return apart


def times(device: str, wanted: list[Program], rounds: int, bandwidth: float) -> dict[str, Any]:
    """Milliseconds of each program, and beside them the model's and JAX's."""
    rows = {}
    for program in wanted:
        function, arguments = on(device, program)
        took = seconds(lambda f=function, a=arguments: f(*a), 5, rounds)
        model, _ = predicted(program)
        row = {
            "ms": took * 1e3, "model ms": model.seconds * 1e3, "launches": model.launches,
            "share of copy": model.least_bytes / took / bandwidth,
        }  # fmt: skip
        if other := jax_seconds(program, rounds):
            row["jax ms"] = other * 1e3
        rows[program.name] = row
        print(f"{program.name:26} " + "  ".join(f"{k} {v:.3g}" for k, v in row.items()), flush=True)
    return rows


def jax_seconds(program: Program, rounds: int) -> float:
    """JAX's time on its GPU; 0 where it has none."""
    if importlib.util.find_spec("jax") is None:
        return 0.0
    jax = importlib.import_module("jax")
    if jax.default_backend() != "gpu":
        return 0.0
    function, arguments = program.build(jax, np.random.default_rng(SEED))
    jitted, given = jax.jit(function), jax.tree.map(jax.device_put, arguments)
    jax.block_until_ready(jitted(*given))
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(5):
            result = jitted(*given)
        jax.block_until_ready(result)
        found.append((time.perf_counter() - begin) / 5)
    return statistics.median(found)


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--part", choices=("facts", "right", "times"))
    parser.add_argument("--only")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    wanted = [p for p in programs if options.only is None or p.name in options.only.split(",")]
    if options.predict:
        show_predictions(wanted)
        return
    backend = backend_named(options.device)
    assert isinstance(backend, DeviceBackend), f"{options.device} is no GPU"
    path = RESULTS / f"{options.device}.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for part in [options.part] if options.part else ["facts", "right", "times"]:
        if part == "facts":
            results[part] = facts(options.device, options.rounds)
            print(results[part])
        elif part == "right":
            results[part] = right(options.device, wanted)
        else:
            known = results.get("facts") or facts(options.device, options.rounds)
            results[part] = times(options.device, wanted, options.rounds, known["copy GB/s"] * 1e9)
        path.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
