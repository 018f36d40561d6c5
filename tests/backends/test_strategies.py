"""One program of each strategy on OpenCL's device, against the CPU: what `make test` executes of the code for GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")

from every_strategy import PROGRAMS, computed
from gpu_texts import PROGRAMS as LARGE
from gpu_texts import plan_of

from rlx import backends
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.opencl import OpenCLBackend
from rlx.errors import DeviceError

pytestmark = pytest.mark.selected(10_000)


@pytest.fixture
def backend() -> Iterator[OpenCLBackend]:
    """The device, with its own limits afterwards."""
    try:
        found = backends.backend_named("opencl")
    except DeviceError as error:
        if os.environ.get("RLX_TEST_OPENCL") == "1":
            raise
        pytest.skip(str(error))
    assert isinstance(found, OpenCLBackend)
    limits = found.engine.limits
    yield found
    found.engine.limits = limits


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_strategy_computes_what_the_cpu_does(name: str, backend: OpenCLBackend) -> None:
    for found, expected in computed(name, backend, backend.engine.limits):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sum of all", "gradient of a norm"])
def test_items_see_what_their_group_has_initialised(name: str) -> None:
    """Before the first of them adds to it."""
    texts = DeviceProgram(plan_of(*LARGE[name]), CudaDialect(), Limits()).texts.values()
    (begin,) = [text.partition(" = 0.0f;")[2].partition("for (int32_t i =")[0] for text in texts if "chunk *" in text]
    assert begin.count("__syncthreads();") == 1
