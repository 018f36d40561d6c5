"""Exported functions: what they give, their types and derivatives, under transformations, for all sizes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.export
import numpy as np
import pytest
from primitive_cases import cases_of, names

import rlx
import rlx.numpy as jnp
from benchmarks.programs import programs
from rlx import lax
from rlx.errors import InputTypeError, OptionError, ShapeError, TreeMismatchError, UnsupportedError
from rlx.export.program_text import read_program
from rlx.export.sizes import evaluate_shape
from rlx.ir.show import show_bindings, show_program
from rlx.ir.types import TensorType
from rlx.testing import check_grads
from rlx.trace.tracing import trace_program


def through_file(exported: Any, vjp_order: int = 0) -> Any:
    """The function after a way through bytes."""
    return rlx.export.deserialize(exported.serialize(vjp_order))


def same(one: Any, other: Any, rtol: float = 1e-6) -> None:
    """Trees of equal structure and close values."""
    assert rlx.tree.structure(one) == rlx.tree.structure(other)
    for a, b in zip(rlx.tree.leaves(one), rlx.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("family", names())
def test_every_primitive_is_read_back(family: str) -> None:
    """The text of an equation of every primitive, with all samples of its parameters, gives an equal program."""
    for case in cases_of(family):
        program, captured = trace_program(case.bind, case.types)
        assert not captured
        assert read_program(show_program(program), show_bindings(program)) == program, case


@pytest.mark.parametrize("program", [p for p in programs if "dispatch" not in p.name], ids=lambda p: p.name)
def test_benchmark_programs(program: Any) -> None:
    """Every benchmark is the same program behind a file."""
    function, arguments = program.build(rlx, np.random.default_rng(0))
    exported = rlx.export(function)(*arguments)
    loaded = through_file(exported)
    if all(np.asarray(value).nbytes <= 1 << 16 for _, value in exported.program().constants):
        assert loaded.program() == exported.program()  # larger constants are equal only to themselves
    assert loaded.as_text() == exported.as_text()
    assert (loaded.in_tree, loaded.in_avals) == (exported.in_tree, exported.in_avals)
    assert (loaded.out_tree, loaded.out_avals) == (exported.out_tree, exported.out_avals)


def test_results_are_those_of_jit() -> None:
    """A training step with a tree of arguments, to the last bit."""
    function, arguments = next(p for p in programs if p.name == "mlp_adam_step").build(rlx, np.random.default_rng(0))
    loaded = through_file(rlx.export(function)(*arguments))
    expected, found = rlx.jit(function)(*arguments), loaded.call(*arguments)
    assert rlx.tree.structure(expected) == rlx.tree.structure(found)
    for a, b in zip(rlx.tree.leaves(expected), rlx.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(a, b)


def test_names_are_those_of_jax() -> None:
    """Attributes of jax.export.Exported, with the same meaning."""

    def function(x: Any, *, y: Any) -> Any:
        return {"s": x["a"] + y, "t": (x["b"],)}

    arrays = {"a": np.ones(3, np.float32), "b": np.ones((2, 2), np.int32)}
    ours = rlx.export.export(rlx.jit(function))(arrays, y=np.float32(1))
    theirs = jax.export.export(jax.jit(function))(arrays, y=np.float32(1))
    assert ours.fun_name == theirs.fun_name and ours.nr_devices == theirs.nr_devices
    assert [(t.shape, t.dtype) for t in ours.in_avals] == [(t.shape, t.dtype) for t in theirs.in_avals]
    assert [(t.shape, t.dtype) for t in ours.out_avals] == [(t.shape, t.dtype) for t in theirs.out_avals]
    assert str(ours.in_tree) == str(theirs.in_tree) and str(ours.out_tree) == str(theirs.out_tree)
    assert isinstance(ours.serialize(), bytearray) and ours.has_vjp() and theirs.has_vjp()
    same(ours.call(arrays, y=np.float32(1)), rlx.jit(function)(arrays, y=np.float32(1)))


# ------------------------------------------------------------------ kinds of programs
def counted(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 1.5), (0, x))[1]


def scanned(x: Any) -> Any:
    return lax.scan(lambda c, y: (c * 0.5 + y, c), jnp.zeros_like(x[0]), x)


def chosen(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda v: v * 2.0, lambda v: -v, x)


def closing(x: Any) -> Any:
    return x @ jnp.asarray(np.linspace(0.0, 1.0, 60, dtype=np.float32).reshape(3, 20))


def convolved(x: Any) -> Any:
    kernel = jnp.asarray(np.random.default_rng(0).standard_normal((4, 1, 3, 3)).astype(np.float32))
    return lax.conv_general_dilated(x.reshape(-1, 1, 4, 3), kernel, (2, 1), "SAME").sum(axis=(1, 2, 3))


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (2, 1), "VALID")


def attended(x: Any) -> Any:
    scores = x @ x.swapaxes(-1, -2)
    mask = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
    return rlx.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1) @ x


def statistics(x: Any) -> Any:
    return x.mean(axis=0), x.var(axis=0), x.shape[0] * x.max(), jnp.arange(x.shape[0]) / x.shape[0]


def joined(x: Any) -> Any:
    return jnp.concatenate([x, 2.0 * x], axis=0).reshape(-1), jnp.pad(x, ((1, 2), (0, 0))), x[::-1], x[1:]


def rowwise(x: Any) -> Any:
    return rlx.vmap(lambda row: jnp.sort(row)[0] * row)(x)


def strided(x: Any) -> Any:
    return x[::2], x[1::3]


def total(function: Callable[..., Any], x: Any) -> Any:
    """A number made of all results."""
    return sum(jnp.sum(jnp.sin(leaf)) for leaf in rlx.tree.leaves(function(x)))


BY_ROWS = [scanned, chosen, closing, attended, statistics, joined, rowwise, counted]


@pytest.mark.parametrize("function", [*BY_ROWS, pooled, strided], ids=lambda f: f.__name__)
@pytest.mark.parametrize("vjp_order", [0, 1])
def test_one_program_for_all_sizes(function: Callable[..., Any], vjp_order: int) -> None:
    """A batch of a size that is not known: results and gradients are those of the function."""
    x = rlx.ShapeDtypeStruct(rlx.export.symbolic_shape("batch, 3"), np.float32)
    if vjp_order and function in (counted, pooled):  # no reverse mode, or windows whose padding has a rule of its own
        pytest.skip("not differentiated here")
    loaded = through_file(rlx.export(function)(x), vjp_order)
    assert loaded.in_avals[0].shape == x.shape
    for batch in (2, 5, 8, 23):
        value = np.random.default_rng(batch).standard_normal((batch, 3)).astype(np.float32)
        expected = function(value)
        same(loaded.call(value), rlx.jit(function)(value), 1e-5)
        shapes = [evaluate_shape(t.shape, {"batch": batch}) for t in loaded.out_avals]
        assert shapes == [leaf.shape for leaf in rlx.tree.leaves(expected)]
        if vjp_order:
            same(rlx.grad(partial(total, loaded))(value), rlx.grad(partial(total, function))(value), 1e-4)


def test_convolution_of_any_batch() -> None:
    """Images of which there are any number."""
    x = rlx.ShapeDtypeStruct(rlx.export.symbolic_shape("n, 12"), np.float32)
    loaded = through_file(rlx.export(convolved)(x))
    for count in (1, 4, 9):
        value = np.random.default_rng(count).standard_normal((count, 12)).astype(np.float32)
        np.testing.assert_allclose(loaded(value), convolved(value), rtol=1e-4, atol=1e-5)


def test_several_sizes() -> None:
    """Expressions and several names; sizes are found from the arguments."""
    rows, twice = rlx.export.symbolic_shape("m, 2*n")
    columns = rlx.export.symbolic_shape("n + 1")[0]
    x, y = rlx.ShapeDtypeStruct((rows, twice), np.float64), rlx.ShapeDtypeStruct((columns,), np.float64)
    loaded = through_file(rlx.export(lambda x, y: (x.sum() + y.sum(), x.reshape(-1)))(x, y))
    total, flat = loaded(np.ones((3, 4)), np.ones(3))
    assert float(total) == 15.0 and flat.shape == (12,)
    assert str(loaded.out_avals[1].shape) == "(2 * m * n,)"
    with pytest.raises(InputTypeError, match="leaf 1 is float64"):
        loaded(np.ones((3, 4)), np.ones(4))
    with pytest.raises(InputTypeError):
        loaded(np.ones((3, 5)), np.ones(3))


def by_branch(x: Any) -> Any:
    return x * 2.0 if x.shape[0] > 20 else x


def by_array(x: Any) -> Any:
    return x + np.arange(x.shape[0], dtype=np.float32)


def by_root(x: Any) -> Any:
    return x * (x.shape[0] ** 0.5)


@pytest.mark.parametrize("function", [by_branch, by_array, by_root])
def test_what_depends_on_a_size_otherwise_is_refused(function: Callable[..., Any]) -> None:
    """Structure, arrays of NumPy and other functions of a size: an error says what to write."""
    with pytest.raises((ShapeError, UnsupportedError)) as caught:
        rlx.export(function)(rlx.ShapeDtypeStruct(rlx.export.symbolic_shape("b"), np.float32))
    assert "size" in str(caught.value)


# ------------------------------------------------------------------ derivatives and transformations
@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_to_an_order(order: int) -> None:
    """As often as it was saved, and no more."""
    exported = rlx.export(lambda x: jnp.sin(x) * x)(0.5)
    loaded = through_file(exported, order)
    assert loaded.vjp_order == order and exported.vjp_order is None
    ours, expected = loaded, lambda x: jnp.sin(x) * x
    for _ in range(order):
        ours, expected = rlx.grad(ours), rlx.grad(expected)
        np.testing.assert_allclose(ours(0.7), expected(0.7), rtol=1e-5)
    with pytest.raises(UnsupportedError, match="vjp_order"):
        rlx.grad(ours)(0.7)


def test_where_the_function_is_there() -> None:
    """In the process that exported it it is differentiated as the function is, as often as anybody wants."""
    exported = rlx.export(lambda x: jnp.sin(x) * x)(0.5)
    expected = lambda x: jnp.sin(x) * x  # noqa: E731
    for _ in range(3):
        np.testing.assert_allclose(rlx.jit(exported)(0.7), rlx.jit(expected)(0.7), rtol=1e-5)
        exported, expected = rlx.grad(exported), rlx.grad(expected)


def test_own_rules_are_kept() -> None:
    """A derivative is what the function's rule says, not that of the equations in the file."""

    @rlx.custom_vjp
    def clipped(x: Any) -> Any:
        return x * 3.0

    clipped.defvjp(lambda x: (clipped(x), None), lambda _, ct: (jnp.clip(ct, -1.0, 1.0),))
    loaded = through_file(rlx.export(lambda x: clipped(x) * 100.0)(1.0), 1)
    assert float(rlx.grad(loaded)(1.0)) == 1.0


def test_integers_among_the_arguments() -> None:
    """Cotangents are for what is real; the others are left out."""
    loaded = through_file(rlx.export(lambda i, x: (x[i] * 2.0, i + 1))(0, np.ones(3, np.float32)), 1)
    assert [t.dtype.name for t in loaded.vjp().in_avals] == ["int32", "float32", "float32"]
    found = rlx.grad(lambda x: loaded(1, x)[0])(np.ones(3, np.float32))
    assert found.tolist() == [0.0, 2.0, 0.0]


def test_under_transformations() -> None:
    """jit, vmap, grad of a loaded function in any order; and finite differences."""
    function = lambda w, x: jnp.tanh(x @ w).sum()  # noqa: E731
    w, x = np.linspace(-1.0, 1.0, 12).reshape(4, 3), np.linspace(0.0, 1.0, 8).reshape(2, 4)
    loaded = through_file(rlx.export(function)(w, x), 1)
    same(rlx.jit(rlx.grad(loaded))(w, x), rlx.grad(function)(w, x))
    stacked = np.stack([x, 2 * x, -x])
    same(rlx.vmap(rlx.grad(loaded), (None, 0))(w, stacked), rlx.vmap(rlx.grad(function), (None, 0))(w, stacked))
    same(rlx.jit(lambda w: lax.map(lambda x: loaded(w, x), stacked))(w), rlx.vmap(function, (None, 0))(w, stacked))
    check_grads(loaded, (w, x), order=1, modes=("rev",))


def test_other_devices() -> None:
    """A file is for every device: here the reference interpreter."""
    loaded = through_file(rlx.export(lambda x: jnp.cumsum(jnp.exp(x)))(np.ones(5, np.float32)))
    with rlx.default_device("reference"):
        np.testing.assert_allclose(loaded(np.ones(5, np.float32)), np.e * np.arange(1, 6), rtol=1e-6)


# ------------------------------------------------------------------ arguments, trees, dtypes
class Point(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any


class Scaled:
    """A node with data of its own."""

    def __init__(self, value: Any, unit: str) -> None:
        self.value, self.unit = value, unit


rlx.tree.register_node(Scaled, lambda s: ((s.value,), s.unit), lambda unit, parts: Scaled(parts[0], unit))


def test_trees() -> None:
    """Nested dicts, lists, tuples and None; ordered dicts; classes by the names they were registered under."""
    value = {"a": [1.0, (2.0, None)], 3: OrderedDict(z=4.0, y=5.0)}
    loaded = through_file(rlx.export(lambda t: rlx.tree.map(lambda x: x + 1.0, t))(value))
    found = loaded(value)
    assert list(found[3]) == ["z", "y"] and float(found["a"][1][0]) == 3.0 and found["a"][1][1] is None
    with pytest.raises(TreeMismatchError, match="Point"):
        rlx.export(lambda p: p.x)(Point(1.0, 2.0)).serialize()
    rlx.export.register_namedtuple_serialization(Point, serialized_name="tests.Point")
    rlx.export.register_pytree_node_serialization(
        Scaled, serialized_name="tests.Scaled", serialize_auxdata=str.encode, deserialize_auxdata=bytes.decode
    )
    loaded = through_file(rlx.export(lambda p, s: Point(p.y, Scaled(s.value, "km")))(Point(1.0, 2.0), Scaled(3.0, "m")))
    found = loaded(Point(1.0, 2.0), Scaled(3.0, "m"))
    assert float(found.x) == 2.0 and found.y.unit == "km"
    with pytest.raises(InputTypeError, match="structure"):
        loaded(Point(1.0, 2.0), Scaled(3.0, "inch"))
    with pytest.raises(TreeMismatchError, match="is taken by"):
        rlx.export.register_namedtuple_serialization(OrderedDict, serialized_name="tests.Point")


DTYPES = "bool uint8 int4 int64 float16 bfloat16 float8_e4m3b11fnuz float64 complex64 complex128".split()


@pytest.mark.parametrize("name", DTYPES)
def test_constants_of_every_dtype(name: str) -> None:
    """Arrays that a function closes over, too large for its text, of dtypes that safetensors lack, too."""
    constant = jnp.asarray(np.arange(40) % 7).astype(name)
    loaded = through_file(rlx.export(lambda x: (constant, jnp.sum(x)))(np.ones(2)))
    found = loaded(np.ones(2))[0]
    assert found.dtype == constant.dtype
    np.testing.assert_array_equal(np.asarray(found).astype(complex), np.asarray(constant).astype(complex))


def test_random_keys() -> None:
    """Keys as arguments, constants and results."""
    held = rlx.random.split(rlx.random.key(7, impl="threefry2x32"), 20)

    def function(key: Any) -> Any:
        return rlx.random.normal(key, (3,)), rlx.random.split(key), held[3]

    key = rlx.random.key(5)
    loaded = through_file(rlx.export(function)(key))
    for a, b in zip(loaded(key), function(key), strict=True):
        data = rlx.random.key_data if jnp.issubdtype(a.dtype, rlx.dtypes.prng_key) else np.asarray
        np.testing.assert_array_equal(data(a), data(b))


def test_wrong_arguments_are_listed() -> None:
    """Every difference in one message."""
    loaded = through_file(rlx.export(lambda x, y, z: x.sum() + y.sum() + z)(np.ones(3), np.ones((2, 2)), 1.0))
    with pytest.raises(InputTypeError) as caught:
        loaded(np.ones(3, np.float32), np.ones((2, 3)), 2.0)
    assert "leaf 0 is float32[3]" in str(caught.value) and "leaf 1 is float64[2,3]" in str(caught.value)
    assert "leaf 2" not in str(caught.value)
    with pytest.raises(InputTypeError, match="structure"):
        loaded(np.ones(3))
    assert float(loaded(np.ones(3), np.ones((2, 2)), 2)) == 9.0  # a number of Python is what it has to be


def test_static_arguments_and_options() -> None:
    """Static arguments are part of the program; wrong options are refused."""
    loaded = through_file(rlx.export(rlx.jit(lambda x, n: x**n, static_argnums=1))(2.0, 3))
    assert float(loaded(2.0)) == 8.0
    with pytest.raises(OptionError, match="vjp_order"):
        rlx.export(jnp.sin)(1.0).serialize(vjp_order=-1)
    with pytest.raises(ShapeError, match="sizes"):
        rlx.export(jnp.sin)(1.0).program(b=3)


@pytest.mark.parametrize("inside", ["plain", "scan"])
def test_callbacks_are_refused_with_their_line(inside: str) -> None:
    """A file holds no Python: the error has the user's line."""

    def step(x: Any) -> Any:
        return rlx.pure_callback(np.sin, x, x)

    function = step if inside == "plain" else lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=3)[0]
    with pytest.raises(UnsupportedError, match="pure_callback") as caught:
        rlx.export(function)(1.0)
    assert "test_exported.py" in str(caught.value)


def test_sizes_that_are_halved_may_be_even_or_odd() -> None:
    """The length of a spectrum is n // 2 + 1, for the first symbolic size as for the second."""
    for sized, sizes in (("n", [(5,), (6,), (1,)]), ("b, n", [(2, 5), (3, 6), (1, 8), (4, 1)])):
        shape = rlx.export.symbolic_shape(sized)
        exported = rlx.export(lambda x: rlx.numpy.fft.rfft(x))(rlx.ShapeDtypeStruct(shape, np.float32))
        for size in sizes:
            x = np.random.default_rng(0).normal(size=size).astype(np.float32)
            np.testing.assert_allclose(exported.call(x), np.fft.rfft(x), atol=1e-5)


def test_symbolic_shapes() -> None:
    """Texts of shapes, and what is none."""
    assert rlx.export.symbolic_shape("(a, 3,)")[1] == 3 and rlx.export.symbolic_shape("") == ()
    a, b = rlx.export.symbolic_shape("a, b")
    assert str(2 * a + b - 1) == "2 * a + b - 1" and (a + b).evaluate({"a": 2, "b": 3}) == 5
    assert (a * b // 2 % 3).evaluate({"a": 3, "b": 3}) == 1 and str(1 - a) == "1 - a" and str(1 + a * 2) == "1 + a * 2"
    for wrong in ("f(x)", "a.b", "1.5", "a[0]", "x0", "a, , b"):
        with pytest.raises(ShapeError):
            rlx.export.symbolic_shape(wrong)
    with pytest.raises(rlx.errors.InconclusiveDimensionOperation, match="no value"):
        range(a)
    with pytest.raises(ShapeError, match="fit"):
        rlx.export.symbolic_args_specs(np.ones(3), "a, b")
    with pytest.raises(ShapeError, match="last"):
        rlx.export.symbolic_args_specs(np.ones((3, 3)), "..., b")
    assert TensorType((3,), np.float32) == rlx.typeof(np.ones(3, np.float32))


def test_sizes_that_a_shape_gives() -> None:
    """`_` and `...` with `like`; whether something is a size."""
    shape = rlx.export.symbolic_shape("b, _, ...", like=(3, 4, 5, 6))
    assert list(map(str, shape)) == ["b", "4", "5", "6"] and rlx.export.symbolic_shape(None, like=(2,)) == (2,)
    assert [rlx.export.is_symbolic_dim(size) for size in shape] == [True, False, False, False]
    (spec,) = rlx.export.symbolic_args_specs((np.ones((4, 3)),), "_, n", ["n >= 2"])
    assert str(spec.shape) == "(4, n)" and [str(c) for c in spec.shape[1].scope.constraints] == ["n >= 2"]
    for wrong, like in (("a, _", None), ("a, ...", None), ("a", (1, 2)), ("a, _", (1, None))):
        with pytest.raises(ShapeError):
            rlx.export.symbolic_shape(wrong, like=like)


def test_constraints_of_sizes() -> None:
    """A function is traced for sizes that fulfil them, called for no others, and its file keeps them."""
    a, b = rlx.export.symbolic_shape("a, b", constraints=("a >= b", "b >= 200"))
    exported = rlx.export(lambda x: x[: x.shape[1], :200])(rlx.ShapeDtypeStruct((a, b), np.int32))
    assert str(exported.out_avals[0].shape) == "(b, 200)"
    for one in (exported, rlx.export.deserialize(exported.serialize())):
        assert one.call(np.ones((300, 250), np.int32)).shape == (250, 200)
        with pytest.raises(ShapeError, match="a >= b"):
            one.call(np.ones((249, 250), np.int32))
        with pytest.raises(ShapeError, match="b >= 200"):
            one.program(a=7, b=5)
    (k,) = rlx.export.symbolic_shape("k", constraints=["mod(k, 2) == 0", "k <= 10"])
    x = np.arange(10.0)
    top = rlx.export(lambda d, x: rlx.lax.top_k(x, d.shape[0])[0])(rlx.ShapeDtypeStruct((k,), np.int32), x)
    assert top.call(np.zeros(4, np.int32), x).tolist() == [9.0, 8.0, 7.0, 6.0]
    with pytest.raises(ShapeError, match="k % 2 == 0"):
        top.call(np.zeros(3, np.int32), x)


def test_scopes_of_sizes() -> None:
    """Sizes share constraints by their scope; what is made of two has those of both."""
    scope = rlx.export.SymbolicScope(["m >= 2"])
    (m,) = rlx.export.symbolic_shape("m", scope=scope)
    (n,) = rlx.export.symbolic_shape("n", constraints=["n >= 3"])
    assert m.scope is scope and [str(c) for c in (m + n).scope.constraints] == ["m >= 2", "n >= 3"]
    with pytest.raises(ShapeError, match="a scope"):
        rlx.export.symbolic_shape("n", constraints=["n >= 3"], scope=scope)
    with pytest.raises(ShapeError, match="not a constraint"):
        rlx.export.SymbolicScope(["m < 2"])
    (wide,) = rlx.export.symbolic_shape("w", constraints=["w >= 5", "w <= 3"])
    with pytest.raises(ShapeError, match="0 of"):
        rlx.export(lambda x: x + 1)(rlx.ShapeDtypeStruct((wide,), np.float32))
