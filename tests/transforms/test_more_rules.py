"""Symbolic zeros, batching rules, named values of checkpoint, pullbacks as trees, long functions."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors, lax
from rlx.custom_batching import custom_vmap, sequential_vmap
from rlx.custom_derivatives import SymbolicZero, custom_gradient, linear_call
from rlx.transforms.checkpoint import checkpoint_name


def test_a_forward_rule_sees_symbolic_zeros() -> None:
    """Also jitted, and under vmap."""
    seen = []

    @rlx.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, _) = primals, tangents
        seen.append([isinstance(t, SymbolicZero) for t in tangents])
        return f(x, y), dx * y * 10.0

    f.defjvp(rule, symbolic_zeros=True)
    assert float(rlx.grad(f)(2.0, 3.0)) == 30.0
    assert float(rlx.jit(rlx.grad(f))(2.0, 3.0)) == 30.0
    assert rlx.vmap(rlx.grad(f), (0, None))(np.ones(2, np.float32), 3.0).tolist() == [30.0, 30.0]
    assert all(marks == [False, True] for marks in seen) and seen


def test_a_reverse_rule_sees_symbolic_zeros() -> None:
    """Which arguments are perturbed, and which results are not used."""
    seen: list[Any] = []

    @rlx.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y, x + y

    def ahead(x: Any, y: Any) -> Any:
        seen.append((x.perturbed, y.perturbed))
        return (x.value * y.value, x.value + y.value), (x.value, y.value)

    def behind(kept: Any, cotangents: Any) -> Any:
        seen.append(tuple(isinstance(c, SymbolicZero) for c in cotangents))
        return cotangents[0] * kept[1], None

    f.defvjp(ahead, behind, symbolic_zeros=True)
    assert float(rlx.grad(lambda x: f(x, 5.0)[0])(2.0)) == 5.0
    assert seen == [(True, False), (False, True)]
    mapped = rlx.vmap(rlx.grad(lambda x: f(x, 5.0)[0]))(np.ones(3, np.float32))
    assert mapped.tolist() == [5.0, 5.0, 5.0]


def test_a_wrong_rule_is_no_matter_until_it_is_asked() -> None:
    """As in JAX."""
    f = rlx.custom_jvp(jnp.sin)
    f.defjvp(lambda primals, tangents: None)
    np.testing.assert_allclose(rlx.jit(f)(0.5), np.sin(0.5), rtol=1e-6)
    with pytest.raises(errors.CustomRuleError, match="pair"):
        rlx.grad(f)(0.5)
    with pytest.raises(errors.MissingCustomRuleError, match="defjvp"):
        rlx.custom_jvp(jnp.sin)(0.5)


def test_nondiff_argnames() -> None:
    """Name arguments instead of counting them."""

    @rlx.custom_vjp
    def plain(x: Any, scale: Any) -> Any:
        return x * scale

    named = type(plain)(plain.fun, nondiff_argnames="scale")
    named.defvjp(lambda x, scale: (x * scale, None), lambda scale, _, ct: (ct * 100.0 * scale,))
    assert float(rlx.grad(lambda x: named(x, 2.0))(3.0)) == 200.0


def test_custom_gradient_and_linear_call() -> None:
    """Rules that close over values, and a transpose of one's own."""
    f = custom_gradient(lambda x, y: (x * y, lambda g: (g * y, 7.0 * g * x)))
    assert [float(v) for v in rlx.jit(rlx.grad(f, (0, 1)))(2.0, 3.0)] == [3.0, 14.0]
    halved = lambda x: linear_call(lambda r, v: v / r, lambda r, t: 5.0 * t, 2.0, x)  # noqa: E731
    assert float(halved(3.0)) == 1.5 and float(rlx.grad(halved)(3.0)) == 5.0
    assert float(rlx.jvp(halved, (3.0,), (1.0,))[1]) == 0.5


def test_custom_vmap() -> None:
    """Its rule is used, with derivatives too; what it returns is checked."""

    def build(library: Any) -> Any:
        make = library.custom_batching.custom_vmap
        f = make(lambda x, y: library.numpy.sin(x) * y)

        @f.def_vmap
        def rule(size: int, batched: Any, x: Any, y: Any) -> Any:
            assert size == 3 and batched == [True, False]
            return library.numpy.cos(x) * y, True

        return f

    x, y = np.linspace(0, 1, 3, dtype=np.float32), np.float32(2.0)
    for use in (
        lambda m, f: m.vmap(f, (0, None))(x, y),
        lambda m, f: m.jvp(lambda v: m.vmap(f, (0, None))(v, y), (x,), (x,)),
        lambda m, f: m.jit(m.vmap(f, (0, None)))(x, y),
    ):
        for a, e in zip(rlx.tree.leaves(use(rlx, build(rlx))), jax.tree.leaves(use(jax, build(jax))), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-6)
    wrong = custom_vmap(lambda v: v)
    wrong.def_vmap(lambda size, batched, v: v)
    with pytest.raises(errors.CustomRuleError, match="pair"):
        rlx.vmap(wrong)(x)


def test_sequential_vmap() -> None:
    """One element after another, with an argument that is not mapped."""
    f = sequential_vmap(lambda x, y: (x * y, y))
    out, same = rlx.jit(rlx.vmap(f, (0, None)))(np.arange(3.0), 2.0)
    assert out.tolist() == [0.0, 2.0, 4.0] and same.tolist() == [2.0, 2.0, 2.0]


def test_names_that_checkpoint_keeps() -> None:
    """Only what a policy names is kept."""

    def f(x: Any) -> Any:
        return jnp.sin(checkpoint_name(jnp.sin(x), "inner")) * checkpoint_name(jnp.cos(x), "outer")

    policies = rlx.checkpoint_policies
    found = []
    for policy in (
        policies.save_only_these_names("inner"),
        policies.save_only_these_names(),
        policies.save_any_names_but_these("inner", "outer"),
        policies.save_from_both_policies(policies.save_only_these_names("inner"), policies.nothing_saveable),
        policies.save_anything_except_these_names("inner"),
    ):
        _, pull = rlx.vjp(rlx.checkpoint(f, policy=policy), 0.5)
        found.append(len(pull.residuals))
        np.testing.assert_allclose(pull(1.0)[0], rlx.grad(f)(0.5), rtol=1e-6)
    assert found[0] == found[1] + 1 == found[3] and found[1] == found[2] and found[4] > found[1]


def test_a_pullback_is_a_tree() -> None:
    """Jitted functions return it and take it."""
    value, pull = rlx.jit(lambda x: rlx.vjp(jnp.sin, x))(0.5)
    np.testing.assert_allclose(rlx.jit(lambda p, ct: p(ct))(pull, 2.0)[0], 2 * np.cos(0.5), rtol=1e-6)
    _, push = rlx.jit(lambda x: rlx.linearize(jnp.sin, x))(0.5)
    np.testing.assert_allclose(push(2.0), 2 * np.cos(0.5), rtol=1e-6)
    second = rlx.grad(lambda x: rlx.vjp(jnp.sin, x)[1](1.0)[0])(0.5)
    np.testing.assert_allclose(second, -np.sin(0.5), rtol=1e-6)


def test_a_long_function_is_traced_in_linear_time() -> None:
    """The line of each equation is found without walking the function's table."""

    def seconds(count: int) -> float:
        body = "".join(f"    x = {name}(x)\n" for name in ("sin", "cos") for _ in range(count // 2))
        names: dict[str, Any] = {"sin": lax.sin, "cos": lax.cos}
        exec(compile(f"def f(x):\n{body}    return x\n", "<long>", "exec"), names)
        start = time.process_time()
        program = rlx.make_program(names["f"])(1.0)
        assert len(program.equations) == count and program.equations[-1].origin.line == count + 1
        return time.process_time() - start

    seconds(1000)
    short = min(seconds(1000) for _ in range(3))
    assert min(seconds(10_000) for _ in range(2)) < 40 * short


def test_cond_checks_both_branches_eagerly() -> None:
    """As when it is traced; only the chosen one runs."""
    with pytest.raises(errors.ControlFlowTypeError, match="different types"):
        lax.cond(True, lambda x: x, lambda x: x > 0, np.float32(1.0))
    with pytest.raises(errors.ControlFlowTypeError, match="structure"):
        lax.switch(0, [lambda x: x, lambda x: (x, x)], 1.0)
    ran: list[float] = []

    def note(x: Any) -> Any:
        rlx.debug.callback(lambda v: ran.append(float(v)), x)
        return x

    assert float(lax.cond(False, note, lambda x: -x, 3.0)) == -3.0 and ran == []
    assert float(lax.cond(True, note, lambda x: -x, 3.0)) == 3.0 and ran == [3.0]


def test_stages_say_what_they_are() -> None:
    """Trees, arguments, and costs of a compiled call."""
    f = rlx.jit(lambda x, y: {"z": x @ y["w"]}, donate_argnums=0)
    x, w = np.ones((4, 3), np.float32), np.ones((3, 2), np.float32)
    lowered = f.lower(x, {"w": w})
    info = lowered.args_info[0]
    assert info[0].donated and not info[1]["w"].donated and info[1]["w"].shape == (3, 2)
    assert lowered.out_info["z"].shape == (4, 2) and lowered.donate_argnums == (0,)
    compiled = lowered.compile()
    assert compiled.cost_analysis()["flops"] >= 2 * 4 * 3 * 2
    assert compiled.memory_analysis().argument_size_in_bytes == x.nbytes + w.nbytes
    with pytest.raises(TypeError, match="compiled for"):
        compiled(x, {"w": w[:, :1]})
    with pytest.raises(errors.UnsupportedError, match="options"):
        rlx.jit(lambda x: x, compiler_options={"fast": True})
