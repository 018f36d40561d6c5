"""Rules and scopes as JAX's libraries write them: results with None in them, flags, values that are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp


def test_a_rule_of_a_result_with_parts_that_are_none() -> None:
    @rlx.custom_jvp
    def f(tree: Any) -> Any:
        return tree

    f.defjvp(lambda primals, tangents: (primals[0], tangents[0]), symbolic_zeros=True)
    found = rlx.linearize(lambda x: f((None, x, (None, x * 2))), jnp.float32(3.0))
    assert float(found[1](1.0)[2][1]) == 2.0


def test_a_flag_among_residuals_is_a_bool_for_bwd() -> None:
    seen = []

    @rlx.custom_vjp
    def f(x: Any) -> Any:
        return x * x

    def bwd(residuals: Any, ct: Any) -> Any:
        flag, x = residuals
        seen.append(flag)
        return (ct * x * 100 if flag else ct,)

    f.defvjp(lambda x: (x * x, (True, x)), bwd)
    assert float(rlx.jit(rlx.grad(f))(3.0)) == 300.0 and all(flag is True for flag in seen) and seen
    assert rlx.vmap(rlx.grad(f))(jnp.ones(2)).tolist() == [100.0, 100.0]


@pytest.mark.parametrize("kind", [rlx.custom_jvp, rlx.custom_vjp])
def test_a_function_with_a_rule_runs_as_it_is_outside_of_traces(kind: Any) -> None:
    f = kind(lambda x: jnp.asarray(np.asarray(x) * 2))
    if kind is rlx.custom_jvp:
        f.defjvp(lambda primals, tangents: (primals[0] * 2, tangents[0] * 2))
    else:
        f.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 2,))
    assert f(jnp.ones(2)).tolist() == [2.0, 2.0] and f(3).tolist() == 6


def test_traced_values_in_a_scope_of_known_ones() -> None:
    @rlx.jit
    def f(x: Any) -> Any:
        with rlx.ensure_compile_time_eval():
            two = int((jnp.ones(2) * 1).sum())
            y = jnp.where(x > 0, x * two, x) + rlx.jit(jnp.sin)(x) + jnp.linalg.norm(jnp.stack([x, x]))
            z = rlx.lax.fori_loop(0, two, lambda _, c: c * 2, jnp.float32(1))
            assert float(z) == 4.0
        return y * z

    np.testing.assert_allclose(f(3.0), 4 * (6 + np.sin(3) + 3 * np.sqrt(2)), rtol=1e-6)
    np.testing.assert_allclose(rlx.grad(f)(3.0), 4 * (2 + np.cos(3) + np.sqrt(2)), rtol=1e-6)


def test_a_callback_in_a_branch_that_is_not_taken_is_not_called() -> None:
    """Not even to fold it while compiling, where its operands are known."""

    def refuse(_: Any) -> Any:
        raise RuntimeError("called")

    def branch() -> Any:
        return rlx.pure_callback(refuse, rlx.ShapeDtypeStruct((), "float32"), jnp.int32(3))

    f = rlx.jit(lambda p, x: rlx.lax.cond(p, branch, lambda: x))
    assert float(f(False, jnp.float32(2.0))) == 2.0
    with pytest.raises(RuntimeError, match="called"):
        f(True, jnp.float32(2.0))


def test_eval_shape_of_what_is_described_already() -> None:
    described = rlx.ShapeDtypeStruct((2,), "int32")
    found = rlx.eval_shape(lambda x: {"a": described, "b": x}, jnp.ones(3))
    assert found["a"] == described and found["b"].shape == (3,)


def test_a_loop_s_body_may_change_the_objects_that_it_is_given() -> None:
    def body(carry: Any, x: Any) -> Any:
        kept = [carry.pop(), x]
        return [kept[0] + kept[1]], None

    assert float(rlx.lax.scan(body, [jnp.float32(0)], jnp.arange(3.0))[0][0]) == 3.0


def test_what_vmap_brings_together_is_not_the_user_s() -> None:
    """numpy_rank_promotion looks at the operands that the user gave."""
    x, y = jnp.ones((3, 2)), jnp.ones(2)
    with rlx.numpy_rank_promotion("raise"):
        assert rlx.jit(rlx.vmap(lambda a: (a + y) * jnp.where(a > 0, a, y)))(x).shape == (3, 2)
        assert rlx.vmap(rlx.random.normal)(rlx.random.split(rlx.random.key(0), 3)).shape == (3,)
        with pytest.raises(rlx.errors.ShapeError, match="numpy_rank_promotion"):
            x + y
        with pytest.raises(rlx.errors.ShapeError, match="numpy_rank_promotion"):
            rlx.jit(jnp.add)(x, y)
