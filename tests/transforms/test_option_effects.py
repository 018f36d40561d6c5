"""Options that change how something is computed, not its value: each is tested by its effect.

Every policy of checkpoint_policies has a row that says which values are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_store_order import orders

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.ad_checkpoint import checkpoint_name, print_saved_residuals
from rlx.distributed.members import _reduced

POLICIES = rlx.checkpoint_policies
W = np.eye(2, dtype=np.float32) + 1
X = np.ones((3, 2), np.float32)


def model(w: Any, x: Any) -> Any:
    """Values with names "a" and "b", one without, a product without and one with batch dimensions."""
    a = checkpoint_name(jnp.sin(x), "a")
    b = checkpoint_name(jnp.sin(a) * 2, "b")
    product = jnp.sin(b) @ w
    mapped = rlx.vmap(jnp.dot)(jnp.sin(product), jnp.cos(product))
    return jnp.sin(mapped).sum()


DOTS = {"dot_general (3, 2)", "dot_general (3,)"}
PLAIN = {"dot_general (3, 2)"}
NAMES = {"a": {"a"}, "b": {"b"}}
KEPT: dict[str, tuple[Any, set[str], set[str]]] = {
    # the policy, what is kept of names and products, and of these what is not
    "nothing_saveable": (POLICIES.nothing_saveable, set(), {"a", "b", *DOTS}),
    "dots_saveable": (POLICIES.dots_saveable, DOTS, {"a", "b"}),
    "checkpoint_dots": (POLICIES.checkpoint_dots, DOTS, {"a", "b"}),
    "dots_with_no_batch_dims_saveable": (POLICIES.dots_with_no_batch_dims_saveable, PLAIN, {"a", "b", *(DOTS - PLAIN)}),
    "checkpoint_dots_with_no_batch_dims": (
        POLICIES.checkpoint_dots_with_no_batch_dims, PLAIN, {"a", "b", *(DOTS - PLAIN)},
    ),
    "offload_dot_with_no_batch_dims": (
        POLICIES.offload_dot_with_no_batch_dims("device", "host"), PLAIN, {"a", "b", *(DOTS - PLAIN)},
    ),
    "save_only_these_names": (POLICIES.save_only_these_names("a"), {"a"}, {"b", *DOTS}),
    "save_any_names_but_these": (POLICIES.save_any_names_but_these("a"), {"b"}, {"a", *DOTS}),
    "save_from_both_policies": (
        POLICIES.save_from_both_policies(POLICIES.save_only_these_names("b"), POLICIES.dots_saveable),
        {"b", *DOTS}, {"a"},
    ),
    "save_and_offload_only_these_names": (
        POLICIES.save_and_offload_only_these_names(
            names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"], offload_src="device", offload_dst="host"
        ),
        {"a", "b"}, DOTS,
    ),
}  # fmt: skip
# these keep more than names and products
BROAD = {
    "everything_saveable": POLICIES.everything_saveable,
    "save_anything_except_these_names": POLICIES.save_anything_except_these_names("a"),
}


def asked(policy: Callable[..., bool]) -> tuple[set[str], set[str]]:
    """What the policy keeps of the model's equations, and what it does not: names, or primitives and shapes."""
    kept, dropped = set(), set()

    def recording(primitive: Any, *types: Any, **params: Any) -> bool:
        answer = policy(primitive, *types, **params)
        label = primitive.name
        if label == "checkpoint_name":
            label = params["name"]
        elif label == "dot_general":
            batch = params["dimension_numbers"][1][0]
            label = f"dot_general {(3,) if batch else (3, 2)}"
        (kept if answer else dropped).add(label)
        return answer

    rlx.grad(rlx.checkpoint(model, policy=recording))(W, X)
    return kept, dropped


def residuals(capsys: pytest.CaptureFixture[str], policy: Any) -> str:
    print_saved_residuals(rlx.checkpoint(model, policy=policy), W, X)
    return capsys.readouterr().out


def test_every_policy_has_a_row() -> None:
    assert {name for name in vars(POLICIES) if not name.startswith("_")} == {*KEPT, *BROAD}


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", KEPT)
def test_what_a_policy_keeps(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """As it answers, and as what the derivative keeps."""
    policy, wanted, unwanted = KEPT[name]
    kept, dropped = asked(policy)
    assert kept == wanted and unwanted <= dropped
    lines = residuals(capsys, policy)
    for label in ("a", "b"):
        assert (f"named {label!r}" in lines) == (label in wanted), lines
    assert lines.count("dot_general") == len({part for part in wanted if part.startswith("dot")}), lines
    expected = rlx.grad(model)(W, X)
    np.testing.assert_allclose(rlx.grad(rlx.checkpoint(model, policy=policy))(W, X), expected, rtol=1e-5)


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", BROAD)
def test_policies_that_keep_almost_everything(name: str) -> None:
    kept, dropped = asked(BROAD[name])
    assert {"sin", "b", *DOTS} <= kept
    assert dropped == ({"a"} if "except" in name else set())


# ------------------------------------------------------------------ deterministic
SCATTERS: dict[str, tuple[Any, Any, str]] = {
    # floats: rounding depends on the order; integers and extremes do not
    "add": (lambda x, i, u: x.at[i].add(u), np.float32, "sequential"),
    "multiply": (lambda x, i, u: x.at[i].multiply(u), np.float32, "sequential"),
    "gradient of a gather": (lambda x, i, u: rlx.grad(lambda x: (x[i] * u).sum())(x), np.float32, "sequential"),
    "complex": (lambda x, i, u: x.at[i].add(u), np.complex64, "sequential"),
    "integers": (lambda x, i, u: x.at[i].add(u), np.int32, "any"),
    "max": (lambda x, i, u: x.at[i].max(u), np.float32, "any"),
    "set": (lambda x, i, u: x.at[i].set(u), np.float32, "sequential"),
}


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", SCATTERS)
def test_deterministic_scatters(name: str) -> None:
    function, dtype, order = SCATTERS[name]
    args = np.zeros(9, dtype), np.array([0, 3, 3, 8]), np.ones(4, dtype)
    with rlx.scoped(deterministic=True):
        assert orders(function, *args) == {order}
    assert orders(function, *args) == {"sequential" if name == "set" else "any"}


@pytest.mark.selected("all")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.complex64])
@pytest.mark.parametrize("op", ["sum", "prod"])
def test_deterministic_reductions_are_exact(op: str, dtype: Any) -> None:
    """In float64: numbers that leave float32's range, or its precision, on the way come back."""
    numbers = [2.0**24, 1.0, 1.0, -(2.0**24)] if op == "sum" else [1e30, 1e30, 1e-30, 1e-30]
    if dtype is np.float16:
        numbers = [2048.0, 1.0, -2048.0, 2.0**-24] if op == "sum" else [1e4, 1e4, 1e-4, 1e-4]
    rows = [np.full(2, n, dtype) for n in numbers]
    wide = np.array(rows).astype(np.complex128 if dtype is np.complex64 else np.float64)
    expected = (wide.sum(0) if op == "sum" else wide.prod(0)).astype(dtype)
    found = np.empty(2, dtype)
    _reduced(rows, found, op, "deterministic")
    np.testing.assert_array_equal(found, expected)
    if dtype is not np.float16:  # which are added in float32 anyway
        _reduced(rows, found, op, "fast")
        assert not np.array_equal(found, expected)


def test_integers_are_reduced_as_they_are() -> None:
    rows = [np.full(2, 2**53 + 1, np.int64), np.ones(2, np.int64)]
    for mode in ("fast", "deterministic"):
        found = np.empty(2, np.int64)
        _reduced(rows, found, "sum", mode)
        assert found.tolist() == [2**53 + 2] * 2


# ------------------------------------------------------------------ loops whose carries are updated in place
def test_a_carry_that_is_read_after_it_was_written() -> None:
    """The place that is read depends on the carry after the write; the values are those before it."""

    def step(c: Any, x: Any) -> Any:
        after = c.at[x].set(9.0)
        return after, c[jnp.argsort(after)[-1]] + 1

    found = rlx.jit(lambda c, xs: lax.scan(step, c, xs))(np.array([1.0, 2.0, 3.0], np.float32), np.arange(3))
    np.testing.assert_array_equal(found[0], [9.0, 9.0, 9.0])
    np.testing.assert_array_equal(found[1], [2.0, 3.0, 4.0])


@pytest.mark.selected("all")
@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_carries_that_are_handed_on_unchanged(used: tuple[int, ...]) -> None:
    """A shift register, of which only some results are used."""

    def loop(a: Any, b: Any, c: Any) -> Any:
        (a, b, c), _ = lax.scan(lambda carry, _: ((carry[1], carry[2], carry[0]), None), (a, b, c), None, 4)
        return [(a, b, c)[n] for n in used]

    given = [np.full(2, float(n)) for n in range(3)]
    expected = [given[(n + 4) % 3] for n in used]
    np.testing.assert_array_equal(rlx.jit(loop)(*given), expected)
