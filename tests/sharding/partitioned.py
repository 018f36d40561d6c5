"""Whole programs of divided arrays over two and four processes, against one process with as many devices.

Processes are threads. The number of devices is read when rlx is imported, so that tests start this file with
RLX_NUM_CPU_DEVICES=4; it prints what went wrong with each case. Results are compared in value, and in how they lie.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.distributed import threads
from rlx.experimental.multihost_utils import process_allgather
from rlx.sharding import NamedSharding
from rlx.sharding import PartitionSpec as P
from tests.sharding.spanning import W, X, alone, device_mesh


class Case(NamedTuple):
    """A function of whole arrays, how its arguments are divided, and over which mesh; whether derivatives, and how its
    results lie, are compared.
    """

    function: Callable[..., Any]
    specs: tuple[Any, ...]
    axes: dict[str, int]
    derivatives: bool = True
    lies: bool = True


CASES: dict[str, Case] = {}


def case(*specs: Any, derivatives: bool = True, lies: bool = True, **axes: int) -> Callable[..., Any]:
    """Take a function as a case."""

    def take(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[function.__name__] = Case(function, specs, axes, derivatives, lies)
        return function

    return take


@case(P("i"), P(), i=4)
def layer(x, w):
    return jnp.tanh(x @ w) + 1.0


@case(P("i", "j"), P("j"), i=2, j=2)
def product_over_divided_axes(x, w):
    return x @ w


@case(P("i"), P(("i",)), i=4)
def the_second_operand_is_gathered(x, w):
    return x @ w


@case(P(("i", "j")), P("j"), i=2, j=2)
def two_axes_divide_one(x, w):
    return jnp.sin(x) @ w, x.T @ w, (x * w[:, :1]).sum(1)


@case(P("i"), P(), i=4)
def loss(x, w):
    return jnp.mean((x @ w - 0.5) ** 2) + jnp.abs(w).max()


@case(P("i"), P("i"), i=4)
def reductions(x, w):
    return x.sum(0), x.mean(), x.max(1), jnp.prod(w, 0), jnp.var(x), rlx.nn.logsumexp(x, 0)


@case(P("i"), P(), i=4, derivatives=False)
def integers_and_bools(x, w):
    n = jnp.round(4 * x).astype(jnp.int32)
    return n.sum(), n.max(0), (x > 0).any(), (x > -2).all(0), jnp.argmax(x, 1), jnp.argmax(x), (n & 3).sum(1)


@case(P("i"), P(), i=4)
def shapes(x, w):
    rows = x.reshape(4, 2, 8).transpose(1, 0, 2)
    return rows, rows.reshape(8, 8), x[:, 1:5], x[2:6], jnp.concatenate([x, 2 * x], 1), jnp.pad(x, 1), x.ravel()


@case(P(("i", "j")), P(), i=2, j=2)
def merged_and_split(x, w):
    return x.reshape(64), x.reshape(4, 2, 8) + 1.0, x.reshape(2, 4, 8) * 2.0


@case(P("i"), P(), i=4)
def softmax_and_norm(x, w):
    return rlx.nn.softmax(x @ w), rlx.nn.standardize(x, axis=-1), rlx.nn.relu(x)


@case(P("i"), P(), i=4, derivatives=False)
def order(x, w):
    return jnp.sort(x, 1), jnp.sort(x, 0), jnp.cumsum(x, 1), jnp.cumsum(x, 0), x[::-1], x[jnp.array([3, 1])]


@case(P("i"), P(), lies=False, i=4)
def loops(x, w):
    total = lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) + x, x)
    rows = lax.scan(lambda c, _: (c + (x @ c).mean(0), c.sum()), w[:, 0], None, length=2)
    return total, rows, lax.cond(w[0, 0] > 0, lambda x: 2 * x, jnp.cos, x)


@case(P("i"), P(), i=4)
def scan_along_the_divided_axis(x, w):
    return lax.scan(lambda c, row: (jnp.tanh(c + row @ w), c * row[:3]), w[0], x)


@case(P(None, "i"), P(), lies=False, i=4)
def scan_along_another_axis(x, w):
    last, sums = lax.scan(lambda c, row: (jnp.sin(c) + row, (c * row).sum()), x[0], x)
    rows = lax.map(lambda row: (2 * row, row.max()), x)
    return last, sums, rows


@case(P("i", "j"), P("j"), i=2, j=2)
def scan_over_two_divided_axes(x, w):
    return lax.scan(lambda c, at: (c + at[0] @ w, at[0] * at[1]), w[0], (x, jnp.arange(8.0)), reverse=True)


@case(P("i"), P(), lies=False, i=4)
def carries_lie_as_at_first(x, w):
    gathered = lax.fori_loop(0, 2, lambda _, c: jnp.sin(c[::-1] @ c.T @ c), x)
    divided = lax.scan(lambda c, row: (c * row[0] + x, c.sum()), x, w)
    return gathered, divided, lax.scan(lambda c, _: (x @ c.T @ c, None), jnp.ones_like(w @ w.T), None, length=2)[0]


@case(P("i"), P(), i=4)
def mapped(x, w):
    return rlx.vmap(lambda row: jnp.sin(row @ w))(x), rlx.vmap(lambda column: column.sum(), 1)(x)


@case(P("i"), P(), i=4)
def inner_functions(x, w):
    @rlx.custom_jvp
    def square(x):
        return x**2

    square.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))
    return rlx.jit(lambda x, w: x @ w)(x, w), rlx.checkpoint(jnp.sin)(x), square(x)


@case(P("i"), P(), i=4)
def rules_of_reverse_mode(x, w):
    @rlx.custom_vjp
    def product(x, w):
        return x @ w

    product.defvjp(lambda x, w: (x @ w, (x, w)), lambda kept, ct: (ct @ kept[1].T, kept[0].T @ ct))
    return rlx.grad(lambda x, w: jnp.sin(product(x, w)).sum(), (0, 1))(x, w)


@case(P("i"), P(), i=4)
def gradients_inside(x, w):
    def loss(w, x):
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    return rlx.grad(loss)(w, x), rlx.grad(loss, 1)(w, x), rlx.jvp(lambda w: loss(w, x), (w,), (w,))[1]


@case(P("i"), P(), i=4)
def constraints(x, w):
    mesh = device_mesh({"i": 4}, False)
    columns = lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P(None, "i")))
    whole = lax.with_sharding_constraint(columns + 1, NamedSharding(mesh, P()))
    return columns, whole, lax.with_sharding_constraint(whole @ w, NamedSharding(mesh, P("i")))


@case(P("i"), P(), i=4)
def beside_shard_map(x, w):
    mesh = device_mesh({"i": 4}, False)
    centred = rlx.shard_map(lambda x: x - lax.pmean(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    return centred(2 * x) @ w


# ------------------------------------------------------------- branches and carries that are divided differently
@case(P("i"), P(), i=4)
def branches_that_are_divided_differently(x, w):
    def tree(x):
        return {"a": x * 2, "b": (x.T, x.sum(0))}

    def other(x):
        return {"a": x[::-1], "b": (x, x[:, 0])}

    whole = lax.cond(jnp.isfinite(x).all(), lambda x: x, lambda x: jnp.zeros((8, 8), x.dtype), x)
    chosen = (jnp.abs(x).sum() * 9).astype(int) % 3
    return whole, lax.cond(x.sum() > 0, tree, other, x), lax.switch(chosen, [jnp.sort, jnp.cos, lambda x: 0 * X], x)


@case(P("i", "j"), P(), lies=False, i=2, j=2)
def carries_that_become_divided(x, w):
    zeros = np.zeros((8, 8))
    total, sums = lax.scan(lambda c, _: (jnp.sin(c) + x, c.sum(0)), zeros, length=3)
    pair = lax.scan(lambda c, _: ((c[1], c[0] + x), None), (zeros, zeros), length=4)[0]
    several = lax.fori_loop(0, 3, lambda n, c: {"g": c["g"] + n * x, "n": c["n"] + x.sum()}, {"g": zeros, "n": 0.0})
    return total, sums, pair, several, lax.fori_loop(0, 2, lambda _, c: c.T + x, zeros)


@case(P("i"), P(), i=4)
def branches_in_loops_and_loops_in_branches(x, w):
    zeros = np.zeros((8, 8))

    def either(c, n):
        return lax.cond(n % 2 == 0, lambda c: c + x, lambda c: zeros, c), n

    inner = lax.scan(lambda c, _: (lax.scan(lambda d, _: (d + x, None), c, length=2)[0], c.sum(1)), zeros, length=2)
    outer = lax.cond(x.sum() > 9, lambda x: lax.fori_loop(0, 2, lambda _, c: c + x, zeros), lambda x: zeros + x[0], x)
    return lax.scan(either, zeros, jnp.arange(3)), inner, outer


@case(P("i"), P(), i=4)
def gradients_that_are_added_up(x, w):
    def of_row(total, row):
        return total + rlx.grad(lambda x: jnp.sin(x @ row).sum())(x), None

    return lax.scan(of_row, jnp.zeros_like(x), w.T)[0], jnp.full_like(x, w[0, 0]), lax.full_like(x, 2.0)


# ------------------------------------------------------------- operations along a divided axis, over several meshes
def along(function: Callable[..., Any]) -> Callable[..., Any]:
    """Take a function as cases over one axis, with derivatives, over two, and over two that divide one axis."""
    for name, spec, axes in (("i", P("i"), {"i": 4}), ("ij", P("i", "j"), GRID), ("pair", P(("i", "j")), GRID)):
        CASES[f"{function.__name__}_{name}"] = Case(function, (spec, P()), axes, derivatives=name == "i")
    return function


GRID = {"i": 2, "j": 2}
PLACES = np.array([3, 1, 7, 3, -1, 20])


@along
def rows_that_move(x, w):
    return (
        x[:4],
        x[1:5],
        x[::2],
        x[5],
        x[1:3, 2:6],
        x[::-1],
        jnp.flip(x),
        jnp.roll(x, 3, 0),
        jnp.roll(x, -1, 0),
        jnp.concatenate([x, w @ w.T, x]),
        lax.pad(x, w[0, 0], ((3, 1, 0), (0, 0, 0))),
        lax.pad(x, w[0, 0], ((2, -1, 1), (1, 1, 0))),
        jnp.repeat(x, 2, 0),
    )


@along
def rows_by_number(x, w):
    number = (jnp.abs(w[0, 0]) * 5).astype(int)
    rows = lax.dynamic_slice(x, (number, 0), (2, 8)), lax.dynamic_slice(x, (number + 9, 1), (1, 4))
    return rows, lax.dynamic_update_slice(x, w[:3, :2], (number, 3)), x[number], x.at[number].set(w[:, 0])


@along
def rows_by_indices(x, w):
    wrapped = jnp.array([3, 1, 7])
    return (
        x[wrapped],
        x.at[PLACES].get(mode="fill", fill_value=2.5),
        x.at[PLACES].get(mode="clip"),
        jnp.take(x, PLACES % 8, 0),
        x[wrapped, jnp.array([0, 5, 5])],
        x.at[wrapped].set(w[:, :3].T @ w[:, :1] * x[0]),
        x.at[PLACES].add(w[:6, :1] * x[1], mode="drop"),
        x.at[np.array([3, 1, 7, 0, 2, 6])].multiply(w[:6, :1], unique_indices=True),
        x.at[wrapped, jnp.array([0, 5, 5])].min(w[0]),
        jnp.take_along_axis(x, wrapped[:, None], 0),
    )


@along
def rows_added_by_indices(x, w):
    places = np.arange(8) * 3 % 4
    return (
        rlx.ops.segment_sum(x, places, 4),
        jnp.asarray(np.zeros((4, 8))).at[places].add(x),
        (w @ w.T).at[places].add(2 * x),
    )


@along
def windows_over_rows(x, w):
    image, kernel = x[None, :, :, None], w[:3, :3].reshape(3, 3, 1, 1) * jnp.ones((1, 1, 1, 2))
    numbers = ("NHWC", "HWIO", "NHWC")

    def convolved(strides: Any, padding: Any, **options: Any) -> Any:
        return lax.conv_general_dilated(image, kernel, strides, padding, dimension_numbers=numbers, **options)

    return (
        convolved((1, 1), "SAME"),
        convolved((2, 1), "SAME"),
        convolved((1, 2), [(2, 2), (0, 1)], rhs_dilation=(2, 1)),
        convolved((1, 1), "VALID"),
        lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 2), "VALID"),
        lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), "SAME"),
        lax.reduce_window(x, np.inf, lax.min, (3, 2), (2, 1), "SAME"),
    )


@along
def rows_in_order(x, w):
    return (
        jnp.cumsum(x, 0),
        lax.cumsum(x, 0, reverse=True),
        jnp.cumprod(x, 0),
        lax.cummax(x, 0),
        lax.cummin(x, 0, reverse=True),
        lax.cumlogsumexp(x, 0),
        jnp.sort(x, 0),
        jnp.fft.fft(x, axis=0).real,
        jnp.fft.rfft(x, axis=0).imag,
        jnp.fft.irfft(jnp.fft.rfft(x, axis=0), axis=0),
    )


@along
def batched_routines(x, w):
    matrices = rlx.vmap(lambda row: jnp.outer(row, row) + 9 * np.eye(8))(x)
    return rlx.vmap(jnp.linalg.cholesky)(matrices), rlx.vmap(jnp.linalg.solve)(matrices, x), jnp.fft.rfft(x).real


@case(P("i"), P(), i=4, derivatives=False)
def positions_of_extrema(x, w):
    tied = jnp.round(x).at[3, 2].set(jnp.nan)
    return (
        x.argmax(0),
        x.argmin(0),
        tied.argmax(0),
        tied.argmin(),
        jnp.argsort(x, 0),
        (x > 0)[2:4],
        (x > 0)[np.array([1, 6])],
    )


def gathered(x: Any) -> np.ndarray:
    """All of an array."""
    return np.asarray(x) if x.is_fully_addressable or x.is_fully_replicated else process_allgather(x)


def results(given: Case, swapped: bool) -> tuple[list[Any], list[np.ndarray]]:
    """How results of the jitted function lie, and the values of those and of derivatives of both modes."""
    mesh = device_mesh(given.axes, swapped)
    x, w = rlx.device_put([X, W], [NamedSharding(mesh, spec) for spec in given.specs])
    found = rlx.jit(given.function)(x, w)
    specs = [getattr(leaf.sharding, "spec", None) for leaf in rlx.tree.leaves(found)]
    leaves = rlx.tree.leaves((found, rlx.jit(given.function)(2 * X, W)))
    if given.derivatives:

        def scalar(x: Any, w: Any) -> Any:
            return sum((jnp.cos(leaf) * (leaf + 1.0)).sum() for leaf in rlx.tree.leaves(given.function(x, w)))

        inside = rlx.jit(rlx.grad(scalar, (0, 1)))(x, w)
        outside = rlx.grad(rlx.jit(scalar), (0, 1))(x, w)
        forward = rlx.jit(lambda x, w: rlx.jvp(scalar, (x, w), (x, w))[1])(x, w)
        assert x.is_fully_addressable or inside[0].sharding == outside[0].sharding == x.sharding
        leaves += rlx.tree.leaves((inside, outside, forward))
    return specs, list(map(gathered, leaves))


def run(name: str) -> str:
    """What went wrong with a case, or nothing."""
    try:
        given = CASES[name]
        specs, values = alone(results, given, False)
        for count, swapped in ((4, False), (2, False), *([(2, True)] if len(given.axes) > 1 else [])):
            for found_specs, found in threads.run(count, results, given, swapped):
                assert found_specs == specs or not given.lies, (count, swapped, found_specs, specs)
                for number, (a, b) in enumerate(zip(found, values, strict=True)):
                    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=f"{count} {swapped} {number}")
    except Exception:
        return traceback.format_exc()[-3000:]
    return ""


if __name__ == "__main__":
    print(json.dumps({name: run(name) for name in sys.argv[1:] or CASES}))
