"""Values computed again so that temporaries fit in a budget."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.numpy as rnp
from rlx.errors import MemoryLimitError, RlxError
from rlx.ir.verify import verify_program
from rlx.passes.pipeline import lower_stages, stages
from rlx.passes.rematerialize import plan_within
from rlx.planning.memory import temporary_bytes

RANDOM = np.random.default_rng(0)


def floats(*shape):
    return (RANDOM.standard_normal(shape) * 0.3).astype(np.float32)


def deep(weights, x):
    for w in weights:
        x = layer(x, w)
    return (x * x).sum()


def layer(x, w):
    wide = rlx.nn.gelu(x @ w)
    return x + rnp.tanh((wide * rnp.cos(wide)) @ w.T * 0.1)


WEIGHTS = [floats(32, 256) for _ in range(6)]
X = floats(512, 32)


def temporary(f, *args):
    return f.lower(*args).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("share", [0.8, 0.5, 0.35])
@pytest.mark.selected(1)
def test_a_gradient_fits_in_less_memory_with_the_same_result(share):
    gradient = rlx.value_and_grad(deep, argnums=(0, 1))
    plain = rlx.jit(gradient)
    limit = int(temporary(plain, WEIGHTS, X) * share)
    tight = rlx.jit(gradient, memory_limit=limit)
    assert temporary(tight, WEIGHTS, X) <= limit
    for got, wanted in zip(rlx.tree.leaves(tight(WEIGHTS, X)), rlx.tree.leaves(plain(WEIGHTS, X)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(np.asarray(wanted)).max())


def test_a_program_that_fits_is_left_alone():
    f = rlx.jit(rlx.grad(deep), memory_limit=1 << 30)
    assert temporary(f, WEIGHTS, X) == temporary(rlx.jit(rlx.grad(deep)), WEIGHTS, X)


@pytest.mark.thorough
def test_an_impossible_limit_says_what_is_needed():
    with pytest.raises(MemoryLimitError, match=r"(?s)deep needs .*memory_limit is 1.0 KiB.*Raise the limit"):
        rlx.jit(rlx.grad(deep), memory_limit=1024)(WEIGHTS, X)


@pytest.mark.parametrize("limit", [-1, 1.5, "1 GB", True])
def test_a_limit_is_a_number_of_bytes(limit):
    with pytest.raises(RlxError, match="number of bytes"):
        rlx.jit(deep, memory_limit=limit)


def test_second_computations_are_behind_barriers_and_programs_stay_well_formed():
    program = stages(rlx.jit(rlx.grad(deep, argnums=(0, 1))).trace(WEIGHTS, X).closed())[-1].program
    seen = []

    def plan_program(p):
        verify_program(p, "mir")
        seen.append(p)
        found = lower_stages(p)
        return found[-1].form, found[0].form.values

    plain = plan_within(program, 1 << 30, plan_program)
    plan = plan_within(program, temporary_bytes(plain) * 2 // 3, plan_program)
    assert temporary_bytes(plan) <= temporary_bytes(plain) * 2 // 3
    names = [e.primitive.name for e in seen[-1].equations]
    assert names.count("optimization_barrier") > 0
    assert len(names) > len(program.equations)


@pytest.mark.thorough
def test_random_numbers_are_the_same_the_second_time():
    key = rlx.random.key(3)

    def dropped(weights, x):
        for n, w in enumerate(weights):
            keep = rlx.random.bernoulli(rlx.random.fold_in(key, n), 0.7, x.shape)
            x = layer(rnp.where(keep, x, 0.0), w)
        return (x * x).sum()

    plain = rlx.jit(rlx.grad(dropped))
    limit = temporary(plain, WEIGHTS, X) * 6 // 10
    tight = rlx.jit(rlx.grad(dropped), memory_limit=limit)
    for got, wanted in zip(tight(WEIGHTS, X), plain(WEIGHTS, X), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


def test_checkpoint_takes_less_memory_than_keeping_everything():
    def layers(wrap):
        def f(weights, x):
            for w in weights:
                x = wrap(layer)(x, w)
            return (x * x).sum()

        return rlx.jit(rlx.grad(f))

    kept, again = layers(lambda f: f), layers(rlx.checkpoint)
    assert temporary(again, WEIGHTS, X) < 0.7 * temporary(kept, WEIGHTS, X)
    for got, wanted in zip(again(WEIGHTS, X), kept(WEIGHTS, X), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
