"""pure_callback, io_callback, debug.print and debug.callback, eager, jitted and transformed."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx import debug, errors
from rlx.host.callback import io_callback, pure_callback

F = np.float32
SCALAR = rlx.ShapeDtypeStruct((), F)


def _doubled(x, **options):
    return pure_callback(lambda v: (v * 2).astype(F), rlx.ShapeDtypeStruct(x.shape, F), x, **options)


def test_pure_callback():
    x = np.arange(3, dtype=F)
    for function in (_doubled, rlx.jit(_doubled)):
        np.testing.assert_array_equal(np.asarray(function(x)), 2 * x)
    out = pure_callback(lambda t, k: {"s": t["a"] + k, "n": 3}, {"s": SCALAR, "n": np.int32(0)}, {"a": F(1)}, k=F(2))
    assert float(out["s"]) == 3.0
    assert int(out["n"]) == 3


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_pure_callback_under_vmap(method):
    shapes = []

    def add(a, b):
        shapes.append((np.shape(a), np.shape(b)))
        return a + b

    def one(a, b):
        return pure_callback(add, SCALAR, a, b, vmap_method=method)

    a = np.arange(3, dtype=F)
    for mapped in (rlx.vmap(one, (0, None)), rlx.jit(rlx.vmap(one, (0, None)))):
        shapes.clear()
        np.testing.assert_array_equal(np.asarray(mapped(a, F(1))), a + 1)
        expected = {"sequential": [((), ())] * 3, "expand_dims": [((3,), (1,))], "broadcast_all": [((3,), (3,))]}
        assert shapes == expected[method]


def test_pure_callback_without_vmap_method():
    with pytest.raises(errors.UnsupportedError, match="vmap_method"):
        rlx.vmap(_doubled)(np.arange(3, dtype=F))
    with pytest.raises(errors.UnsupportedError, match="vmap_method"):
        _doubled(np.zeros(2, F), vmap_method="loop")


def test_results_are_checked():
    with rlx.enable_x64(True), pytest.raises(errors.CallbackError, match="float64"):
        pure_callback(lambda: np.float64([1.0]), rlx.ShapeDtypeStruct((1,), F))
    # where 32 bits are the default, what NumPy widened is narrowed again, and nothing else
    assert pure_callback(lambda: np.float64([1.0]), rlx.ShapeDtypeStruct((1,), F)).dtype == F
    with pytest.raises(errors.CallbackError, match="int64"):
        pure_callback(lambda: np.int64([1]), rlx.ShapeDtypeStruct((1,), F))
    with pytest.raises(errors.CallbackError, match="structure"):
        pure_callback(lambda: (F(1), F(2)), SCALAR)
    with pytest.raises(errors.CallbackError):
        rlx.jit(lambda x: pure_callback(lambda v: np.zeros(3, F), SCALAR, x))(F(1))
    with pytest.raises(errors.CallbackError, match="no shape"):
        pure_callback(lambda: 1, 3.5)


def test_errors_of_the_function_reach_the_caller():
    def fail(v):
        raise KeyError("mine")

    for wrap in (lambda f: f, rlx.jit):
        with pytest.raises(KeyError, match="mine"):
            wrap(lambda x: pure_callback(fail, SCALAR, x))(F(1))


def test_derivative_needs_a_rule():
    with pytest.raises(errors.UnsupportedError, match="custom_jvp"):
        rlx.grad(lambda x: pure_callback(np.sin, SCALAR, x))(F(1))

    @rlx.custom_jvp
    def sine(x):
        return pure_callback(lambda v: np.sin(v, dtype=F), SCALAR, x)

    sine.defjvps(lambda t, out, x: t * pure_callback(lambda v: np.cos(v, dtype=F), SCALAR, x))
    assert float(rlx.grad(sine)(F(0.5))) == pytest.approx(np.cos(0.5))
    assert float(rlx.jit(rlx.grad(sine))(F(0.5))) == pytest.approx(np.cos(0.5))


def test_io_callback():
    seen = []

    def remember(v):
        seen.append(float(v))
        return np.int32(len(seen))

    function = rlx.jit(lambda x: io_callback(remember, np.int32(0), x, ordered=True))
    assert [int(function(F(i))) for i in range(3)] == [1, 2, 3]
    assert seen == [0.0, 1.0, 2.0]
    with pytest.raises(errors.UnsupportedError, match="ordered"):
        rlx.vmap(lambda x: io_callback(remember, np.int32(0), x, ordered=True))(np.arange(2, dtype=F))
    seen.clear()
    counts = rlx.vmap(lambda x: io_callback(remember, np.int32(0), x))(np.arange(2, dtype=F))
    assert np.asarray(counts).tolist() == [1, 2]


def test_callbacks_without_users_run():
    seen = []

    def function(x):
        io_callback(lambda v: seen.append(float(v)), None, x)
        return x + 1

    rlx.jit(function)(F(3))
    function(F(4))
    assert seen == [3.0, 4.0]


def test_debug_print(capsys):
    def function(x):
        debug.print("x is {} and {y:.1f}", x, y=2 * x)
        return x * x

    function(F(1))
    rlx.jit(function)(F(2))
    rlx.grad(function)(F(3))
    rlx.jit(rlx.grad(function))(F(4))
    rlx.vmap(function)(np.array([5.0, 6.0], F))
    rlx.jit(rlx.vmap(function))(np.array([7.0, 8.0], F))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"x is {float(i)} and {2.0 * i:.1f}" for i in range(1, 9)]


def test_debug_print_in_loops(capsys):
    def step(c, x):
        debug.print("{}", x)
        return c + x, None

    rlx.lax.scan(step, np.int32(0), np.arange(3, dtype=np.int32))
    rlx.lax.while_loop(lambda c: c < 2, lambda c: (debug.print("c{}", c), c + 1)[1], np.int32(0))
    rlx.jit(lambda p: rlx.lax.cond(p, lambda: debug.print("yes"), lambda: debug.print("no")))(True)
    assert capsys.readouterr().out.split() == ["0", "1", "2", "c0", "c1", "yes"]


def test_debug_callback_with_trees():
    seen = []
    debug.callback(lambda tree, scale: seen.append((tree["a"].tolist(), scale.item())), {"a": np.arange(2)}, scale=3)
    assert seen == [([0, 1], 3)]


def test_a_callback_that_gets_unmapped_arguments_as_they_are():
    shapes = []

    def add(x, y):
        shapes.append((x.shape, y.shape))
        return x + y

    def f(x, y):
        return rlx.pure_callback(add, rlx.ShapeDtypeStruct((), x.dtype), x, y, vmap_method="legacy_vectorized")

    x, y = np.arange(3.0), np.float32(2.0).astype("f8")
    np.testing.assert_array_equal(rlx.vmap(f, in_axes=(0, None))(x, np.asarray(y)), x + 2)
    assert shapes == [((3,), ())]


def test_callbacks_take_arrays_and_any_tree_of_results():
    """The function sees rlx arrays; of the results' tree the leaves count."""
    seen = []

    def record(x):
        seen.append(x)
        return {"y": [[x.at[0].add(1)]]}

    promised = {"y": [rlx.ShapeDtypeStruct((2,), F)]}
    for wrap in (lambda f: f, rlx.jit):
        out = wrap(lambda x: pure_callback(record, promised, x))(np.zeros(2, F))
        assert out["y"][0].tolist() == [1, 0]
        debug.callback(record, np.zeros(2, F))
    assert len(seen) == 4 and all(isinstance(x, rlx.Array) for x in seen)


def test_options_first(capsys):
    """debug.print(ordered=True)(...) and debug.callback(ordered=True)(...)."""
    seen = []
    rlx.jit(lambda x: debug.print(ordered=True)("{} {y}", x, y=x))(1)
    rlx.jit(lambda x: debug.callback(ordered=True)(lambda v, w: seen.append((int(v), int(w))), x, w=x))(1)
    assert capsys.readouterr().out == "1 1\n" and seen == [(1, 1)]
    with pytest.raises(ValueError, match="does not use"):
        debug.print(ordered=True)("{}", 1, partitioned=True)
    with pytest.raises(TypeError):
        debug.print(a=1)
    with pytest.raises(TypeError):
        debug.callback(None, 1)


def test_print_options_of_the_call(capsys):
    """NumPy's, as they were where print was called, eagerly and jitted."""
    x = np.array([1.2345, 1e-7])

    def show(x):
        with np.printoptions(precision=2, suppress=True):
            debug.print("{}", x)

    show(x)
    rlx.jit(show)(x)
    assert capsys.readouterr().out == "[1.23 0.  ]\n" * 2


def test_effects_that_a_transform_would_repeat_are_refused():
    """Branches and loops that vmap runs for all, and what checkpoint computes again; prints are let through."""

    def count(v):
        io_callback(lambda w: None, None, v)
        return v

    def branch(p, x):
        return rlx.lax.cond(p, lambda: rlx.jit(count)(x), lambda: x)

    def loop(n):
        return rlx.lax.while_loop(lambda i: i < n, lambda i: count(i) + 1, 0)

    with pytest.raises(NotImplementedError, match="mapped predicate"):
        rlx.vmap(branch, (0, None))(np.array([True, False]), F(1))
    assert rlx.vmap(branch, (None, 0))(True, np.ones(2, F)).tolist() == [1, 1]
    with pytest.raises(NotImplementedError, match="mapped condition"):
        rlx.vmap(loop)(np.arange(2))
    with pytest.raises(NotImplementedError, match="checkpoint"):
        rlx.grad(rlx.checkpoint(lambda x: rlx.numpy.sin(count(x) * x)))(F(1))
    for transform in (
        lambda: rlx.jvp(lambda x: io_callback(np.sin, SCALAR, x), (F(0),), (F(1),)),
        lambda: rlx.linear_transpose(lambda x: pure_callback(np.sin, SCALAR, x), F(1))(F(1)),
        lambda: rlx.vmap(lambda x: io_callback(np.sin, SCALAR, x, ordered=True))(np.ones(2, F)),
    ):
        with pytest.raises(ValueError):
            transform()
