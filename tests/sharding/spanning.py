"""Programs on meshes over two and four processes, each with some devices, against one process with as many devices.

Processes are threads. The number of devices is read when rlx is imported, so that tests start this file with
RLX_NUM_CPU_DEVICES=4; it prints what went wrong with each case.
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
from rlx.parallel import feed_forward
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P

X = np.sin(np.arange(64.0)).reshape(8, 8)
W = np.cos(np.arange(24.0)).reshape(8, 3)
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


class Case(NamedTuple):
    """A function of parts, how its arguments and its result are divided, and over which mesh."""

    function: Callable[..., Any]
    in_specs: tuple[Any, ...]
    out_specs: Any
    axes: dict[str, int]
    check_vma: bool = True


CASES: dict[str, Case] = {}


def case(in_specs: tuple[Any, ...], out_specs: Any, check_vma: bool = True, **axes: int) -> Callable[..., Any]:
    """Take a function as a case."""

    def take(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[function.__name__] = Case(function, in_specs, out_specs, axes, check_vma)
        return function

    return take


@case((P("i"), P()), P(), i=4)
def psum(x, w):
    return lax.psum(jnp.sin(x @ w), "i")


@case((P("i", "j"), P("j")), P("i"), i=2, j=2)
def product(x, w):
    return lax.psum(x @ w, "j")


@case((P("i", "j"), P()), P(), i=2, j=2)
def mean_of_both(x, w):
    return lax.pmean((x**2).mean() * w, ("i", "j"))


@case((P(("i", "j")), P()), (P(("i", "j")), P("j", "i")), i=2, j=2)
def two_axes_divide_one(x, w):
    position = lax.axis_index(("i", "j"))
    return x @ w + position, jnp.outer(w[0], w[1])[:2, :2] * (1.0 + position)


@case((P("i"), P()), P(), i=4)
def extrema(x, w):
    return lax.pmax(x * w[0, 0], "i") - lax.pmin(jnp.round(x), "i")


@case((P("i"), P()), P(None, "i"), i=4)
def gathered(x, w):
    rows = lax.all_gather(x @ w, "i", tiled=True)
    return rows * (1.0 + lax.axis_index("i"))


@case((P("i"), P()), P("i"), i=4)
def scattered(x, w):
    return lax.psum_scatter(x.T @ jnp.sin(x), "i", tiled=True) @ w


@case((P("i"), P()), P("i"), i=4)
def ring(x, w):
    return lax.ppermute(x @ w, "i", RING) * x[:, :1] + lax.ppermute(x @ w, "i", [(3, 0), (0, 2)])


@case((P("i"), P()), P(None, "i"), i=4)
def all_to_all(x, w):
    return lax.all_to_all(x, "i", 1, 0, tiled=True) * w[:1, :1]


@case((P(None, "i"), P()), P("i"), i=4)
def dealt(x, w):
    return lax.all_to_all(jnp.sin(x).reshape(4, 2, 2), "i", 0, 1).reshape(2, 8) * w[0, 0]


@case((P("i"), P()), P(), i=4)
def gradient_inside(x, w):
    return rlx.grad(lambda w: lax.pmean(jnp.sin(x @ w).mean(), "i"))(w)


@case((P("i", "j"), P("j")), P("j"), i=2, j=2)
def gradient_inside_of_divided(x, w):
    return rlx.grad(lambda w: lax.psum(jnp.tanh(lax.psum(x @ w, "j")).sum(), "i"))(w)


@case((P("i"), P()), P("i"), i=4)
def gradient_by_the_own(x, w):
    return rlx.grad(lambda x: lax.psum(jnp.sin(x @ w).sum() ** 2, "i"))(x)


@case((P("i"), P()), P("i"), i=4)
def loop(x, w):
    def body(carry, row):
        total = lax.psum(carry * row.sum(), "i") / 4
        return total, total * row

    return lax.scan(body, w[0, 0] ** 2, x)[1]


@case((P("i"), P()), P("i"), i=4)
def jitted_inside(x, w):
    return rlx.jit(lambda x: x - lax.pmean(x, "i"))(x) @ w


@case((P("i"), P()), P("i"), i=4)
def groups(x, w):
    return lax.psum(x @ w, "i", axis_index_groups=[[0, 2], [1, 3]]) * x[:, 1:2]


@case((P("i"), P()), P("i"), i=4)
def loops_of_different_lengths(x, w):
    def body(carry):
        return carry + 1.0 + 0.01 * lax.pmean(carry, "i")

    ragged = rlx.jit(lambda x: lax.while_loop(lambda c: c[0] < 4.0 + 3.0 * lax.axis_index("i"), body, x[:, 0]))
    alone = lax.while_loop(lambda c: c[0] < lax.axis_index("i"), lambda c: c + 1.0, x[:, 1])
    return x @ w + lax.stop_gradient(ragged(x) + alone)[:, None]


@case((P("i"), P()), P("i"), i=4)
def random(x, w):
    key = rlx.random.fold_in(rlx.random.key(3), lax.axis_index("i"))
    return x @ w + rlx.random.normal(key, (2, 3), dtype=x.dtype)


@case((P("i"), P()), P("i"), i=4)
def one_device_alone_needs_the_sum(x, w):
    first = lax.axis_index("i") == 0
    chosen = lax.cond(first, lambda y: lax.pcast(2 * lax.pmean(y, "i"), "i", to="varying"), jnp.sin, x)
    return jnp.where(first, lax.psum(x @ w, "i"), 0.0) + chosen[:, :3]


@case((P(), P("i")), P(), i=4)
def divided_layers(x, w):
    up, down = jnp.tanh(x[:, :2] @ w), jnp.concatenate([w] * 4).T
    return feed_forward(x, up, down, "i")


@case((P(), P("i")), P(), check_vma=False, i=4)
def divided_layers_of_untracked_copies(x, w):
    return divided_layers(x, w)


@case((P("i"), P()), P(), check_vma=False, i=4)
def first_counts(x, w):
    return jnp.sin(x @ w)


def device_mesh(axes: dict[str, int], swapped: bool) -> Mesh:
    """A mesh of the first devices of each process; `swapped`: the last axis goes over processes, the first inside."""
    here = len(rlx.process_indices())
    each = 4 // here
    devices = [d for rank in range(here) for d in rlx.local_devices(rank)[:each]]
    shape = tuple(axes.values())
    grid = np.array(devices).reshape(shape[::-1] if swapped else shape)
    return Mesh(grid.T if swapped else grid, tuple(axes))


def results(given: Case, swapped: bool = False) -> list[np.ndarray]:
    """Values, as they are and jitted, and derivatives of both modes."""
    mesh = device_mesh(given.axes, swapped)
    options = dict(mesh=mesh, in_specs=given.in_specs, out_specs=given.out_specs, check_vma=given.check_vma)
    mapped = rlx.shard_map(given.function, **options)
    places = [NamedSharding(mesh, spec) for spec in given.in_specs]
    x, w = rlx.device_put([X, W], places)

    @rlx.shard_map(mesh=mesh, in_specs=(given.out_specs,), out_specs=P())
    def loss(out):
        parts = [(jnp.cos(leaf) * (leaf + 1.0)).sum() for leaf in rlx.tree.leaves(out)]
        return lax.psum(sum(parts), tuple(given.axes))

    def whole(x, w):
        return loss(mapped(x, w))

    found = [mapped(x, w)]
    found.append(rlx.grad(whole, (0, 1))(x, w))
    found.append(rlx.jit(lambda x, w: (mapped(x, w), rlx.grad(whole, (0, 1))(x, w)))(x, w))
    found.append(rlx.jvp(whole, (x, w), (x, w))[1])
    found.append(rlx.grad(lambda w: rlx.grad(lambda w: whole(x, w) ** 2)(w).sum())(W))
    if not x.is_fully_addressable and given.in_specs[0] != P():
        assert all(gradient[0].sharding.is_equivalent_to(places[0], x.ndim) for gradient in (found[1], found[2][1]))
    leaves = rlx.tree.leaves(found)
    return [np.asarray(leaf) if leaf.is_fully_addressable else process_allgather(leaf) for leaf in leaves]


def alone(function: Callable[..., Any], *args: Any) -> Any:
    """What one process finds."""
    return threads.run(1, function, *args)[0]


def run(name: str) -> str:
    """What went wrong with a case, or nothing."""
    try:
        given = CASES[name]
        expected = alone(results, given)
        for count, swapped in ((4, False), (2, False), *([(2, True)] if len(given.axes) > 1 else [])):
            for found in threads.run(count, results, given, swapped):
                for number, (a, b) in enumerate(zip(found, expected, strict=True)):
                    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=f"{count} {swapped} {number}")
    except Exception:
        return traceback.format_exc()[-3000:]
    return ""


if __name__ == "__main__":
    print(json.dumps({name: run(name) for name in sys.argv[1:] or CASES}))
