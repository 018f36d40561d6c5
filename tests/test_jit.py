"""jit: what it takes as arguments, when it traces, what its cache keeps, ahead of time."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections import namedtuple
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from points import reals
from twins import assert_same

import rlx
import rlx.numpy as jnp
from rlx import errors

Pair = namedtuple("Pair", "left right")


@rlx.tree.register_dataclass
@dataclasses.dataclass
class Layer:
    """A node with an array, a subtree and a setting."""

    weight: Any
    rest: Any
    name: str = dataclasses.field(default="", metadata={"static": True})


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.traces = 0
        self.__name__ = "counted"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.traces += 1
        return self.function(*args, **kwargs)


# ---------------------------------------------------------------------- arguments
TREES = [
    {"b": reals(2), "a": (reals(3), [reals(1), None])},
    Pair(reals(2), {"x": 1.0}),
    Layer(reals(2), {"bias": reals(2)}, "first"),
    [],
    {},
    None,
    (None, (), {"k": None}),
]


@pytest.mark.parametrize("value", TREES, ids=lambda v: type(v).__name__)
def test_trees_go_in_and_come_out(value: Any) -> None:
    """Of the same structure and types."""
    out = rlx.jit(lambda t: rlx.tree.map(lambda x: x * 2, t))(value)
    assert rlx.tree.structure(out) == rlx.tree.structure(value)
    assert type(out) is type(value)
    for x, y in zip(rlx.tree.leaves(out), rlx.tree.leaves(value), strict=True):
        np.testing.assert_array_equal(x, np.asarray(y) * 2)


def test_keywords_and_defaults() -> None:
    """By position or by name, in any order of the names."""

    @rlx.jit
    def f(x: Any, y: Any = 2.0, *rest: Any, scale: Any = 1.0, **more: Any) -> Any:
        return (x - y) * scale + sum(rest) + more.get("z", 0.0)

    assert float(f(5.0)) == 3.0
    assert float(f(5.0, y=1.0)) == 4.0
    assert float(f(y=1.0, x=5.0)) == 4.0
    assert float(f(5.0, 1.0, 10.0, 20.0, scale=2.0, z=0.5)) == 38.5
    before = f.cache_info().misses
    f(5.0, scale=3.0, z=1.0)
    f(5.0, z=1.0, scale=3.0)
    assert f.cache_info().misses == before + 1


def test_static_arguments() -> None:
    """Part of the key by value and type, by number or by name, however they are passed."""
    traces = []

    def f(x: Any, n: Any, mode: str = "sum") -> Any:
        traces.append((n, mode))
        return (x**n).sum() if mode == "sum" else x[:n]

    g = rlx.jit(f, static_argnums=1, static_argnames="mode")
    assert float(g(jnp.arange(3.0), 2)) == 5.0
    assert float(g(jnp.arange(3.0) + 1, 2)) == 14.0
    assert g(jnp.arange(3.0), 2, mode="head").shape == (2,)
    assert g(jnp.arange(3.0), n=1, mode="head").shape == (1,)
    assert g(jnp.arange(3.0), mode="head", n=1).shape == (1,)
    assert traces == [(2, "sum"), (2, "head"), (1, "head")]


def test_static_arguments_of_equal_value_and_different_type() -> None:
    """1, 1.0 and True are three signatures."""
    g = rlx.jit(lambda x, s: x * s, static_argnums=1)
    kinds = [g(jnp.int32(3), s).dtype for s in (1, 1.0, True)]
    assert kinds == [np.int32, np.float32, np.int32]
    assert g.cache_info().misses == 3


def test_negative_and_several_static_arguments() -> None:
    """Positions count from the end too."""
    g = rlx.jit(lambda x, shape, axis: jnp.broadcast_to(x, shape).sum(axis), static_argnums=(-1, 1))
    assert g(1.0, (2, 3), 0).shape == (3,)


def test_closures_over_arrays_and_tracers() -> None:
    """Arrays become constants, tracers of an outer trace become inputs."""
    scale = jnp.asarray(reals(3))
    inner_traces = []

    def outer(x: Any) -> Any:
        @rlx.jit
        def inner(y: Any) -> Any:
            inner_traces.append(1)
            return y * x * scale

        return inner(x) + inner(x * 2)

    np.testing.assert_allclose(rlx.jit(outer)(reals(3)), 3 * reals(3) ** 3, rtol=1e-15)
    assert_same(rlx.grad(lambda x: outer(x).sum())(reals(3)), 6 * reals(3) ** 2, rtol=1e-14)


def test_methods_and_partials() -> None:
    """The instance is an argument like any other."""

    class Model:
        def __init__(self, w: Any) -> None:
            self.w = w

        @partial(rlx.jit, static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * self.w

    assert float(Model(3.0).apply(2.0)) == 6.0
    assert float(Model(4.0).apply(2.0)) == 8.0
    assert float(rlx.jit(partial(lambda a, b, c: a * b + c, 2.0, c=1.0))(5.0)) == 11.0


def test_a_dataclass_method() -> None:
    """A registered instance is traced through."""

    @rlx.tree.register_dataclass
    @dataclasses.dataclass
    class Affine:
        w: Any
        b: Any

        @rlx.jit
        def __call__(self, x: Any) -> Any:
            return self.w * x + self.b

    layer = Affine(jnp.float64(2.0), jnp.float64(1.0))
    assert float(layer(3.0)) == 7.0
    grads = rlx.grad(lambda m: m(3.0))(layer)
    assert (float(grads.w), float(grads.b)) == (3.0, 1.0)


def test_recursion() -> None:
    """A jitted function that calls itself with another static argument."""

    @partial(rlx.jit, static_argnums=1)
    def power(x: Any, n: int) -> Any:
        return x * 0 + 1 if n == 0 else x * power(x, n - 1)

    assert float(power(2.0, 5)) == 32.0
    assert float(rlx.grad(lambda x: power(x, 4))(2.0)) == 32.0


def test_python_numbers_of_one_kind_share_a_program() -> None:
    """Values of numbers are no part of the key, their kinds are."""
    f = Counted(lambda x: x + 1)
    g = rlx.jit(f)
    assert [g(1.0).item(), g(2.5).item(), g(3).item(), g(True).item()] == [2.0, 3.5, 4, 2]
    assert f.traces == 3


def test_results_that_are_not_computed() -> None:
    """Inputs, constants and literals pass through; None and empty trees too."""
    held = jnp.asarray(reals(3))
    out = rlx.jit(lambda x, y: {"x": x, "held": held, "one": 1.0, "none": None, "empty": (), "np": np.arange(2)})(
        1.5, 2
    )
    assert float(out["x"]) == 1.5 and float(out["one"]) == 1.0
    assert out["none"] is None and out["empty"] == ()
    np.testing.assert_array_equal(out["held"], reals(3))
    np.testing.assert_array_equal(out["np"], [0, 1])


def test_the_same_result_twice() -> None:
    """One computation, two places."""
    a, b, c = rlx.jit(lambda x: (x * 2, x * 2, x))(3.0)
    assert (float(a), float(b), float(c)) == (6.0, 6.0, 3.0)


# ---------------------------------------------------------------------- donation
def test_donated_arguments_cannot_be_used_again() -> None:
    """Neither by an operation nor by another call; shape and dtype stay readable."""
    step = rlx.jit(lambda s, x: {"w": s["w"] + x}, donate_argnums=0)
    state = {"w": jnp.zeros(3)}
    after = step(state, 1.0)
    assert state["w"].is_deleted() and state["w"].shape == (3,)
    for use in (
        lambda: state["w"] + 1,
        lambda: step(state, 1.0),
        lambda: np.asarray(state["w"]),
        lambda: float(state["w"][0]),
    ):
        with pytest.raises(errors.DonatedArrayError):
            use()
    np.testing.assert_array_equal(step(after, 2.0)["w"], [3.0, 3.0, 3.0])


def test_a_failed_call_does_not_consume_donated_arguments() -> None:
    """The arrays are as they were."""
    step = rlx.jit(lambda s, x: s + x, donate_argnames="s")
    s = jnp.zeros(3)
    with pytest.raises(errors.ShapeError):
        step(s=s, x=np.ones(4))
    assert not s.is_deleted()
    np.testing.assert_array_equal(step(s=s, x=np.ones(3)), [1.0, 1.0, 1.0])


def test_a_donated_argument_that_is_returned_stays() -> None:
    """It is the result."""
    x = jnp.ones(2)
    same = rlx.jit(lambda v: v, donate_argnums=0)(x)
    np.testing.assert_array_equal(same, [1.0, 1.0])


# ---------------------------------------------------------------------- the cache
def test_cache_info_counts() -> None:
    """Hits, misses, sizes; clear_cache and clear_caches forget."""
    f = rlx.jit(lambda x: x + 1)
    for n in (2, 3, 2, 3, 2):
        f(np.ones(n))
    assert f.cache_info()[:3] == (3, 2, 2)
    f.clear_cache()
    assert f.cache_info().currsize == 0
    f(np.ones(2))
    rlx.clear_caches()
    assert f.cache_info().currsize == 0
    np.testing.assert_array_equal(f(np.ones(2)), [2.0, 2.0])


def test_cache_is_bounded() -> None:
    """Beyond its size the oldest signature is traced again."""
    f = Counted(lambda x, n: x + n)
    g = rlx.jit(f, static_argnums=1)
    g.cache_size = 4
    with rlx.default_device("reference"):
        for n in range(10):
            g(1.0, n)
        assert g.cache_info().currsize == 4
        assert float(g(1.0, 9)) == 10.0
        assert f.traces == 10
        assert float(g(1.0, 0)) == 1.0
        assert f.traces == 11


def test_jitted_functions_and_their_arrays_are_freed() -> None:
    """Nothing global holds a function that nobody uses."""
    held = jnp.asarray(np.ones(1 << 14))
    f = rlx.jit(lambda x: x + held)
    f(1.0)
    function, array = weakref.ref(f), weakref.ref(held)
    f = held = None
    rlx.clear_caches()
    gc.collect()
    assert function() is None and array() is None


def test_explanations_of_programs_with_random_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Their primitives have no rounds as loops have."""
    with rlx.scoped(explain=True):
        assert rlx.jit(lambda key: rlx.random.bernoulli(key, 1.0, (4,)))(rlx.random.key(0)).all()
    capsys.readouterr()


def test_explain_says_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """RLX_EXPLAIN: which argument, from what to what."""

    def f(x: Any, y: Any) -> Any:
        return {"o": x["a"] + y}

    g = rlx.jit(f)
    with rlx.scoped(explain=True):
        g({"a": np.ones(2)}, 1.0)
        assert capsys.readouterr().err == ""
        g({"a": np.ones(3)}, 1.0)
        assert capsys.readouterr().err.startswith(
            "rlx: f is traced again (2 signatures)\n  argument 0['a']: float64[2] -> float64[3]\n"
        )
        g({"a": np.ones(3)}, 1)
        assert capsys.readouterr().err == (
            "rlx: f is traced again (3 signatures)\n  argument 1: weak float32[] -> weak int32[]\n"
        )
        g({"a": np.ones(3)}, y=1)
        assert "structure of the arguments" in capsys.readouterr().err


def test_explain_names_a_static_argument(capsys: pytest.CaptureFixture[str]) -> None:
    """From its old to its new value."""
    g = rlx.jit(lambda x, n: x + n, static_argnums=1)
    with rlx.scoped(explain=True):
        g(1.0, 1)
        g(1.0, 2)
    assert capsys.readouterr().err == ("rlx: lambda is traced again (2 signatures)\n  static argument 1: 1 -> 2\n")


# ---------------------------------------------------------------------- ahead of time
def test_trace_lower_compile() -> None:
    """Each stage can be looked at; the last is called."""
    f = rlx.jit(lambda x, y: {"o": x @ y})
    traced = f.trace(np.ones((2, 3)), rlx.ShapeDtypeStruct((3,), "float64"))
    assert traced.out_info == {"o": rlx.ShapeDtypeStruct((2,), "float64")}
    lowered = traced.lower()
    assert "dot_general" in lowered.as_text()
    compiled = lowered.compile()
    np.testing.assert_array_equal(compiled(np.ones((2, 3)), np.ones(3))["o"], [3.0, 3.0])
    assert compiled.memory_analysis()[:2] == (72, 16)
    assert compiled.plan is not None and isinstance(compiled.as_text(), str)
    with pytest.raises(errors.RlxError, match="was compiled for"):
        compiled(np.ones((2, 4)), np.ones(4))


def test_ahead_of_time_with_static_arguments() -> None:
    """They are part of the compiled call."""
    f = rlx.jit(lambda x, n: x**n, static_argnums=1)
    compiled = f.lower(2.0, 3).compile()
    assert float(compiled(4.0, 3)) == 64.0


def test_eval_shape() -> None:
    """Nothing is computed; abstract arguments do."""

    def f(x: Any, t: Any) -> Any:
        return {"s": jnp.sum(x @ t["w"]), "k": x.shape[0]}

    abstract = rlx.ShapeDtypeStruct((2, 3), "float64"), {"w": rlx.ShapeDtypeStruct((3, 4), "float64")}
    out = rlx.eval_shape(f, *abstract)
    assert out == {"s": rlx.ShapeDtypeStruct((), "float64"), "k": rlx.ShapeDtypeStruct((), "int32")}


def test_device_of_a_function() -> None:
    """jit(device=) and default_device agree with the default."""
    x = reals(5)
    values = [rlx.jit(lambda v: jnp.sin(v).sum(), device=d)(x) for d in (None, "cpu", "reference")]
    with rlx.default_device("reference"):
        assert rlx.default_backend() == "reference"
        values.append(rlx.jit(lambda v: jnp.sin(v).sum())(x))
    for v in values[1:]:
        np.testing.assert_allclose(v, values[0], rtol=1e-14)


def test_switches_are_part_of_the_key() -> None:
    """The default dtype at the time of the call counts."""
    f = rlx.jit(lambda: jnp.ones(2) * 1.5)
    assert f().dtype == np.float32
    with rlx.scoped(default_float=np.dtype("f8")):
        assert f().dtype == np.float64
    assert f().dtype == np.float32


def test_disable_jit_runs_the_function_itself() -> None:
    """With values, and without tracing."""
    seen = []
    f = rlx.jit(lambda x: seen.append(float(x)) or x)
    with rlx.disable_jit():
        f(2.0)
        f(3.0)
    assert seen == [2.0, 3.0]


# ---------------------------------------------------------------------- failures
def test_a_function_that_raises_can_be_called_again() -> None:
    """Nothing of the failed trace remains: caches, builders, named axes."""

    def f(x: Any, bad: bool) -> Any:
        y = rlx.vmap(lambda v: v * 2, axis_name="i")(x)
        if bad:
            raise ZeroDivisionError("mine")
        return y

    g = rlx.jit(f, static_argnums=1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="mine"):
            g(reals(3), True)
        np.testing.assert_array_equal(g(reals(3), False), reals(3) * 2)
    assert g.cache_info().currsize == 1
    assert float(jnp.add(1.0, 2.0)) == 3.0


def test_what_jit_does_not_take() -> None:
    """Is refused by name."""
    for bad in ("text", object(), np.array(["a"]), {1, 2}):
        with pytest.raises(errors.InputTypeError):
            rlx.jit(lambda x: x)(bad)
    with pytest.raises(errors.RlxError, match="static_argnames"):
        rlx.jit(lambda x: x, static_argnames="y")
    with pytest.raises(errors.RlxError, match="static_argnums"):
        rlx.jit(lambda x: x, static_argnums=1)
    with pytest.raises(errors.RlxError, match="takes a function"):
        rlx.jit(3)


# ---------------------------------------------------------------------- JAX code
def _mlp(library: Any) -> Any:
    """A training loop as it is written for JAX."""
    jnp_, lax = library.numpy, library.lax

    def init(sizes: Any) -> Any:
        return [
            {"w": jnp_.asarray(np.sin(np.arange(m * n, dtype="f8")).reshape(m, n)), "b": jnp_.zeros(n, "float64")}
            for m, n in zip(sizes[:-1], sizes[1:], strict=True)
        ]

    def predict(params: Any, x: Any) -> Any:
        for layer in params[:-1]:
            x = jnp_.tanh(x @ layer["w"] + layer["b"])
        return x @ params[-1]["w"] + params[-1]["b"]

    def loss(params: Any, x: Any, y: Any) -> Any:
        return jnp_.mean((predict(params, x) - y) ** 2)

    @partial(library.jit, static_argnames=("rate",))
    def update(params: Any, x: Any, y: Any, rate: float = 0.1) -> Any:
        value, grads = library.value_and_grad(loss)(params, x, y)
        return library.tree.map(lambda p, g: p - rate * g, params, grads), value

    x, y = reals(6, 3), np.cos(reals(6, 2))
    params = init([3, 4, 2])
    history = []
    for _ in range(3):
        params, value = update(params, x, y, rate=0.05)
        history.append(value)
    per_example = library.vmap(library.grad(loss), in_axes=(None, 0, 0))(params, x, y)
    final, _ = lax.scan(lambda p, _: (update(p, x, y)[0], None), params, None, length=2)
    return params, history, per_example, final


def _newton(library: Any) -> Any:
    """Root finding with a while_loop and a Jacobian."""
    jnp_ = library.numpy

    def f(v: Any) -> Any:
        return jnp_.stack([v[0] ** 2 + v[1] ** 2 - 4, v[0] - v[1]])

    @library.jit
    def solve(v: Any) -> Any:
        def advance(state: Any) -> Any:
            v, i = state
            a = library.jacfwd(f)(v)
            det = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
            inverse = jnp_.stack([jnp_.stack([a[1, 1], -a[0, 1]]), jnp_.stack([-a[1, 0], a[0, 0]])]) / det
            return v - inverse @ f(v), i + 1

        return library.lax.while_loop(lambda s: (jnp_.abs(f(s[0])).max() > 1e-12) & (s[1] < 20), advance, (v, 0))[0]

    return solve(np.array([1.0, 2.0]))


def _control(library: Any) -> Any:
    """Clipped, masked, indexed, updated, sorted."""
    jnp_, lax = library.numpy, library.lax

    @library.jit
    def f(x: Any) -> Any:
        y = jnp_.where(x > 0.5, x, -x).at[0].set(9.0)
        z = lax.fori_loop(0, 3, lambda i, c: c.at[i].add(i * 1.0), y)
        return jnp_.sort(z), jnp_.argmax(z).astype("int32"), jnp_.clip(z, 0, 1), z[::-1], z[jnp_.array([0, 0, 2])]

    return f(reals(5))


@pytest.mark.parametrize("program", [_mlp, _newton, _control])
@pytest.mark.selected(1)
def test_jax_code_runs_unchanged(program: Any) -> None:
    """`import rlx as jax; import rlx.numpy as jnp`: the same results."""
    assert_same(program(rlx), program(jax), rtol=1e-9)


def test_numpy_arguments_are_read_where_they_are_and_never_handed_out() -> None:
    """From the second call on their key is enough; a result that is an argument is a copy all the same."""
    f = rlx.jit(lambda t, y: (t["x"], y * 2))
    x, y = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    for n in range(3):
        x[0, 0] = n
        kept, twice = f({"x": x}, y)
        mixed, _ = f({"x": jnp.asarray(x)}, y)
        assert not np.shares_memory(np.asarray(kept), x) and kept[0, 0] == mixed[0, 0] == n
        assert twice.tolist() == [0, 2, 4] and f({"x": x}, 3.0)[1] == 6.0 and f({"x": x}, 3)[1].dtype == np.int32
    assert f.cache_info().misses == 3 and f.cache_info().hits == 9
    g = rlx.jit(lambda y: y + 1)
    for _ in range(3):
        assert g(y).tolist() == [1, 2, 3] and g(y.astype(">f4")).dtype == np.float32
        with pytest.raises(errors.InputTypeError, match="y"):
            g(np.array(["a"]))


def test_a_compiled_call_leaves_its_static_arguments_out_or_repeats_them() -> None:
    def f(n: int, x: Any, *, scale: int = 1) -> Any:
        return n * scale * x

    compiled = rlx.jit(f, static_argnums=0, static_argnames="scale").lower(3, 1.0, scale=2).compile()
    assert compiled(2.0) == compiled(3, 2.0, scale=2) == 12.0
    with pytest.raises(errors.InputTypeError, match="was compiled for"):
        compiled(4, 2.0)
