"""StableHLO compiled and run by IREE: benchmark programs and a training step of the digits network.

`make test-iree` installs IREE and sets RLX_TEST_IREE=1.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import close

import rlx
import rlx.numpy as jnp
from benchmarks.programs import programs
from rlx.scipy import special

pytestmark = pytest.mark.skipif(os.environ.get("RLX_TEST_IREE") != "1", reason="`make test-iree` runs it")

# IREE takes minutes for a sort of a long vector, and compiles the transformer's gradient in eight seconds
LEFT_OUT = {"sort_vector", "argsort_vector", "transformer_gradient"}
PROGRAMS = [p for p in programs if "dispatch" not in p.name and p.name not in LEFT_OUT]
# float32 sums of a million numbers whose mean is near zero, one after another; Adam divides by roots near zero
ERRORS = {"sum_of_all": 1e-2, "sum_of_squares": 1e-2, "cumulative_sum": 1e-3, "mlp_adam_step": 1e-3}


def on_iree(text: str, arguments: Sequence[Any]) -> list[np.ndarray]:
    """Compile a module for the processor, and run it."""
    compiler: Any = importlib.import_module("iree.compiler")
    runtime: Any = importlib.import_module("iree.runtime")
    options = ["--iree-llvmcpu-target-cpu=generic"]
    options += [f"--iree-input-demote-{wide}=false" for wide in ("i64-to-i32", "f64-to-f32")]
    compiled = compiler.compile_str(text, input_type="stablehlo", target_backends=["llvm-cpu"], extra_args=options)
    module = runtime.load_vm_flatbuffer(compiled, driver="local-task")
    results = module.main(*(np.require(a, requirements="C") for a in arguments))
    results = results if isinstance(results, (tuple, list)) else [results]
    return [np.asarray(r.to_host()) for r in results]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_benchmark_programs(program: Any) -> None:
    function, arguments = program.build(rlx, np.random.default_rng(0))
    exported = rlx.export(function)(*arguments)
    found = on_iree(exported.stablehlo(), [np.asarray(leaf) for leaf in rlx.tree.leaves(arguments)])
    close(found, exported.call(*arguments), ERRORS.get(program.name, 1e-4))


def test_special_functions() -> None:
    """Loops with masks; those that need a float64 sine, which IREE lacks, do not run there."""

    def several(x: Any) -> Any:
        return special.dawsn(x), special.i0(x), special.spence(jnp.abs(x))

    x = np.linspace(-3, 30, 12)
    exported = rlx.export(several)(x)
    close(on_iree(exported.stablehlo(), [x]), exported.call(x), 1e-12)


def test_a_training_step_of_the_digits_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Augmentation, convolutions, gradient and Adam's update."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    digits: Any = importlib.import_module("digits")
    key = rlx.random.key(0)
    parameters = digits.initial_parameters(key)
    images, _, labels, _ = digits.load()
    batch = images[:16], labels[:16]
    zeros, squares = (rlx.tree.map(lambda x, v=v: jnp.full_like(x, v), parameters) for v in (0.0, 1e-2))
    state = parameters, zeros, squares, np.float32(10.0)  # as after ten steps: roots far from zero
    exported = rlx.export(lambda state, x, y: digits.step(state, key, x, y))(state, *batch)
    found = on_iree(exported.stablehlo(), [np.asarray(leaf) for leaf in rlx.tree.leaves((state, *batch))])
    close(found, exported.call(state, *batch), 1e-4)
