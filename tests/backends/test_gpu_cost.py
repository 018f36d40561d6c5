"""The cost model: rooflines, launches, and what is left idle."""

from __future__ import annotations

import numpy as np
from gpu_texts import PROGRAMS, plan_of

import rlx.numpy as jnp
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.gpu.cost import H100, Prediction, predict
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.program import DeviceProgram


def predicted(*program: object, limits: Limits | None = None) -> Prediction:
    """The model's word on a program."""
    plan = plan_of(*program)
    limits = limits or Limits()
    return predict(plan, DeviceProgram(plan, CudaDialect(products=True), limits), H100, limits)


def test_large_maps_and_norms_reach_the_copy_bandwidth() -> None:
    x = np.empty((1 << 14, 1 << 12), np.float32)
    for function in (lambda x: x * 2 + 1, lambda x: x / jnp.abs(x).sum(-1, keepdims=True)):
        found = predicted(function, x)
        assert found.share(H100) > 0.9 and found.launches == 1
        assert found.moved_bytes == found.least_bytes == 2 * x.nbytes


def test_small_programs_cost_their_launches() -> None:
    found = predicted(lambda x: x + 1, np.zeros(8, np.float32))
    assert found.seconds < 1.01 * H100.launch_queued


def test_large_products_reach_the_peak() -> None:
    x = np.empty((4096, 4096), np.float32)
    assert predicted(lambda x: x @ x, x).share(H100) > 0.95


def test_what_is_idle_costs() -> None:
    """A loop that one group runs has the bandwidth of one."""
    plan = plan_of(*PROGRAMS["small loop"])
    both = (Limits(), Limits(units=1))
    few, many = (predict(plan, DeviceProgram(plan, CudaDialect(), limits), H100, limits) for limits in both)
    assert few.launches == many.launches and few.seconds > many.seconds
    assert predicted(*PROGRAMS["small loop"], limits=Limits(loop_work=0)).launches > 100
