"""Mixed precision: what each policy narrows, what it never touches, and that transforms compose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
import rlx.nn
import rlx.numpy as jnp
from rlx.errors import RlxError
from rlx.ir.program import Equation, Program
from rlx.passes.pipeline import optimize
from rlx.precision import (
    AutoMixedPrecision,
    OperationKind,
    Precision,
    PrecisionPolicy,
    mixed_precision,
    mixed_program,
    operation_kind,
)
from rlx.trace.primitive import registry

rng = np.random.default_rng(7)
BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype("float16"), np.dtype("float32")
X = rng.normal(size=(8, 16)).astype("f4")
W = (rng.normal(size=(16, 16)) / 4).astype("f4")
B = rng.normal(size=16).astype("f4")
LABELS = np.arange(8) % 16
FULL, CONSERVATIVE = PrecisionPolicy.mixed(), PrecisionPolicy.mixed_conservative()


def network(w: Any, b: Any, x: Any) -> Any:
    h = jnp.maximum(x @ w + b, 0.0) * 0.5
    return h @ w


def loss(w: Any, b: Any, x: Any) -> Any:
    scores = rlx.nn.log_softmax(network(w, b, x))
    return -jnp.mean(jnp.take_along_axis(scores, LABELS[:, None], axis=1))


def equations(program: Program) -> list[Equation]:
    found = list(program.equations)
    for region in program.regions():
        found += equations(region)
    return found


def floats_of(program: Program, name: str) -> set[np.dtype]:
    """Dtypes of the float operands of all equations of a primitive."""
    return {
        a.type.dtype
        for e in equations(program)
        if e.primitive.name == name
        for a in e.inputs
        if a.type.dtype in (BF16, F16, F32)
    }


def rewritten(function: Callable[..., Any], policy: PrecisionPolicy, *args: Any) -> Program:
    return mixed_program(rlx.make_program(function)(*args), policy)


# ------------------------------------------------------------------ what is narrowed
def test_policies_narrow_kinds() -> None:
    found = rewritten(loss, FULL, W, B, X)
    assert floats_of(found, "dot_general") == {BF16}
    assert BF16 in floats_of(found, "maximum") and BF16 in floats_of(found, "add")
    for name in ("reduce_max", "reduce_sum", "exp", "log"):
        assert floats_of(found, name) == {F32}, name
    careful = rewritten(loss, CONSERVATIVE, W, B, X)
    assert floats_of(careful, "dot_general") == {BF16}
    assert floats_of(careful, "maximum") == floats_of(careful, "add") == {F32}
    everything = rewritten(loss, PrecisionPolicy.float16(), W, B, X)
    for name in ("dot_general", "exp", "reduce_max", "add"):
        assert floats_of(everything, name) == {F16}, name
    for program in (found, careful, everything):
        assert all(t.dtype == F32 for t in program.output_types)


def test_products_sum_in_float32() -> None:
    """Operands are rounded, their product is not."""
    x, w = X.astype(BF16).astype("f4"), W.astype(BF16).astype("f4")
    expected = x @ w
    for policy in (CONSERVATIVE, FULL, PrecisionPolicy.custom(compute="bfloat16")):
        found = mixed_precision(jnp.matmul, policy)(X, W)
        assert found.dtype == F32
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert not np.array_equal(np.asarray(found).astype(BF16).astype("f4"), np.asarray(found))


def test_elementwise_operations_round_like_ml_dtypes() -> None:
    found = mixed_precision(lambda x, y: x * y + x, FULL)(X, X[::-1])
    x, y = X.astype(BF16), X[::-1].astype(BF16)
    np.testing.assert_array_equal(np.asarray(found), (x * y + x).astype("f4"))


def test_convolutions_round_their_operands() -> None:
    image, kernel = rng.normal(size=(1, 2, 8, 8)).astype("f4"), rng.normal(size=(3, 2, 3, 3)).astype("f4")

    def convolved(a: Any, b: Any) -> Any:
        return rlx.lax.conv(a, b, (1, 1), "SAME")

    found = rlx.jit(mixed_precision(convolved, CONSERVATIVE))(image, kernel)
    narrow = [a.astype(BF16).astype("f4") for a in (image, kernel)]
    np.testing.assert_allclose(found, convolved(*narrow), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "kept",
    [
        rlx.nn.softmax,
        rlx.nn.log_softmax,
        rlx.nn.logsumexp,
        jnp.var,
        lambda x: (x - jnp.mean(x)) / jnp.sqrt(jnp.var(x) + 1e-5),
        lambda x: jnp.mean((x - 1.0) ** 2),
        lambda x: jnp.mean(jnp.abs(x * 0.3 - 1.0) + x),
        lambda x: jnp.linalg.svd(x * 2.0 + 1.0, compute_uv=False) - 0.1,
        lambda x: rlx.lax.lgamma(x * 3.0 + 0.1),
        lambda x: jnp.sort(x * 0.7 - 0.2),
    ],
)
def test_softmax_norms_and_losses_stay_float32(kept: Callable[..., Any]) -> None:
    np.testing.assert_array_equal(np.asarray(mixed_precision(kept, FULL)(X)), np.asarray(kept(X)))


def test_results_of_products_go_into_norms_unrounded() -> None:
    found = rewritten(lambda x, w: rlx.nn.softmax(jnp.reshape(x @ w, (16, 8)) * 2.0), FULL, X, W)
    assert floats_of(found, "multiply") == {F32}
    assert [e.primitive.name for e in equations(found)].count("convert") == 2


# ------------------------------------------------------------------ what is never touched
def doubles(x: Any) -> Any:
    return jnp.tanh(x @ x) + 1.0


def integers(i: Any) -> Any:
    return (i * 3 + 1) % 5, i > 2, i & 1


def table_lookup(table: Any, index: Any) -> Any:
    return table[index], jnp.cumsum(index), jnp.sort(index)


@pytest.mark.parametrize("policy", [FULL, PrecisionPolicy.float16(), PrecisionPolicy.bfloat16()])
def test_float64_complex_and_integers_are_untouched(policy: PrecisionPolicy) -> None:
    square = rng.normal(size=(4, 4))
    for function, args in (
        (doubles, (square,)),
        (doubles, (square.astype("c8"),)),
        (doubles, (square.astype(F16),)),
        (integers, (np.arange(5),)),
    ):
        traced = rlx.make_program(function)(*args)
        assert mixed_program(traced, policy).fingerprint == traced.fingerprint


def test_indices_stay_exact() -> None:
    table = np.arange(100_000, dtype="f8")
    index = np.array([2049, 65_537, 99_999], "i4")
    found = mixed_precision(table_lookup, PrecisionPolicy.float16())(table, index)
    for got, expected in zip(found, table_lookup(jnp.asarray(table), jnp.asarray(index)), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def test_wide_and_narrow_meet_at_conversions() -> None:
    def function(x: Any) -> Any:
        wide = x.astype("float64")
        return jnp.sum(wide * wide), (x.astype("float16") + 1).astype("float32"), x > 0.1, jnp.isnan(x)

    found = mixed_precision(function, FULL)(X)
    for got, expected in zip(found, function(jnp.asarray(X)), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def test_the_identity() -> None:
    traced = rlx.make_program(loss)(W, B, X)
    assert PrecisionPolicy.float32().is_identity and mixed_program(traced, PrecisionPolicy.float32()) is traced
    np.testing.assert_array_equal(np.asarray(mixed_precision(network, PrecisionPolicy())(W, B, X)), network(W, B, X))


# ------------------------------------------------------------------ transforms
POLICIES = {"full": FULL, "conservative": CONSERVATIVE, "float16": PrecisionPolicy.float16()}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.selected(1)
def test_gradients_in_every_order_of_transforms(name: str) -> None:
    policy = POLICIES[name]
    expected = rlx.grad(loss, argnums=(0, 1))(W, B, X)
    mixed = mixed_precision(loss, policy)
    variants = (
        rlx.grad(mixed, argnums=(0, 1)),
        rlx.jit(rlx.grad(mixed, argnums=(0, 1))),
        rlx.grad(rlx.jit(mixed), argnums=(0, 1)),
        mixed_precision(rlx.grad(loss, argnums=(0, 1)), policy),
        rlx.jit(mixed_precision(rlx.grad(rlx.jit(loss), argnums=(0, 1)), policy)),
    )
    for variant in variants:
        for got, exact in zip(variant(W, B, X), expected, strict=True):
            assert got.dtype == F32
            scale = float(jnp.abs(exact).max())
            np.testing.assert_allclose(got, exact, atol=0.04 * scale)
            assert float(jnp.abs(got - exact).max()) > 0


def test_the_backward_pass_is_narrowed_too() -> None:
    found = rlx.make_program(rlx.grad(mixed_precision(loss, CONSERVATIVE), argnums=(0, 1)))(W, B, X)
    products = [e for e in equations(optimize(found)) if e.primitive.name == "dot_general"]
    assert len(products) >= 4
    assert sum(all(a.type.dtype == BF16 for a in e.inputs) for e in products) >= 2


def test_vmap() -> None:
    mixed = mixed_precision(network, FULL)
    rows = rlx.vmap(mixed, in_axes=(None, None, 0))(W, B, X[:, None])
    np.testing.assert_allclose(rows[:, 0], mixed(W, B, X), rtol=1e-2, atol=1e-2)
    inside = mixed_precision(rlx.vmap(network, in_axes=(None, None, 0)), FULL)(W, B, X[:, None])
    np.testing.assert_allclose(inside, rows, rtol=1e-2, atol=1e-2)


def scanned(w: Any, b: Any, x: Any) -> Any:
    return rlx.lax.scan(lambda c, v: (jnp.tanh(c @ w + v), jnp.sum(c)), jnp.zeros((8, 16)), x[:3, None] + b)


def branched(w: Any, b: Any, x: Any) -> Any:
    return rlx.lax.cond(x[0, 0] > 0, lambda v: v @ w, lambda v: v - b, x)


def looped(w: Any, b: Any, x: Any) -> Any:
    return rlx.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.tanh(s[1] @ w)), (0, x))[1]


def remembered(w: Any, b: Any, x: Any) -> Any:
    return rlx.checkpoint(network)(w, b, x)


@rlx.custom_jvp
def softened(x: Any) -> Any:
    return jnp.tanh(x) * x


softened.defjvp(lambda primals, tangents: (softened(*primals), 3.0 * tangents[0]))


def custom(w: Any, b: Any, x: Any) -> Any:
    return softened(x @ w)


@pytest.mark.parametrize("function", [scanned, branched, looped, remembered, custom])
def test_regions_are_entered(function: Callable[..., Any]) -> None:
    program = rewritten(function, FULL, W, B, X)
    assert floats_of(program, "dot_general") == {BF16}
    mixed = mixed_precision(function, FULL)
    exact = rlx.tree.leaves(function(W, B, X))
    for variant in (mixed, rlx.jit(mixed)):
        for got, expected in zip(rlx.tree.leaves(variant(W, B, X)), exact, strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("function", [scanned, remembered, custom])
def test_gradients_of_regions(function: Callable[..., Any]) -> None:
    def total(w: Any) -> Any:
        return sum(jnp.sum(leaf) for leaf in rlx.tree.leaves(function(w, B, X)))

    expected = rlx.grad(total)(W)
    got = rlx.grad(mixed_precision(total, CONSERVATIVE))(W)
    np.testing.assert_allclose(got, expected, atol=0.03 * float(jnp.abs(expected).max()))


# ------------------------------------------------------------------ the policy
def test_overrides_and_names() -> None:
    policy = PrecisionPolicy.custom(compute="float16", overrides={"tanh": Precision.FLOAT16, "exp": "float16"})
    found = rewritten(lambda x, w: jnp.exp(jnp.tanh(x @ w) * 2.0), policy, X, W)
    assert floats_of(found, "tanh") == floats_of(found, "exp") == {F16}
    assert floats_of(found, "multiply") == {F32}
    with pytest.raises(RlxError, match="no precision 'float8'"):
        PrecisionPolicy.mixed("float8")
    with pytest.raises(RlxError, match="'softmax', which is not a primitive"):
        PrecisionPolicy.custom(overrides={"softmax": "float16"})
    with pytest.raises(RlxError, match="computes in its operands' dtypes"):
        PrecisionPolicy.custom(overrides={"convert": "float16"})


def test_kinds_name_primitives() -> None:
    """A name in the table that no primitive has would be a rule without effect."""
    from rlx.precision.policy import _KINDS

    assert set(_KINDS) <= set(registry)
    assert operation_kind("cholesky") is OperationKind.BOUNDARY


def test_as_a_pass() -> None:
    steps: list[Any] = []
    traced = rlx.make_program(loss)(W, B, X)
    found = rlx.opt.run_passes(traced, [AutoMixedPrecision(CONSERVATIVE)], watch=steps.append)
    assert floats_of(found, "dot_general") == {BF16}
    assert [step.name for step in steps] == ["auto_mixed_precision"] and steps[0].changed


def test_conversions_between_narrow_operations_vanish() -> None:
    """Two elementwise operations in a row do not go through float32."""
    found = optimize(rewritten(lambda x: jnp.tanh(x * 2.0) - x, FULL, X))
    assert [e.primitive.name for e in found.equations].count("convert") == 2


@settings(max_examples=25, deadline=None)
@given(
    kinds=st.fixed_dictionaries(
        {k: st.sampled_from(list(Precision)) for k in ("compute", "elementwise", "reduction", "sensitive")}
    ),
    movement=st.sampled_from([None, *Precision]),
)
def test_every_policy_keeps_types_and_is_near(kinds: dict[str, Precision], movement: Precision | None) -> None:
    policy = PrecisionPolicy(**kinds, movement=movement)
    for function in (loss, network):
        found = mixed_precision(function, policy)(W, B, X)
        exact = function(W, B, X)
        assert found.dtype == exact.dtype and found.shape == exact.shape
        np.testing.assert_allclose(found, exact, atol=0.08 * float(jnp.abs(exact).max()))
