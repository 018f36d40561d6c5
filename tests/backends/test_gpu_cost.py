"""The cost model: rooflines, launches, and what is left idle."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_texts import PROGRAMS, plan_of

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.backends.cuda import CudaBackend
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.cuda.products import is_library_product
from rlx.backends.gpu.cost import H100, Prediction, predict
from rlx.backends.gpu.executable import device_host_reason
from rlx.backends.gpu.grid import grid_of
from rlx.backends.gpu.limits import LaunchCosts, Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.rocm import RocmBackend
from rlx.ir.kernels import Loops, Scan, While


def predicted(*program: object, limits: Limits | None = None) -> Prediction:
    """The model's word on a program."""
    plan = plan_of(*program)
    limits = limits or Limits()
    return predict(plan, DeviceProgram(plan, CudaDialect(products=is_library_product), limits), H100, limits)


def test_large_maps_and_norms_reach_the_copy_bandwidth() -> None:
    x = np.empty((1 << 14, 1 << 12), np.float32)
    for function in (lambda x: x * 2 + 1, lambda x: x / jnp.abs(x).sum(-1, keepdims=True)):
        found = predicted(function, x)
        assert found.share(H100) > 0.9 and found.launches == 1
        assert found.moved_bytes == found.least_bytes == 2 * x.nbytes


def test_small_programs_cost_their_launches() -> None:
    found = predicted(lambda x: x + 1, np.zeros(8, np.float32))
    assert found.seconds < 1.01 * H100.queued


def test_large_products_reach_the_peak() -> None:
    x = np.empty((4096, 4096), np.float32)
    assert predicted(lambda x: x @ x, x).share(H100) > 0.95


NARROW = {
    "attention": nn.dot_product_attention,
    "product": lambda q, k, v: q[0, :, 0] @ k[0, :, 0].T + v[0, 0, 0, 0],
}


@pytest.mark.parametrize("name", NARROW)
def test_units_for_matrices_have_a_peak_of_their_own(name: str) -> None:
    """Attention and products of 16-bit floats take a fraction of the time in which items multiply, and say so."""
    options = CudaBackend().lowering
    plan = plan_of(NARROW[name], *[np.ones((1, 4096, 4, 128), "bfloat16")] * 3, options=options)
    by_units, by_items = (
        predict(plan, DeviceProgram(plan, CudaDialect(tensor_cores=units), Limits()), H100, Limits())
        for units in (True, False)
    )
    assert by_units.launches == by_items.launches
    assert 10 * by_units.products < by_items.products <= by_items.seconds
    assert by_units.products <= by_units.seconds < by_items.seconds / 2


def test_what_is_idle_costs() -> None:
    """A loop that one group runs has the bandwidth of one."""
    plan = plan_of(*PROGRAMS["small loop"])
    both = (Limits(), Limits(units=1))
    few, many = (predict(plan, DeviceProgram(plan, CudaDialect(), limits), H100, limits) for limits in both)
    assert few.launches == many.launches and few.seconds > many.seconds
    assert predicted(*PROGRAMS["small loop"], limits=Limits(loop_work=0)).launches > 100


# ------------------------------------------------------------------ loops
CUDA, ROCM = CudaBackend().engine.limits, RocmBackend().engine.limits
X = np.ones((300, 400), np.float32)


def stepped(x: Any, steps: int) -> Any:
    """A loop whose steps are two launches: a map and sums of its columns need one another."""
    return lax.fori_loop(0, steps, lambda i, c: jnp.tanh(c) - c.sum(0), x)


def until_small(step: Any) -> Any:
    """A loop whose end depends on values."""
    return lambda x: lax.while_loop(lambda c: jnp.abs(c).max() > 1, step, x)


def of_loops(function: Any, limits: Limits, *arguments: Any) -> list[str]:
    """How a program's loops are launched, or why the host queues their steps."""
    plan, dialect = plan_of(function, *arguments), CudaDialect(is_library_product)
    program = DeviceProgram(plan, dialect, limits)
    loops = [kernel for kernel in plan.kernels if isinstance(kernel, (Scan, While))]
    return [
        program.steps[k][-1].strategy if k in program.steps else device_host_reason(k, dialect, limits) or ""
        for k in loops
    ]


@pytest.mark.parametrize(("name", "limits", "steps", "found"), [
    ("a graph is cheaper", CUDA, 50, "the host queues each step: its launches cost less than barriers"),
    ("longer than a graph", CUDA, 5000, "loop of groups"),
    ("no graphs", ROCM, 50, "loop of groups"),
    ("no guarantee", Limits(), 5000, "the host queues each step: the device does not guarantee that groups run at"
     " the same time"),
    ("a barrier that costs nothing", replace(CUDA, costs=LaunchCosts(barrier=0.0)), 50, "loop of groups"),
])  # fmt: skip
def test_loops_of_known_length(name: str, limits: Limits, steps: int, found: str) -> None:
    """Barriers are compared with launches, queued or in a graph."""
    assert of_loops(lambda x: stepped(x, steps), limits, X) == [found]


@pytest.mark.parametrize(("step", "x", "found"), [
    (lambda c: jnp.tanh(c) - c.sum(0), X, "loop of groups"),
    (lambda c: jnp.tanh(c @ c.T @ c), X, "loop of groups"),
    (lambda c: c / 2, X[:2, :2], "loop"),
    (lambda c: jnp.tanh(c) - c.sum(0), np.ones((5000, 4000), np.float32), "a step takes longer than its launches"),
    (lambda c: jnp.linalg.svd(c)[1] * c[:, :1], X[:40, :40], "svd"),
    (lambda c: nn.dot_product_attention(c, c, c) / 2, np.ones((1, 100, 4, 64), np.float32), "attention"),
])  # fmt: skip
def test_loops_that_a_condition_ends(step: Any, x: np.ndarray, found: str) -> None:
    """The device reads the condition, unless something in a step is not the groups' to do, which the report names."""
    (how,) = of_loops(until_small(step), CUDA, x)
    assert how == found or (how.startswith("the host queues each step: ") and found in how), how


def test_barriers_cost() -> None:
    """A step of the loop has three: its launches are not counted, but for the two that there are."""
    plan = plan_of(lambda x: stepped(x, 5000), X)
    costs = (replace(CUDA, costs=LaunchCosts(barrier=seconds)) for seconds in (1e-6, 1.5e-6))
    few, many = (predict(plan, DeviceProgram(plan, CudaDialect(), c), H100, c) for c in costs)
    assert few.launches == many.launches <= 4 and 0.004 < many.seconds - few.seconds < 0.01


# ------------------------------------------------------------------ sums
def embedded(words: Any, places: Any, gain: Any, tokens: Any) -> Any:
    """A loss of normalised embeddings: its gradient sums over positions, over sequences, and where tokens lead."""
    x = words[tokens] + places
    x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain
    return (x**3).mean()


def chosen(scores: Any, words: Any) -> Any:
    """A loss that looks at one score of each row."""
    return -jnp.take_along_axis(nn.log_softmax(scores), words[:, None], axis=-1).mean()


def normal(*shape: int) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


TOKENS = (np.arange(8 * 96) * 7919 % 200).astype(np.int32)
SUMS: dict[str, tuple[Any, ...]] = {
    "embeddings": (
        rlx.grad(embedded, (0, 1, 2)), normal(200, 96), normal(96, 96), normal(96), TOKENS.reshape(8, 96),
    ),
    "labels": (rlx.value_and_grad(chosen), normal(768, 200), TOKENS),
    "a few rows": (lambda x: (jnp.exp(x).sum(0), (x * 2).mean(), jnp.tanh(x)), normal(100, 10)),
    "all": (lambda x: jnp.tanh(x).mean() * 3, normal(300, 500)),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_no_item_sums_for_long(name: str) -> None:
    """Sums are cut along the dimension that has most to give, and stay apart from scatters, whose places may meet."""
    kernels = [k for k in plan_of(*SUMS[name]).kernels if isinstance(k, Loops)]
    grids = [grid_of(k, Limits(), CudaDialect()) for k in kernels]
    assert max(math.prod(g.kernel.sizes) / (g.points * g.lanes) for g in grids) <= 32


def test_what_follows_a_sum_of_all_is_computed_with_it() -> None:
    """Two launches: parts; their sum, and the rest."""
    assert predicted(*SUMS["all"]).launches == 2
