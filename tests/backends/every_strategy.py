"""Run by test_races.py: one program of each strategy, against the CPU. `--without-barriers`: wrongly."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.backends import backend_named
from rlx.backends.gpu.limits import LaunchCosts
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.opencl import OpenCLBackend
from rlx.backends.opencl.dialect import OpenCLDialect
from rlx.passes.pipeline import lower_to_plan

RANDOM = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    """Normal numbers."""
    return RANDOM.normal(size=shape).astype("float32")


PLACES = (np.arange(130) % 11).astype("int32")
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "vectors": (lambda v: jnp.sin(v) * 2, numbers(130)),
    "tiles": (lambda x: x.T + 1, numbers(20, 37)),
    "rows": (nn.softmax, numbers(20, 37)),
    "rows in registers": (nn.softmax, numbers(20, 38)),
    "sums": (lambda x: (x.sum(), x.sum(0)), numbers(200, 100)),
    "scans": (lambda x: jnp.cumsum(x, 1), numbers(2, 150)),
    "scans of parts": (jnp.cumsum, numbers(2100)),
    "last writes": (lambda v, i: jnp.zeros(11).at[i].set(v), numbers(130), PLACES),
    "atomics": (
        lambda v, i: (jnp.zeros(11).at[i].add(v), jnp.zeros(11, "bfloat16").at[i].max(v.astype("bfloat16"))),
        numbers(130), PLACES,
    ),
    "ordered sums": (lambda v, i: jnp.zeros(11).at[i].add(v), numbers(130), PLACES),
    "sorts": (jnp.argsort, numbers(130)),
    "attention": (lambda x: nn.dot_product_attention(x, x, x, is_causal=True), numbers(1, 20, 1, 5)),
    "gradients of attention": (
        rlx.grad(lambda x: (nn.dot_product_attention(x, x[:, :, :1], x[:, :, 1:], is_causal=True) ** 2).sum()),
        numbers(1, 20, 2, 5),
    ),
    "products": (lambda x: x @ x.T, numbers(20, 37)),
    "transforms": (lambda x: jnp.abs(jnp.fft.irfft2(jnp.fft.rfft2(x) * 2, s=(12, 15))), numbers(3, 12, 15)),
    "matrices": (
        lambda x: (jnp.linalg.solve(x + 9 * jnp.eye(7), x[..., :2]), jnp.linalg.cholesky(x @ x.mT + jnp.eye(7))),
        numbers(2, 7, 7),
    ),
    "loops of groups": (  # one group, which takes all turns: interpreters run groups one after the other
        lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, nn.softmax(s[1]) + s[1].sum(0)), (0, x)),
        numbers(20, 37),
    ),
}  # fmt: skip


def main(without_barriers: bool) -> None:
    """Each program, once."""
    if without_barriers:
        OpenCLDialect.barrier = lambda self: ";"  # ty: ignore[invalid-assignment]
    backend = backend_named("opencl")
    assert isinstance(backend, OpenCLBackend)
    limits = backend.engine.limits
    small = replace(limits, vector_points=1, group=64, tile=16, sorted_row=32, units=8, least_row=8)
    small = replace(small, together=1, loop_work=0, costs=LaunchCosts(barrier=0.0))
    for name, (function, *arguments) in PROGRAMS.items():
        if name == "loops of groups" and backend.engine.device.platform.name == "Portable Computing Language":
            continue  # PoCL 3.1 does not come out of the barrier of all groups, even where there is one
        limits = backend.engine.limits = replace(small, held=64 if name == "rows in registers" else 0)
        with rlx.scoped(deterministic=name == "ordered sums"):
            plan = lower_to_plan(rlx.make_program(function)(*arguments), None, backend.lowering)
            steps = [s for found in DeviceProgram(plan, backend.dialect(), limits).steps.values() for s in found]
            assert steps and any(s.together for s in steps) == (name == "loops of groups")
            expected = rlx.tree.leaves(rlx.jit(function, device="cpu")(*arguments))
            found = rlx.tree.leaves(rlx.jit(function, device="opencl")(*arguments))
        for x, y in zip(expected, found, strict=True):
            wide = [np.asarray(v).astype("float64") for v in (y, x)]
            if not without_barriers:
                np.testing.assert_allclose(*wide, rtol=1e-4, atol=1e-4, err_msg=name)
        print("ran", name, flush=True)


if __name__ == "__main__":
    main("--without-barriers" in sys.argv)
