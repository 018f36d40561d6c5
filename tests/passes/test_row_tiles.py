"""Runs of kernels that pass through memory tile by tile."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.numpy as rnp
from rlx.backends import backend_named
from rlx.backends.cpu.runtime.row_tile_form import row_tile_form
from rlx.errors import VerificationError
from rlx.ir.kernels import Buffer, Contract, Kernel, Loops, Operand, Plan, RowTiles
from rlx.ir.options import LoweringOptions
from rlx.ir.row_tiles import iterations, stays_in_row_tiles
from rlx.ir.verify_plan import verify_plan
from rlx.passes.pipeline import lower_program, stages
from rlx.planning.row_tiles import group_row_tiles
from rlx.storage import from_numpy
from rlx.testing import assert_close

RANDOM = np.random.default_rng(0)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def plan_of(f, *args, least=4):
    traced = rlx.jit(f).trace(*args)
    program = traced.closed()
    return lower_program(stages(program)[-1].program, LoweringOptions(least_row_tiles=least))


def row_tiles_of(plan):
    return [k for k in plan.kernels if isinstance(k, RowTiles)]


def mlp(x, w, b, v):
    return rlx.nn.gelu(x @ w + b) @ v


MLP = (floats(512, 64), floats(64, 128), floats(128), floats(128, 32))


def attention(q, k, v):
    scores = rnp.einsum("bqhd,bkhd->bhqk", q, k) / 4.0
    return rnp.einsum("bhqk,bkhd->bqhd", rlx.nn.softmax(scores, -1), v)


HEADS = tuple(floats(8, 96, 4, 16) for _ in range(3))


def test_a_product_its_bias_and_activation_and_the_next_product_are_one_kernel():
    plan = plan_of(mlp, *MLP)
    (kernel,) = plan.kernels
    assert isinstance(kernel, RowTiles)
    assert [type(k) for k in kernel.kernels] == [Contract, Loops, Contract]
    assert kernel.count == 512
    assert len(kernel.local) == 2  # neither x @ w nor its activation ever exists as a whole
    assert plan.arena == 0


def test_attention_is_one_kernel_and_its_scores_never_exist_as_a_whole():
    plan = plan_of(attention, *HEADS)
    kernel = plan.kernels[-1]
    assert isinstance(kernel, RowTiles)
    assert kernel.count >= 8
    scores = 8 * 4 * 96 * 96
    assert max(b.size for b in kernel.local) == scores
    assert plan.arena < scores * 4


@pytest.mark.parametrize(("f", "args"), [(mlp, MLP), (attention, HEADS)], ids=["mlp", "attention"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_row_tiles_compute_the_same(f, args, threads):
    expected = f(*(rnp.asarray(a, dtype="float64") for a in args))
    before = rlx.get_num_threads()
    rlx.set_num_threads(threads)
    try:
        result = rlx.jit(lambda *a: f(*a))(*args)
    finally:
        rlx.set_num_threads(before)
    assert_close(result, np.asarray(expected, np.float32), rtol=1e-4, atol=2e-4)


def test_gradients_run_in_row_tiles_with_their_chunked_sums():
    def loss(w, b, g, x):
        y = rlx.nn.gelu(x @ w + b)
        y = (y - y.mean(-1, keepdims=True)) / rnp.sqrt(y.var(-1, keepdims=True) + 1e-5) * g
        return (y * y * y).sum()

    args = (floats(64, 128), floats(128), floats(128), floats(2048, 64))
    plan = plan_of(rlx.grad(loss, argnums=(0, 1, 2, 3)), *args)
    inner = [k for row_tiles in row_tiles_of(plan) for k in row_tiles.kernels]
    assert any(isinstance(k, Loops) and k.chunks > 1 for k in inner)
    expected = rlx.grad(loss, argnums=(0, 1, 2, 3))(*(np.float64(a) for a in args))
    result = rlx.jit(rlx.grad(loss, argnums=(0, 1, 2, 3)))(*args)
    for got, wanted in zip(result, expected, strict=True):
        scale = float(np.abs(np.asarray(wanted)).max())
        np.testing.assert_allclose(np.asarray(got) / scale, np.asarray(wanted) / scale, atol=3e-5)


def test_row_tiles_and_separate_kernels_agree_bit_for_bit_with_one_tile_each():
    x, w = floats(4, 2048, 64), floats(64, 64)
    run = {}
    for least in (0, 4):
        plan = plan_of(lambda x, w: rnp.tanh(rnp.tanh(x @ w) @ w), x, w, least=least)
        assert bool(row_tiles_of(plan)) == bool(least)
        executable = backend_named("cpu").compile(plan)
        (storage,) = executable.run([from_numpy(a) for a in (x, w)])
        run[least] = storage.view(x.shape, x.dtype).copy()
    np.testing.assert_allclose(run[0], run[4], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: rnp.tanh(x @ w).T @ x,  # the second product reads every row
        lambda x, w: rnp.cumsum(rnp.tanh(x @ w), 0),  # rows depend on the rows before
        lambda x, w: rnp.flip(rnp.tanh(x @ w), 0) @ w,  # other rows are read
        lambda x, w: rnp.tanh(x @ w)[rnp.arange(1024) % 7],  # computed places
    ],
    ids=["all rows", "running", "other rows", "gathered"],
)
def test_kernels_that_touch_other_tiles_stay_out(f):
    x, w = floats(1024, 64), floats(64, 64)
    plan = plan_of(f, x, w)
    for row_tiles in row_tiles_of(plan):
        written = {b for k in row_tiles.kernels for b in k.writes}
        read = {b for k in row_tiles.kernels for b in k.reads}
        for kernel in row_tiles.kernels:
            for buffer in {*kernel.reads, *kernel.writes} & written & read:
                assert stays_in_row_tiles(kernel, buffer, row_tiles.count)
    np.testing.assert_allclose(rlx.jit(f)(x, w), f(x, w), rtol=2e-4, atol=2e-4)


def test_long_attention_goes_by_blocks_of_queries_forward_and_backward():
    q, k, v = (floats(2, 1100, 4, 32) for _ in range(3))

    def loss(q, k, v):
        return (rlx.nn.dot_product_attention(q, k, v, is_causal=True) ** 3).sum()

    plan = rlx.inspect(rlx.grad(loss, argnums=(0, 1, 2)))(q, k, v).plan
    assert plan.arena < 2 * 4 * 1100 * 1100 * 4 / 3  # of the scores in float32
    got = rlx.jit(rlx.grad(loss, argnums=(0, 1, 2)))(q, k, v)
    allowed = np.tril(np.ones((1100, 1100), bool))

    def plain(q, k, v):
        scores = rnp.where(allowed, rnp.einsum("bqhd,bkhd->bhqk", q, k) / 32**0.5, -1e30)
        return (rnp.einsum("bhqk,bkhd->bqhd", rlx.nn.softmax(scores, -1), v) ** 3).sum()

    for result, expected in zip(got, rlx.jit(rlx.grad(plain, argnums=(0, 1, 2)))(q, k, v), strict=True):
        scale = float(np.abs(np.asarray(expected)).max())
        np.testing.assert_allclose(np.asarray(result) / scale, np.asarray(expected) / scale, atol=1e-5)


def test_a_value_with_readers_outside_is_not_local():
    def f(x, w):
        h = rnp.tanh(x @ w)
        return h, h @ w

    plan = plan_of(f, floats(1024, 64), floats(64, 64))
    (kernel,) = row_tiles_of(plan)
    assert {b.role for b in kernel.writes} == {"output"}
    assert all(b.role == "temporary" for b in kernel.local)


def test_little_work_is_not_worth_row_tiles():
    assert not row_tiles_of(plan_of(mlp, floats(8, 4), floats(4, 8), floats(8), floats(8, 4)))


def product(lhs: Buffer, rhs: Buffer, out: Buffer, rows: int, size: int) -> Contract:
    def view(buffer, *shape):
        return Operand(buffer, (1, *shape), (0, shape[1], 1))

    return Contract(view(lhs, rows, size), view(rhs, size, size), view(out, rows, size))


def chain(rows=1024, size=64):
    f = np.dtype("f4")
    x, w = Buffer(f, rows * size, "input"), Buffer(f, size * size, "input")
    h, y = Buffer(f, rows * size), Buffer(f, rows * size, "output")
    return x, w, h, y, [product(x, w, h, rows, size), product(h, w, y, rows, size)]


def grouped_kernels(kernels):
    return group_row_tiles(Plan((), (), (), tuple(kernels)), LoweringOptions(least_row_tiles=4)).kernels


def test_grouping_keeps_kernels_that_depend_on_the_group_behind_it():
    x, w, h, y, kernels = chain()
    other, last = Buffer(np.dtype("f4"), 64 * 64), Buffer(np.dtype("f4"), 1024 * 64, "output")
    turned, rows = Operand(h, (1, 64, 1024), (0, 1, 64)), Operand(x, (1, 1024, 64), (0, 64, 1))
    across = Contract(turned, rows, Operand(other, (1, 64, 64), (0, 64, 1)))
    grouped = grouped_kernels([kernels[0], across, product(x, other, last, 1024, 64), kernels[1]])
    assert isinstance(grouped[0], RowTiles)
    assert grouped[0].kernels == tuple(kernels)
    assert not grouped[0].local
    assert grouped[1] is across


def test_kernels_moved_before_a_group_form_groups_that_keep_what_others_need():
    """A group among kernels that run before another one sees the rest of the plan too."""
    f = np.dtype("f4")
    x, w = Buffer(f, 1024 * 64, "input"), Buffer(f, 64 * 64, "input")
    first, second, third = Buffer(f, 1024 * 64), Buffer(f, 1024 * 64), Buffer(f, 1024 * 64)
    apart = [Buffer(f, 1024 * 64) for _ in range(2)]
    out = Buffer(f, 64 * 64, "output")
    turned = Operand(apart[0], (1, 64, 1024), (0, 1, 64))
    last = Contract(turned, Operand(apart[1], (1, 1024, 64), (0, 64, 1)), Operand(out, (1, 64, 64), (0, 64, 1)))
    kernels = [
        product(x, w, first, 1024, 64),
        product(x, w, apart[0], 1024, 64),
        product(apart[0], w, apart[1], 1024, 64),
        product(first, w, second, 1024, 64),
        product(second, w, third, 1024, 64),
        last,
    ]
    grouped = grouped_kernels(kernels)
    local = {b for row_tiles in grouped if isinstance(row_tiles, RowTiles) for b in row_tiles.local}
    assert local.isdisjoint(apart)
    assert [type(k) for k in grouped] == [RowTiles, Contract, RowTiles]


def test_verification_refuses_what_crosses_row_tiles():
    x, w, h, y, kernels = chain()
    row_tiles = RowTiles(1000, tuple(kernels), (), 0)
    with pytest.raises(VerificationError, match="cannot be cut"):
        verify_plan(Plan((x, w), (y,), (x, w, h, y), (row_tiles,)), placed=False)
    crossed = RowTiles(64, (kernels[0], product(h, h, y, 64, 64)), (), 0)
    with pytest.raises(VerificationError, match="across row tiles"):
        verify_plan(Plan((x, w), (y,), (x, w, h, y), (crossed,)), placed=False)


def test_iterations_of_kernels():
    *_, kernels = chain()
    assert [iterations(k) for k in kernels] == [1024, 1024]
    assert iterations(Kernel()) == 1


def test_form_follows_threads_and_cache():
    *_, kernels = chain(rows=1 << 16)
    (row_tiles,) = grouped_kernels(kernels)
    assert isinstance(row_tiles, RowTiles)
    one, many = row_tile_form(row_tiles, 1), row_tile_form(row_tiles, 16)
    assert one.workers == 1
    assert many.workers == 16
    assert one.row_tiles >= 32  # 32 MiB are written: row tiles of less than 1 MiB
    assert one.longest * one.row_tiles >= row_tiles.count
