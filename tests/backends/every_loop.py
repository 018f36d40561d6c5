"""Run by test_opencl_loops.py and others: loops that groups share, against the CPU.

`every_loop.py GROUPS [SEEDS]`: so many groups wait for one another; with so many random loops, too.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from test_in_place_random import random_step

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.backends import backend_named
from rlx.backends.gpu.cost import step_counts
from rlx.backends.gpu.limits import LaunchCosts
from rlx.backends.opencl import OpenCLBackend
from rlx.passes.pipeline import lower_to_plan

RANDOM = np.random.default_rng(0)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Normal numbers."""
    return RANDOM.normal(size=shape).astype(dtype)


def counted(function: Any, steps: int) -> Any:
    """The function so many times, in a loop that a condition ends."""
    return lambda x: lax.while_loop(lambda s: s[0] < steps, lambda s: (s[0] + 1, function(s[1])), (0, x))


def of_numbers(i: Any, row: Any) -> Any:
    """One of three functions."""
    return lax.switch(i % 3, [jnp.sin, lambda r: jnp.sort(r)[::-1], lambda r: jnp.cumsum(r) / 900], row)


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "products until values are small": (
        lambda w, x: lax.while_loop(
            lambda s: (s[1] * s[1]).sum() > 0.01, lambda s: (s[0] + 1, jnp.tanh(s[1] @ w) / 30), (0, x)
        ),
        numbers(130, 130), numbers(70, 130),
    ),
    "sorts": (lambda x: lax.scan(lambda c, r: (jnp.sort(c + r), c.sum()), x[0], x), numbers(4, 300)),
    "columns, rows, tiles": (
        lambda x: lax.scan(lambda c, r: (nn.softmax(c.T + r) * 9, (c.sum(0), c.max())), x[0], x, reverse=True),
        numbers(4, 70, 70),
    ),
    "running sums, and one more step": (counted(lambda c: jnp.cumsum(c, 1) / 50, 3), numbers(3, 3000)),
    "scatters": (
        lambda x, i: lax.fori_loop(0, 3, lambda n, c: c.at[i].set(c[n] + x).at[i[::-1]].add(x * n), x),
        numbers(2000), (np.arange(2000) * 7 % 300).astype("int32"),
    ),
    "branches": (lambda x: lax.scan(lambda c, i: (of_numbers(i, c + 1), c[i]), x, jnp.arange(5)), numbers(900)),
    "loops in loops": (
        lambda x: lax.scan(
            lambda c, n: (lax.fori_loop(0, n, lambda i, d: jnp.roll(d.T, i) * 0.9 + d, c), c[n]), x, jnp.arange(3)
        ),
        numbers(40, 40),
    ),
    "one for each row": (
        rlx.vmap(lambda x: lax.while_loop(lambda c: jnp.abs(c).sum() < 500, lambda c: c * 1.5 + 1, x)), numbers(7, 300),
    ),
    "gradient": (
        rlx.grad(lambda x: (lax.scan(lambda c, r: (jnp.sin(c @ r / 6), c.mean()), x[0], x)[1] ** 2).sum()),
        numbers(4, 30, 30),
    ),
    "complex and narrow": (
        counted(lambda c: (c[0].conj() * (0.9 + 0.1j), c[1] * 2, ~c[2]), 3),
        (numbers(900) + 1j * numbers(900), numbers(900).astype("bfloat16"), numbers(900) > 0),
    ),
    "what is no number": (
        counted(lambda c: c * 0.5 + 1, 3), np.array([1.0, np.nan, np.inf, -np.inf] * 300, "float64"),
    ),
    "no steps": (counted(lambda c: c + 1, 0), numbers(900)),
    "no elements": (lambda x: lax.scan(lambda c, r: (c[::-1] + r.sum(), c * 2), x[0], x), numbers(3, 0)),
    "scalars": (counted(lambda c: c * 0.9 + 1, 5), np.float32(3)),
}  # fmt: skip


def random_loops(seed: int) -> tuple[Any, ...]:
    """The same random steps in a loop that is counted, and in one that a condition ends."""
    step = random_step(random.Random(seed))

    def loops(x: Any, y: Any) -> Any:
        again = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, *step(s[0], s[1:])), (jnp.int32(0), x, y))
        return lax.fori_loop(0, 3, step, (x, y)), again

    return loops, numbers(40, 40), numbers(40, 40)


def main(groups: int, seeds: int = 0) -> None:
    """Each program, once."""
    backend = backend_named("opencl")
    assert isinstance(backend, OpenCLBackend)
    backend.engine.limits = replace(
        backend.engine.limits, together=groups, loop_work=0, costs=LaunchCosts(barrier=0.0), vector_points=1,
        sorted_row=64, units=8, least_row=8,
    )  # fmt: skip
    programs = {**PROGRAMS, **{f"random loop {seed}": random_loops(seed) for seed in range(seeds)}}
    for name, (function, *arguments) in programs.items():
        leaves = rlx.tree.leaves(arguments)
        executable = backend.compile(lower_to_plan(rlx.make_program(function)(*arguments), None, backend.lowering))
        loops = [s for steps in executable.program.steps.values() for s in steps if s.together]
        assert not executable.texts()["host"] and len(loops) >= (0 if name == "no elements" else 1), executable.texts()
        found = executable.run([backend.memory.put(np.asarray(a)) for a in leaves])
        for storage, x in zip(found, rlx.tree.leaves(rlx.jit(function, device="cpu")(*arguments)), strict=True):
            wide = "complex128" if x.dtype.kind == "c" else "float64"
            result = np.asarray(backend.memory.get(storage, x.shape, x.dtype)).astype(wide)
            np.testing.assert_allclose(result, np.asarray(x).astype(wide), rtol=1e-4, atol=1e-4, err_msg=name)
        print("ran", name, *(f"by {s.groups}, {step_counts(s).barriers:.0f} barriers" for s in loops), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
