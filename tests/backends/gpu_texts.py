"""Kernel texts for devices that are not here: of samples of every primitive, and of programs of odd and large sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from primitive_cases import cases
from splat_scenes import blocks_program

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.fragments import Fragments
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.options import claims_of, lowering_options
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.gpu.steps import LaunchStep
from rlx.ir.kernels import Plan
from rlx.ir.options import LoweringOptions
from rlx.passes.pipeline import Context, lower_to_plan
from rlx.trace.tracing import close_over, trace_program

OPTIONS = lowering_options(Limits())
PER_UNIT = 25  # kernels that are compiled together


def wave(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Numbers that differ."""
    return np.sin(np.arange(np.prod(shape))).reshape(shape).astype(dtype)


def gradient_of_attention(**how: Any) -> Callable[..., Any]:
    """Cotangents of query, key and value, of a cotangent and those."""
    return lambda cotangent, *given: rlx.vjp(partial(nn.dot_product_attention, **how), *given)[1](cotangent)


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "flat map": (lambda x: jnp.exp(x) * 2 + 1, wave(1 << 20)),
    "map with a row": (lambda x, b: x * b + 1, wave(1024, 1024), wave(1024)),
    "narrow map": (lambda x: (x * 3).astype("bfloat16"), wave(1 << 20)),
    "transpose": (lambda x: x.T * 2 + x, wave(1024, 1024)),
    "softmax": (nn.softmax, wave(4096, 1000)),
    "long rows": (lambda x: x / jnp.abs(x).max(-1, keepdims=True), wave(300, 8192)),
    "sum of all": (jnp.sum, wave(1 << 20)),
    "sum of columns": (lambda x: x.sum(0), wave(4096, 512)),
    "gradient of a norm": (rlx.grad(lambda w, x: (nn.standardize(x) * w).sum()), wave(512), wave(1024, 512)),
    "running sums": (lambda x: jnp.cumsum(x, -1), wave(512, 2000)),
    "running sums of a long row": (lambda x: jnp.cumsum(x) * 2, wave(1 << 20)),
    "sorts": (lambda x: (jnp.sort(x, -1), jnp.argsort(x, -1)), wave(64, 3000)),
    "product": (lambda x, y: x @ y, wave(512, 300), wave(300, 512)),
    "thin product": (lambda x, y: x @ y, wave(512, 300), wave(300)),
    "deep product": (lambda x, y: jnp.maximum(x @ y, 0), wave(64, 4096), wave(4096, 64)),
    "product with an epilogue": (
        lambda x, y, b: nn.gelu(x @ y + b) + x, wave(512, 300), wave(300, 300), wave(300),
    ),
    "convolution": (
        lambda x, w: jnp.maximum(lax.conv_general_dilated(x, w, (1, 1), "SAME"), 0), wave(8, 16, 32, 32),
        wave(32, 16, 3, 3),
    ),
    "gradient of a convolution": (
        rlx.grad(lambda x, w: jnp.sin(lax.conv_general_dilated(x, w, (1, 1), "SAME")).sum(), (0, 1)),
        wave(8, 16, 32, 32), wave(32, 16, 3, 3),
    ),
    "scatters": (
        lambda x, i: (jnp.zeros(99).at[i].set(x), jnp.zeros(99).at[i].add(x)), wave(5000), np.arange(5000) % 99,
    ),
    "small loop": (
        lambda w, x: lax.scan(lambda c, r: (jnp.tanh(c @ w + r), c.sum()), jnp.zeros(64), x), wave(64, 64),
        wave(100, 64),
    ),
    "attention": (nn.dot_product_attention, *[wave(8, 512, 12, 64)] * 3),
    "causal attention": (
        lambda q, k, v, b: nn.dot_product_attention(q, k, v, b, is_causal=True, return_residual=True),
        wave(2, 500, 8, 120, dtype="bfloat16"), *[wave(2, 500, 2, 120, dtype="bfloat16")] * 2, wave(1, 8, 500, 500),
    ),
    "wide attention": (nn.dot_product_attention, *[wave(2, 100, 2, 256)] * 3),
    "attention in float64": (nn.dot_product_attention, *[wave(2, 100, 2, 64, dtype="float64")] * 3),
    "gradient of attention": (gradient_of_attention(), *[wave(8, 512, 12, 64)] * 4),
    "gradient of causal attention": (
        gradient_of_attention(is_causal=True, softcap=30.0), *[wave(2, 500, 8, 128, dtype="bfloat16")] * 2,
        *[wave(2, 500, 2, 128, dtype="bfloat16")] * 2,
    ),
    "gradient of wide attention": (gradient_of_attention(local_window_size=9), *[wave(2, 100, 2, 224)] * 4),
    "gradient of attention in float64": (gradient_of_attention(), *[wave(2, 100, 2, 64, dtype="float64")] * 4),
    "gradient of attention by a bias": (gradient_of_attention(), *[wave(2, 500, 4, 64)] * 4, wave(4, 500, 500)),
    "splats, and their gradient": blocks_program(16, 3, False, "float32"),
    "splats on exact rays, and their gradient": blocks_program(32, 4, True, "float32"),
    "splats in float64, and their gradient": blocks_program(16, 3, True, "float64"),
    "random bits": (lambda: rlx.random.bits(rlx.random.key(3), (1 << 18,)),),
}  # fmt: skip


def shared_loops(w: Any, x: Any, i: Any) -> Any:
    """Loops whose ends depend on values, with steps of every strategy: each is work for many groups."""

    def ends(step: Callable[[Any], Any]) -> Any:
        return lax.while_loop(lambda s: (s[1] * s[1]).sum() > 1, lambda s: (s[0] + 1, step(s[1])), (0, x))

    def chosen(y: Any) -> Any:
        return lax.cond(y[0, 0] > 0, jnp.sin, lambda y: jnp.cumsum(y.ravel()).reshape(y.shape), y)

    return (
        ends(lambda y: jnp.tanh(y @ w) * 0.5), ends(lambda y: jnp.sort(nn.softmax(y.T).T, -1) - y[::-1]),
        ends(lambda y: jnp.cumsum(y, 1).at[i].add(y[:300]).at[i[::-1]].set(y[300:])), ends(chosen),
    )  # fmt: skip


SHARED_LOOPS = (shared_loops, wave(600, 600), wave(600, 600), np.arange(300) * 7 % 300)


def plan_of(
    function: Callable[..., Any], *arguments: Any, options: LoweringOptions = OPTIONS, units: Fragments | None = None
) -> Plan:
    """The plan of a function for a device with work-groups, and perhaps with a unit for matrices."""
    return lower_to_plan(rlx.make_program(function)(*arguments), context=Context(options, claims_of(units)))


def sample_plans(seed: str) -> Iterator[Plan]:
    """Plans of samples of primitives, in an order that the seed says."""
    order = [*cases()]
    random.Random(seed).shuffle(order)
    for case in order:
        program, captured = trace_program(case.bind, case.types)
        yield lower_to_plan(close_over(program, captured), None, OPTIONS)


class Unit:
    """Kernels that are compiled together, under names of their own."""

    def __init__(self, dialect: DeviceDialect) -> None:
        self.dialect = dialect
        self.steps: dict[str, LaunchStep] = {}
        self.texts: dict[str, str] = {}

    @property
    def source(self) -> str:
        """What is compiled."""
        return self.dialect.program(self.texts)


def units(dialect: Callable[[], DeviceDialect], plans: Iterator[Plan], count: int, limits: Limits) -> list[Unit]:
    """Different kernels of plans, `count` of them (or all there are), some to a unit."""
    made, known = [Unit(dialect())], set[str]()
    for plan in plans:
        if len(known) >= count:
            break
        unit = made[-1]
        for steps in DeviceProgram(plan, unit.dialect, limits).steps.values():
            for step in steps:
                text = step.text("kernel")
                if text not in known:
                    known.add(text)
                    name = f"kernel{len(known)}"
                    unit.steps[name], unit.texts[name] = step, step.text(name)
        if len(unit.texts) >= PER_UNIT:
            made.append(Unit(dialect()))
    return [unit for unit in made if unit.texts]
