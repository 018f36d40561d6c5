"""How long a data-parallel step takes beside what was planned: `rlx launch -n 2 benchmarks/planned_steps.py`.

`rlx.parallel.measure` measures the machine, `plan` predicts a step of a network of four layers from it, and the step is
timed. Only the order of magnitude is promised; rank 0 prints both, for several widths.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import parallel

LAYERS, ROWS, WIDTHS, ROUNDS = 4, 128, (64, 256, 1024), 15


def loss(weights: Any, x: Any) -> Any:
    """Of a network of square layers."""
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def step(weights: Any, x: Any) -> Any:
    """A step of gradient descent, with the mean gradient of all processes."""
    gradient = rlx.distributed.all_reduce(rlx.grad(loss)(weights, x), "mean")
    return rlx.tree.map(lambda w, g: w - 0.1 * g, weights, gradient)


def main() -> None:
    """Print predicted and measured milliseconds."""
    rlx.distributed.initialize()
    machine = parallel.measure()
    if rlx.process_index() == 0:
        print(f"{machine.flops / 1e9:.1f} GFLOP/s, {machine.latency * 1e6:.0f} us, {machine.bandwidth / 1e9:.2f} GB/s")
    alone = rlx.sharding.AbstractMesh((1,), ("process",))
    for width in WIDTHS:
        generator = np.random.default_rng(0)
        weights = [generator.normal(size=(width, width)).astype(np.float32) / width**0.5 for _ in range(LAYERS)]
        x = generator.normal(size=(ROWS, width)).astype(np.float32)
        plan = parallel.plan(step, mesh=alone, in_specs=rlx.P(), machine=machine)(weights, x)
        run, found = rlx.jit(step), []
        for _ in range(ROUNDS):
            rlx.distributed.barrier()
            begun = time.perf_counter()
            rlx.block_until_ready(run(weights, x))
            found.append(time.perf_counter() - begun)
        if rlx.process_index() == 0:
            measured = statistics.median(found[3:])
            print(
                f"width {width}: planned {plan.seconds * 1e3:.2f} ms, measured {measured * 1e3:.2f} ms:"
                f" {measured / plan.seconds:.2f} times; {plan.traffic.sent:,} bytes sent",
                flush=True,
            )


if __name__ == "__main__":
    main()
