"""custom_jvp and custom_vjp, under every transform; against jax."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from points import reals
from twins import Build, assert_twins

import rlx
import rlx.numpy as jnp
from rlx import errors


def _rules_by_argument(library: Any) -> Any:
    f = library.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda t, out, x, y: 10 * t * y, lambda t, out, x, y: 100 * t * x)
    return library.grad(lambda x: library.numpy.sum(library.vmap(f, in_axes=(0, None))(x, x[0])))


def _rule_for_one_argument(library: Any) -> Any:
    f = library.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda t, out, x, y: 10 * t * y, None)
    return lambda x: library.grad(lambda a, b: library.numpy.sum(f(a, b)), argnums=(0, 1))(x, x)


def _function_argument(library: Any) -> Any:
    @partial(library.custom_jvp, nondiff_argnums=(0,))
    def apply(f: Any, x: Any) -> Any:
        return f(x)

    @apply.defjvp
    def rule(f: Any, primals: Any, tangents: Any) -> Any:
        return f(primals[0]), 3.0 * tangents[0]

    return lambda x: library.jvp(lambda y: apply(library.numpy.sin, y), (x,), (x,))


def _rule_calls_its_function(library: Any) -> Any:
    jnp_ = library.numpy
    f = library.custom_jvp(lambda x: jnp_.exp(x))

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        y = f(primals[0])
        return y, 3.0 * y * tangents[0]

    third = library.grad(library.grad(library.grad(f)))
    second = library.grad(library.grad(f))
    return lambda x: (
        library.grad(lambda y: jnp_.sum(f(y)))(x),
        third(jnp_.asarray(x)[0]),
        library.vmap(second)(x),
        library.hessian(lambda y: library.vmap(f)(y).sum())(x),
    )


def _closure_in_the_rule(library: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        f = library.custom_jvp(lambda y: library.numpy.exp(y) * w)
        f.defjvp(lambda primals, tangents: (f(primals[0]), 3.0 * tangents[0] * w))
        return library.numpy.sum(f(x))

    return lambda x: library.grad(loss)(x, x)


def _vjp_over_trees(library: Any) -> Any:
    jnp_ = library.numpy
    f = library.custom_vjp(lambda x, y: {"o": jnp_.sin(x) * y["k"]})
    f.defvjp(
        lambda x, y: ({"o": jnp_.sin(x) * y["k"]}, (x, y)),
        lambda res, ct: (ct["o"] * jnp_.cos(res[0]) * 2, None),
    )
    loss = library.grad(lambda x, y: jnp_.sum(library.vmap(f)(x, y)["o"]), argnums=(0, 1))
    return lambda x: loss(x, {"k": x})


def _vjp_with_settings(library: Any) -> Any:
    @partial(library.custom_vjp, nondiff_argnums=(1, 2))
    def clip(x: Any, low: float, high: float) -> Any:
        return library.numpy.clip(x, low, high)

    clip.defvjp(lambda x, low, high: (library.numpy.clip(x, low, high), None), lambda low, high, res, ct: (ct * high,))
    return library.grad(lambda x: library.numpy.sum(clip(x, 0.2, 0.8) ** 2))


def _vjp_with_an_integer(library: Any) -> Any:
    f = library.custom_vjp(lambda x, i: x * i)
    f.defvjp(lambda x, i: (x * i, i), lambda i, ct: (ct * i, None))
    return lambda x: library.grad(lambda y: library.numpy.sum(f(y, np.arange(3, dtype="i4"))))(x)


def _vjp_in_a_scan(library: Any) -> Any:
    f = library.custom_vjp(library.numpy.sin)
    f.defvjp(lambda x: (library.numpy.sin(x), x), lambda x, ct: (ct * 2 * library.numpy.cos(x),))
    return library.grad(lambda x: library.lax.scan(lambda c, y: (f(c) * y, None), x[0], x)[0])


def _vjp_calls_its_function(library: Any) -> Any:
    jnp_ = library.numpy
    f = library.custom_vjp(jnp_.exp)
    f.defvjp(lambda x: (f(x), f(x)), lambda y, ct: (3.0 * y * ct,))
    third = library.grad(library.grad(library.grad(f)))
    second = library.grad(library.grad(f))
    return lambda x: (
        library.grad(lambda y: jnp_.sum(f(y)))(x),
        third(jnp_.asarray(x)[0]),
        library.vmap(second)(x),
        library.jacrev(library.grad(lambda y: library.vmap(f)(y).sum()))(x),
    )


BUILDS = [
    _rules_by_argument,
    _rule_for_one_argument,
    _function_argument,
    _rule_calls_its_function,
    _closure_in_the_rule,
    _vjp_over_trees,
    _vjp_with_settings,
    _vjp_with_an_integer,
    _vjp_in_a_scan,
    _vjp_calls_its_function,
]


@pytest.mark.parametrize("build", BUILDS)
def test_equals_jax(build: Build) -> None:
    """Eagerly and jitted."""
    assert_twins(build, reals(3))


def test_the_rule_replaces_the_derivative_and_not_the_value() -> None:
    """A rule that is wrong on purpose shows."""
    f = rlx.custom_jvp(lambda x: x * x)
    f.defjvp(lambda primals, tangents: (primals[0] ** 2, 100.0 * tangents[0]))
    assert (float(f(3.0)), float(rlx.grad(f)(3.0)), float(rlx.jit(rlx.grad(f))(3.0))) == (9.0, 100.0, 100.0)


def test_keywords_and_defaults_reach_the_function() -> None:
    """Arguments are bound as Python binds them."""

    @rlx.custom_jvp
    def f(x: Any, scale: Any = 2.0) -> Any:
        return x * scale

    f.defjvps(lambda t, out, x, scale: t * scale, None)
    assert float(f(3.0)) == 6.0
    assert float(f(3.0, scale=4.0)) == 12.0
    assert float(rlx.grad(lambda x: f(x, scale=4.0))(3.0)) == 4.0


def test_a_custom_method() -> None:
    """The instance is an argument that is not differentiated."""

    class Scale:
        @partial(rlx.custom_vjp, nondiff_argnums=(0,))
        def __call__(self, x: Any) -> Any:
            return x * 2

        __call__.defvjp(lambda self, x: (x * 2, None), lambda self, res, ct: (ct * 7,))

    assert float(rlx.grad(Scale())(1.0)) == 7.0


def test_forward_mode_of_a_custom_vjp_is_refused() -> None:
    """By name, with what to write instead."""
    f = rlx.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct,))
    with pytest.raises(errors.CustomRuleError, match="custom_jvp"):
        rlx.jvp(f, (1.0,), (1.0,))


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda res, ct: ct, "must return a tuple"),
        (lambda res, ct: (ct, ct), "a tuple of 2"),
        (lambda res, ct: ({"a": ct, "b": ct},), "of structure"),
        (lambda res, ct: (jnp.ones(5),), "shape"),
    ],
)
def test_a_backward_rule_that_does_not_fit(backward: Any, message: str) -> None:
    """Is refused when the function is called."""
    f = rlx.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x), x), backward)
    with pytest.raises(errors.CustomRuleError, match=message):
        rlx.grad(f)(1.0)


# ------------------------------------------------------------- rules made late, and values that they close over
def _recursive(library: Any, kind: str) -> Any:
    """A function whose rule calls the function itself."""
    if kind == "jvp":
        f = library.custom_jvp(lambda x: library.numpy.sin(x))
        f.defjvp(lambda primals, tangents: (f(primals[0]), 2 * tangents[0] * f(primals[0] + 1)))
    else:
        f = library.custom_vjp(lambda x: library.numpy.sin(x))
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (2 * ct * f(x + 1),))
    return f


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_rules_that_call_their_own_function(kind: str) -> None:
    def build(library: Any) -> Any:
        f = _recursive(library, kind)
        second = library.grad(library.grad(f))
        loop = library.grad(lambda x: library.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0])
        return lambda x: (library.vmap(second)(x), library.vmap(loop)(x))

    assert_twins(build, np.linspace(0.1, 0.9, 3))


def test_a_backward_rule_that_nothing_asks_for_is_not_run() -> None:
    @rlx.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return None

    def backward(residuals: Any, ct: Any) -> Any:
        raise AssertionError("not needed")

    f.defvjp(lambda x, y: (None, y), backward)

    def body(x: Any, _: Any) -> Any:
        _, pull = rlx.vjp(lambda x, y: rlx.vmap(f, (0, None), None)(x, y), x, rlx.numpy.zeros(1))
        pull(None)
        return x, None

    assert rlx.lax.scan(body, rlx.numpy.ones(3), None, 2)[0].tolist() == [1.0] * 3
    assert f(1.0, 2.0) is None


def test_rules_are_not_traced_where_nothing_is_differentiated() -> None:
    seen: list[str] = []
    f = rlx.custom_vjp(lambda x: x * 2.0)
    f.defvjp(lambda x: seen.append("ahead") or (f(x), None), lambda _, ct: (seen.append("behind") or 3.0 * ct,))
    assert f(1.0) == 2.0 and not seen
    assert rlx.grad(f)(1.0) == 3.0 and set(seen) == {"ahead", "behind"}


@pytest.mark.parametrize("rule", ["jvp", "vjp"])
def test_the_derivative_by_what_a_function_with_a_rule_closes_over_is_refused(rule: str) -> None:
    def outer(x: Any, y: Any) -> Any:
        if rule == "jvp":
            g = rlx.custom_jvp(lambda y: x * y)
            g.defjvp(lambda primals, tangents: (g(*primals), 2.0 * tangents[0]))
        else:
            g = rlx.custom_vjp(lambda y: x * y)
            g.defvjp(lambda y: (g(y), None), lambda _, ct: (2.0 * ct,))
        return g(y)

    mapped = lambda f: lambda x, y: rlx.vmap(rlx.grad(f))(x[None], y[None])  # noqa: E731
    for transform in (rlx.grad, lambda f: rlx.jit(rlx.grad(f)), mapped):
        with pytest.raises(errors.UnexpectedTracerError, match="closes over"):
            transform(outer)(rlx.numpy.asarray(3.0), rlx.numpy.asarray(1.0))
    assert rlx.grad(outer, argnums=1)(3.0, 1.0) == 2.0 and rlx.jit(outer)(3.0, 2.0) == 6.0
    assert rlx.vmap(outer, (0, None))(np.arange(3.0, dtype=np.float32), 2.0).tolist() == [0.0, 2.0, 4.0]


def test_symbolic_zeros_of_another_shape_are_refused() -> None:
    f = rlx.custom_vjp(lambda x, y: (x, y))
    f.defvjp(lambda x, y: ((x.value, y.value), None), lambda _, cts: (cts[1], cts[0]), symbolic_zeros=True)
    with pytest.raises(errors.CustomRuleError, match="has shape"):
        rlx.grad(lambda x, y: f(x, y)[1].sum())(rlx.numpy.ones(1), rlx.numpy.ones(2))


def test_rules_that_are_traced_late_see_the_default_dtypes_of_the_call() -> None:
    seen: list[bool] = []

    @rlx.custom_jvp
    def f(x: Any) -> Any:
        return x**2.0

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        seen.append(rlx.config.jax_enable_x64)
        return f(primals[0]), tangents[0] * jnp.sin(primals[0])

    def g(x: Any) -> Any:
        with rlx.enable_x64():
            return f(jnp.asarray(x, np.float64))

    assert rlx.grad(rlx.grad(g))(5.0).dtype == np.float32 and seen and all(seen)


# ------------------------------------------------------------- rules that close over traced values
def _closing(library: Any, x: Any) -> Any:
    f = library.custom_vjp(lambda y: x * y)
    f.defvjp(lambda y: (f(y), (x, library.numpy.cos(y))), lambda r, g: (r[1] * g * r[0],))
    return f


def _three(library: Any) -> Any:
    return library.numpy.asarray(3.0, "float64")


def _over_a_mapped_value(library: Any) -> Any:
    y = _three(library)
    return library.vmap(lambda x: (_closing(library, x)(y), library.grad(_closing(library, x))(y)))


def _jvp_over_a_mapped_value(library: Any) -> Any:
    def h(z: Any) -> Any:
        def f(x: Any) -> Any:
            g = library.custom_jvp(lambda y: x * y)
            g.defjvp(lambda p, t: (x * p[0], x * t[0]))
            return g(z)

        return library.vmap(f)(library.numpy.arange(3, dtype="float64"))

    return lambda x: library.jvp(h, (x[0],), (x[1],))


def _vjp_over_a_mapped_value(library: Any) -> Any:
    def h(z: Any) -> Any:
        def f(x: Any) -> Any:
            g = library.custom_vjp(lambda y: x * y)
            g.defvjp(lambda y: (x * y, (x, x * y, y)), lambda r, w: (r[0] * w,))
            return g(z)

        return library.vmap(f)(library.numpy.arange(3, dtype="float64")).sum()

    return lambda x: library.grad(h)(x[0])


def _backward_over_a_traced_value(library: Any) -> Any:
    def h(x: Any) -> Any:
        f = library.custom_vjp(lambda y: y * 2)
        f.defvjp(lambda y: (y * 2, None), lambda r, g: (g * x,))
        return library.grad(f)(_three(library))

    return lambda x: (library.vmap(h)(x), library.jit(h)(x[0]), library.grad(h)(x[1]))


def _in_a_loop_over_a_traced_value(library: Any) -> Any:
    def h(x: Any) -> Any:
        f = _closing(library, x)
        return library.lax.scan(lambda c, _: (f(c), None), _three(library), None, length=3)[0]

    return lambda x: (library.jit(h)(x[0]), library.vmap(h)(x))


CLOSURES = [
    _over_a_mapped_value,
    _jvp_over_a_mapped_value,
    _vjp_over_a_mapped_value,
    _backward_over_a_traced_value,
    _in_a_loop_over_a_traced_value,
]


@pytest.mark.parametrize("build", CLOSURES)
def test_rules_close_over_traced_values_as_jaxs_do(build: Build) -> None:
    # elements of an array, which are no NumPy scalars
    assert_twins(lambda library: lambda x: build(library)(library.numpy.asarray(x)), reals(3))


def test_a_rule_over_a_differentiated_value_is_refused_and_traced_settings_are_taken() -> None:
    """JAX refuses both; of the second the value and the derivative are known."""
    with pytest.raises(errors.UnexpectedTracerError, match="closes over a value that is being differentiated"):
        rlx.grad(lambda x: _closing(rlx, x)(3.0))(2.0)
    f = partial(rlx.custom_vjp, nondiff_argnums=(0,))(lambda x, y: x * y)
    f.defvjp(lambda x, y: (f(x, y), jnp.cos(y)), lambda x, c, g: (c * g,))
    g = rlx.jit(lambda x, y: f(x, y))
    assert float(g(2.0, 3.0)) == 6.0
    assert float(rlx.grad(g, 1)(2.0, 3.0)) == pytest.approx(np.cos(3.0), rel=1e-6)


def test_numpy_computes_in_a_function_with_a_rule() -> None:
    f = rlx.custom_vjp(lambda x: jnp.asarray(np.sin(np.asarray(x))))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * jnp.cos(x),))
    for gradient in (rlx.grad(f), rlx.grad(lambda x: f(2.0 * x / 2.0)), lambda x: rlx.jacrev(f)(x)):
        np.testing.assert_allclose(gradient(1.0), np.cos(1.0), rtol=1e-6)
    # fwd calls f, whose rule gives the next derivative as well
    np.testing.assert_allclose(rlx.grad(rlx.grad(lambda x: f(x) ** 2))(1.0), 2 * np.cos(2.0), rtol=1e-6)
    with pytest.raises(errors.TracerArrayConversionError):  # the value is not known
        rlx.jit(rlx.grad(f))(1.0)
    with pytest.raises(errors.CustomRuleError, match="forward-mode"):
        rlx.jacfwd(rlx.grad(f))(1.0)
