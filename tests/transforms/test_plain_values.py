"""Values inside of un-jitted transforms that depend on nothing transformed are plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import lax
from rlx import numpy as jnp

TRANSFORMS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "vmap": lambda f: rlx.vmap(f)(jnp.ones(3)),
    "grad": lambda f: rlx.grad(f)(1.0),
    "jvp": lambda f: rlx.jvp(f, (1.0,), (1.0,)),
    "vjp": lambda f: rlx.vjp(f, 1.0)[1](1.0),
    "linearize": lambda f: rlx.linearize(f, 1.0)[1](1.0),
    "jacfwd": lambda f: rlx.jacfwd(f)(1.0),
    "jacrev": lambda f: rlx.jacrev(f)(1.0),
    "hessian": lambda f: rlx.hessian(f)(1.0),
    "hvp": lambda f: rlx.hvp(f, (1.0,), (1.0,)),
    "vmap of grad": lambda f: rlx.vmap(rlx.grad(f))(jnp.ones(3)),
    "grad of vmap": lambda f: rlx.grad(lambda x: rlx.vmap(lambda y: f(x * y))(jnp.ones(3)).sum())(1.0),
    "custom_jvp": lambda f: rlx.grad(_with_jvp(f))(1.0),
    "custom_vjp": lambda f: rlx.grad(_with_vjp(f))(1.0),
    "jet": lambda f: rlx.experimental.jet.jet(f, (1.0,), ((1.0,),)),
}
# each makes an array of nothing that is transformed
CONSTANTS: dict[str, Callable[[], Any]] = {
    "ones": lambda: jnp.tril(jnp.ones((2, 2))),
    "scalar": lambda: jnp.float32(2) * 3,
    "key": lambda: rlx.random.split(rlx.random.key(0)),
    "random": lambda: rlx.random.normal(rlx.random.key(1), (3,)),
    "many random": lambda: rlx.random.normal(rlx.random.key(1), (5000,)),
    "jit": lambda: rlx.jit(jnp.cumsum)(jnp.arange(4.0)),
    "scan": lambda: lax.scan(lambda c, x: (c + x, c), 0.0, jnp.arange(3.0))[1],
    "while": lambda: lax.while_loop(lambda c: c < 5, lambda c: c + 2, 0),
    "cond": lambda: lax.cond(jnp.ones(()) > 0, lambda: jnp.ones(2), lambda: jnp.zeros(2)),
    "callback": lambda: rlx.pure_callback(lambda: np.ones(2, np.float32), rlx.ShapeDtypeStruct((2,), "float32")),
    "effect": lambda: rlx.io_callback(lambda: np.ones(2, np.float32), rlx.ShapeDtypeStruct((2,), "float32")),
    "gradient": lambda: rlx.grad(lambda x: x * x)(3.0),
}


def _with_jvp(f: Callable[[Any], Any]) -> Any:
    ruled = rlx.custom_jvp(f)
    ruled.defjvp(lambda p, t: (f(*p), t[0]))
    return ruled


def _with_vjp(f: Callable[[Any], Any]) -> Any:
    ruled = rlx.custom_vjp(f)
    ruled.defvjp(lambda x: (f(x), None), lambda _, ct: (ct,))
    return ruled


def _comparable(x: Any) -> np.ndarray:
    return np.asarray(rlx.random.key_data(x) if jnp.issubdtype(x.dtype, rlx.dtypes.prng_key) else x)


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_constants_are_arrays(transform: str, constant: str) -> None:
    """They are known at once, used outside, and used in another transform; the values are those made outside."""
    if constant == "effect" and transform not in ("vmap", "grad", "jvp", "vjp", "linearize"):
        pytest.skip("effects inside of nested transforms keep their order, so that they are traced")
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(CONSTANTS[constant]())
        return x * 2

    TRANSFORMS[transform](f)
    expected = _comparable(CONSTANTS[constant]())
    for value in kept:
        assert not isinstance(value, rlx.core.Tracer)
        np.testing.assert_array_equal(_comparable(value), expected)
    if expected.dtype.kind == "f":
        assert rlx.vmap(lambda x: x + kept[0].sum())(jnp.ones(2)).shape == (2,)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_table_may_be_cached(transform: str) -> None:
    """Filled inside of a transform, used there, outside, and by every other transform."""

    @lru_cache
    def table(n: int) -> Any:
        return jnp.arange(n) * 1.0

    first = TRANSFORMS[transform](lambda x: x * table(3).sum())
    assert table(3).tolist() == [0.0, 1.0, 2.0]
    again = TRANSFORMS[transform](lambda x: x * table(3).sum())
    np.testing.assert_array_equal(*(np.asarray(rlx.tree.leaves(found)[0]) for found in (first, again)))
    assert rlx.vmap(lambda x: x + table(3).sum())(jnp.ones(2)).tolist() == [4.0, 4.0]
    assert float(rlx.jit(lambda x: x * table(3).sum())(2.0)) == 6.0


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_inside_of_jit_they_belong_to_the_jitted_function(transform: str) -> None:
    """A value of a jitted function may be kept for its other transforms, and is returned."""

    def f(x: Any) -> Any:
        @lru_cache
        def table(n: int) -> Any:
            return jnp.arange(n) * x

        inner = TRANSFORMS[transform](lambda y: y * table(3).sum())
        return inner, rlx.vmap(lambda y: y + table(3).sum())(jnp.ones(2)), table(3)

    found, expected = (rlx.tree.leaves(run(f)(2.0)) for run in (rlx.jit, lambda g: g))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


def test_unmapped_and_integer_arguments_are_as_given() -> None:
    """What is not transformed is known."""
    assert rlx.vmap(lambda x, n: x * float(n), in_axes=(0, None))(jnp.ones(2), jnp.asarray(3.0)).tolist() == [3.0, 3.0]
    kept: list[Any] = []
    rlx.jvp(lambda x, n: (kept.append(jnp.arange(n)), x * n)[1], (1.0, 3), (1.0, np.zeros((), rlx.float0)))
    assert kept[0].tolist() == [0, 1, 2]


def test_effects_keep_their_order() -> None:
    """One of constants does not overtake one of traced values."""
    seen: list[float] = []

    def note(value: Any) -> None:
        rlx.debug.callback(lambda v: seen.append(float(v)), value)

    def f(x: Any) -> Any:
        note(jnp.ones(()))
        note(x)
        note(jnp.ones(()) * 3)
        return x * x

    rlx.grad(f)(2.0)
    rlx.effects_barrier()
    assert seen == [1.0, 2.0, 3.0]


def test_collectives_stay_with_their_axis() -> None:
    """Of constants as well, alone, in a nested transform and inside of a loop."""

    def f(x: Any) -> Any:
        total = lax.psum(jnp.ones(2), "i").sum() + lax.axis_index("i")
        looped, _ = lax.scan(lambda c, _: (c + lax.psum(jnp.ones(()), "i"), None), 0.0, None, 2)
        return x + total + looped + rlx.grad(lambda y: y * lax.psum(jnp.ones(()), "i"))(x)

    assert rlx.vmap(f, axis_name="i")(jnp.zeros(3)).tolist() == [15.0, 16.0, 17.0]


class Weights:
    """A node that looks at its leaf's shape."""

    def __init__(self, value: Any) -> None:
        if hasattr(value, "shape") and value.shape[-2:] != (2, 3):
            raise ValueError(f"shape {value.shape}")
        self.value = value


rlx.tree_util.register_pytree_node(Weights, lambda w: ((w.value,), None), lambda _, children: Weights(*children))


@pytest.mark.parametrize("out_axes", [0, (0,)])
def test_nodes_get_their_leaves_with_the_mapped_axis_in_place(out_axes: Any) -> None:
    def f(x: Any) -> Any:
        made = Weights(jnp.einsum("uw,ui->wi", jnp.ones((1, 2)), x))
        return made if out_axes == 0 else (made,)

    assert rlx.tree.leaves(rlx.vmap(f, out_axes=out_axes)(jnp.ones((4, 1, 3))))[0].shape == (4, 2, 3)


def test_rules_take_keywords_after_omitted_defaults() -> None:
    """Of all kinds of rules."""

    def f(x: Any, axis: Any = None, keep: bool = False, other: Any = None) -> Any:
        return x * (2 if keep else 1)

    forward = rlx.custom_jvp(f, nondiff_argnums=(1, 2, 3))
    forward.defjvp(lambda axis, keep, other, p, t: (f(*p, axis, keep), t[0] * 5))
    reverse = rlx.custom_vjp(f, nondiff_argnums=(1, 2, 3))
    reverse.defvjp(lambda x, axis, keep, other: (f(x, axis, keep), None), lambda axis, keep, other, _, ct: (ct * 5,))
    for ruled in (forward, reverse):
        assert float(ruled(1.0, keep=True)) == 2.0
        assert float(rlx.grad(partial(ruled, keep=True))(1.0)) == 5.0


def test_device_get_leaves_traced_values() -> None:
    for transform in (rlx.jit, rlx.grad, lambda f: lambda x: rlx.vmap(f)(jnp.ones(2) * x)[0]):
        assert np.isfinite(float(transform(lambda x: rlx.device_get({"a": x})["a"] * 2)(1.0)))


def test_vmap_maps_shapes() -> None:
    struct = rlx.ShapeDtypeStruct((2, 3), "float32")
    assert rlx.vmap(lambda x: x)(struct).shape == (2, 3)
    assert rlx.vmap(lambda x: x, out_axes=1)(struct).shape == (3, 2)
    array, same = rlx.vmap(lambda x, s: (x * s.shape[0], s))(jnp.ones(2), struct)
    assert array.tolist() == [3.0, 3.0] and same.shape == (2, 3)


def test_reductions_over_named_axes() -> None:
    """sum, mean, max and min: over names alone, and with positions."""
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    for name in ("sum", "mean", "max", "min"):
        reduced = getattr(jnp, name)
        along = rlx.vmap(lambda row, reduced=reduced: reduced(row, axis="i"), axis_name="i", out_axes=None)(x)
        np.testing.assert_allclose(along, getattr(np, name)(x, axis=0))
        both = rlx.vmap(lambda row, reduced=reduced: reduced(row, axis=("i", 0)), axis_name="i", out_axes=None)(x)
        np.testing.assert_allclose(both, getattr(np, name)(x))
    with pytest.raises(rlx.errors.UnsupportedError, match="all_gather"):
        rlx.vmap(lambda row: jnp.prod(row, axis="i"), axis_name="i")(x)


@pytest.mark.parametrize("device", ["opencl", "mlx"])
def test_eager_gradients_lie_beside_their_arguments(device: str) -> None:
    try:
        place = rlx.devices(device)[0]
    except rlx.errors.DeviceError:
        pytest.skip(f"there is no {device} here")
    w, other = rlx.device_put(np.ones(3, "f4"), place), np.arange(3, dtype="f4")
    for f in (lambda w: (w * other).sum(), lambda w: (w * 2).sum(), lambda w: 3.0):
        assert rlx.grad(f)(w).device == place
        assert rlx.value_and_grad(f)(w)[1].device == place
    assert rlx.jacrev(lambda w: w * other)(w).device == rlx.jacfwd(lambda w: w * other)(w).device == place
