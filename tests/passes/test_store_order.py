"""Stores say whether it matters in which order iterations write: where it does not, a device may use atomics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.errors import VerificationError
from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Plan, Store, nested_plans
from rlx.ir.show_plan import show_plan
from rlx.ir.verify_plan import verify_plan
from rlx.passes.pipeline import lower_to_plan

X, ROWS, INDEX = np.zeros((9, 4), np.float32), np.ones((5, 4), np.float32), np.array([0, 3, 3, 8, 20])
SLICES = lax.ScatterDimensionNumbers((1,), (0,), (0,))


def scattered(mode: str, unique: bool) -> Callable[..., Any]:
    def function(x, i, rows):
        return lax.scatter(x, i[:, None], rows, SLICES, unique_indices=unique, mode=mode)

    return function


def orders(function: Callable[..., Any], *args: Any) -> set[str]:
    """The orders of stores to computed places."""
    return {store.order for store in stores(lower_to_plan(rlx.make_program(function)(*args))) if store.address}


def stores(plan: Plan) -> Iterator[Store]:
    for kernel in plan.kernels:
        yield from kernel.stores if isinstance(kernel, Loops) else ()
        for inner in nested_plans(kernel):
            yield from stores(inner)


@pytest.mark.parametrize(("function", "order"), [
    (lambda x, i, r: x.at[i].set(r), "sequential"),
    (scattered("fill", False), "sequential"),
    (scattered("clip", True), "sequential"),
    (scattered("fill", True), "any"),
    (lambda x, i, r: x.at[i].add(r), "any"),
    (lambda x, i, r: x.at[i].multiply(r), "any"),
    (lambda x, i, r: x.at[i].min(r), "any"),
    (lambda x, i, r: (x > 0).at[i].max(r > 0), "any"),
    (lambda x, i, r: x.at[i[0]].set(r[0]), "any"),
    (lambda x, i, r: lax.dynamic_update_slice(x, r, (i[0], i[1])), "any"),
    (lambda x, i, r: rlx.vmap(lambda x, r: x.at[i[0]].set(r))(x[:5], r[:, 0]), "any"),
    (lambda x, i, r: rlx.grad(lambda x: (x[i] * r).sum())(x), "any"),
    (lambda x, i, r: lax.scan(lambda c, j: (c.at[j].set(0.0), None), x, i)[0], "any"),
])  # fmt: skip
def test_orders_of_scatters(function, order):
    assert orders(function, X, INDEX, ROWS) == {order}


def test_stores_at_known_places_are_in_any_order():
    def function(x):
        return jnp.concatenate([x, x.T @ x]), jnp.pad(x, 1), x.sum(0), jnp.cumsum(x, 1), x.at[2:5].set(1.0)

    plan = lower_to_plan(rlx.make_program(function)(X))
    assert {store.order for store in stores(plan)} == {"any"}


def test_plans_show_the_order():
    plan = lower_to_plan(rlx.make_program(lambda x, i, r: x.at[i].set(r))(X, INDEX, ROWS))
    assert "order='sequential'" in show_plan(plan) and "order='any'" in show_plan(plan)


def test_what_overwrites_an_element_says_so():
    """One element for all iterations of an outer dimension: only in order it has a meaning."""
    x, y = Buffer(np.dtype("f4"), 6, "input"), Buffer(np.dtype("f4"), 3, "output")
    load = Instruction("load", (), np.dtype("f4"), Access(0, (3, 1)))
    last = Loops((2, 3), 2, (x, y), (load,), (Store(0, Access(1, (0, 1)), order="sequential"),))

    def plan(kernel: Loops) -> Plan:
        return Plan((x,), (y,), (x, y), (kernel,))

    verify_plan(plan(last))
    for store, what in (
        (replace(last.stores[0], order="any"), r"in any order, along dimensions \[0\]"),
        (replace(last.stores[0], order="none"), "'none' is not an order"),
    ):
        with pytest.raises(VerificationError, match=what):
            verify_plan(plan(replace(last, stores=(store,))))
    summed = replace(last.stores[0], order="any", accumulate="add", initialize=True)
    verify_plan(plan(replace(last, stores=(summed,))))
