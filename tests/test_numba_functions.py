"""Numba functions in programs: values, batches, derivatives by custom rules, errors, native steps."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.errors import CallbackError, DtypeError, UnsupportedError
from rlx.ir.kernels import Callback
from rlx.ir.user_functions import ArrayCall
from rlx.ops.numba_code import ScalarFunction

BACKENDS = ("cpu", "reference")


@numba.njit
def running_maximum(out: Any, x: Any) -> None:
    best = x[0]
    for i in range(x.size):
        best = max(best, x[i])
        out[i] = best


@numba.njit
def divide_all(quotient: Any, remainder: Any, x: Any, y: Any) -> None:
    for i in np.ndindex(x.shape):
        quotient[i] = x[i] // y[()]
        remainder[i] = x[i] % y[()]


@numba.njit
def collatz(n: Any) -> Any:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@numba.njit
def logistic_map(x: Any, rate: Any) -> Any:
    for _ in range(3):
        x = 2.0 * rate * x * (1.0 - x)
    return x


def maximum_so_far(x: Any) -> Any:
    return rlx.numba_call(running_maximum, x, x)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may call a Numba function from Python."""

    def refuse(*args: Any) -> Any:
        raise AssertionError("called from Python")

    monkeypatch.setattr(ArrayCall, "__call__", refuse)
    monkeypatch.setattr(ScalarFunction, "_evaluate", refuse)


# ------------------------------------------------------------------ functions of arrays
def test_values_eager_and_jitted(backend: str) -> None:
    x = np.array([1.0, 3.0, 2.0, np.inf, 4.0], np.float32)
    expected = np.maximum.accumulate(x)
    np.testing.assert_array_equal(maximum_so_far(x), expected)
    np.testing.assert_array_equal(rlx.jit(maximum_so_far, backend=backend)(x), expected)
    fused_around = rlx.jit(lambda x: maximum_so_far(x[::-1] * 2) + 1, backend=backend)
    np.testing.assert_array_equal(fused_around(x), np.maximum.accumulate(x[::-1] * 2) + 1)
    view = rlx.jit(lambda x: maximum_so_far(x[1:4]), backend=backend)
    np.testing.assert_array_equal(view(x), np.maximum.accumulate(x[1:4]))


@pytest.mark.usefixtures("no_python")
def test_compiled_programs_call_no_python() -> None:
    x = np.arange(6.0).reshape(2, 3)[:, ::-1]
    result = rlx.jit(lambda x: rlx.vmap(maximum_so_far)(x) * 2)(x)
    np.testing.assert_array_equal(result, np.maximum.accumulate(x, 1) * 2)
    steps = rlx.numba_scalar(numba.njit(collatz.py_func))  # as yet without any compiled code
    assert rlx.jit(steps)(np.array([6, 27])).tolist() == [8, 111]


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "i8", "u8", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 0, 3)])
def test_every_dtype_and_shape(backend: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    results = copied(x), rlx.jit(copied, backend=backend)(x)
    for result in results:
        np.testing.assert_array_equal(result, x)
        assert result.dtype == x.dtype


@numba.njit
def _copy(out: Any, x: Any) -> None:
    for i in np.ndindex(x.shape):
        out[i] = x[i]


def copied(x: Any) -> Any:
    return rlx.numba_call(_copy, x, x)


def test_several_outputs_scalars_and_trees(backend: str) -> None:
    x = np.array([[7, 8], [9, 10]])

    def both(x: Any, y: Any) -> Any:
        return rlx.numba_call(divide_all, {"quotient": x, "remainder": x}, x, y)

    for call in (both, rlx.jit(both, backend=backend)):
        result = call(x, 3)
        assert result["quotient"].tolist() == [[2, 2], [3, 3]]
        assert result["remainder"].tolist() == [[1, 2], [0, 1]]


@pytest.mark.thorough
def test_vmap_by_loop(backend: str) -> None:
    x = np.random.default_rng(1).integers(0, 100, (4, 3, 5))
    y = np.array([3, 4, 5])

    def divided(x: Any, y: Any) -> Any:
        return rlx.numba_call(divide_all, (x, x), x, y)

    inner = rlx.vmap(divided, in_axes=(0, 0))
    outer = rlx.vmap(inner, in_axes=(0, None))
    for call in (outer, rlx.jit(outer, backend=backend)):
        quotient, remainder = call(x, y)
        np.testing.assert_array_equal(quotient, x // y[:, None])
        np.testing.assert_array_equal(remainder, x % y[:, None])
    crossed = rlx.vmap(rlx.vmap(divided, in_axes=(None, 0)), in_axes=(2, None))
    expected = x.transpose(2, 0, 1)[:, None] // y[:, None, None]
    np.testing.assert_array_equal(rlx.jit(crossed, backend=backend)(x, y)[0], expected)
    assert rlx.jit(rlx.vmap(maximum_so_far), backend=backend)(np.ones((0, 3))).shape == (0, 3)


def test_vmap_by_a_given_rule(backend: str) -> None:
    seen = []

    def rule(size: int, batched: tuple[bool, ...], x: Any) -> Any:
        seen.append((size, batched, x.shape))
        return jnp.cumsum(x, axis=1), True

    def call(x: Any) -> Any:
        return rlx.numba_call(running_maximum, rlx.ShapeDtypeStruct((3,), "f8"), x, vmap=rule)

    x = np.arange(6.0).reshape(3, 2)
    result = rlx.jit(rlx.vmap(call, in_axes=1), backend=backend)(x)
    np.testing.assert_array_equal(result, np.cumsum(x.T, axis=1))
    assert seen == [(2, (True,), (2, 3))]
    with pytest.raises(CallbackError, match=r"vmap rule of running_maximum returned"):
        rlx.vmap(lambda x: rlx.numba_call(running_maximum, x, x, vmap=lambda n, b, x: (x[:, :1], True)))(x)


@pytest.mark.selected(1)
def test_inside_scan_cond_and_while(backend: str) -> None:
    xs = np.random.default_rng(2).normal(size=(4, 3))

    def step(carry: Any, x: Any) -> Any:
        carry = maximum_so_far(carry + x)
        return carry, carry.sum()

    def run(xs: Any) -> Any:
        return rlx.lax.scan(step, jnp.zeros(3, xs.dtype), xs)

    carry, sums = np.zeros(3), []
    for x in xs:
        carry = np.maximum.accumulate(carry + x)
        sums.append(carry.sum())
    found, ys = rlx.jit(run, backend=backend)(xs)
    np.testing.assert_allclose(found, carry, rtol=1e-6)
    np.testing.assert_allclose(ys, sums, rtol=1e-6)
    branch = rlx.jit(lambda p, x: rlx.lax.cond(p, maximum_so_far, lambda x: x, x), backend=backend)
    x = np.array([2.0, 1.0])
    assert branch(True, x).tolist() == [2, 2] and branch(False, x).tolist() == [2, 1]


@pytest.mark.thorough
def test_equal_calls_are_made_once_and_arguments_stay() -> None:
    @numba.njit("void(f8[:], f8[:])")
    def doubled(out: Any, x: Any) -> None:
        out[:] = 2 * x

    x = np.ones(3)
    twice = rlx.jit(lambda x: rlx.numba_call(doubled, x, x) + rlx.numba_call(doubled, x, x))
    assert twice(x).tolist() == [4, 4, 4] and x.tolist() == [1, 1, 1]
    plan = rlx.inspect(twice)(x).plan
    assert plan is not None
    assert sum(isinstance(k, Callback) and isinstance(k.function, ArrayCall) for k in plan.kernels) == 1


# ------------------------------------------------------------------ functions of scalars
def test_scalar_function(backend: str) -> None:
    steps = rlx.numba_scalar(collatz)
    n = np.array([[1, 6], [27, 97]])
    expected = [[0, 8], [111, 118]]
    assert steps(n).tolist() == expected
    assert rlx.jit(steps, backend=backend)(n).tolist() == expected
    assert int(rlx.jit(steps, backend=backend)(27)) == 111
    assert rlx.jit(steps, backend=backend)(np.zeros((0, 2), int)).shape == (0, 2)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "bfloat16"])
def test_scalar_function_of_floats_keeps_the_dtype(backend: str, dtype: str) -> None:
    x = np.linspace(0, 1, 100).astype(jnp.dtype(dtype))[:, None]
    rate = np.array([1, 1.9, np.nan], x.dtype)
    operation = rlx.numba_scalar(logistic_map)
    expected = np.asarray(operation(x, rate))
    found = rlx.jit(lambda x, r: -operation(x, r), backend=backend)(x, rate)
    assert found.dtype == expected.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(found).astype(float), -expected.astype(float))
    wide = logistic_map.py_func(x.astype(float), rate.astype(float))
    tolerance = 1e-6 if x.dtype.itemsize > 2 else 0.05
    np.testing.assert_allclose(expected.astype(float), wide, tolerance * 20, tolerance)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "u4", "i8", "u8", "f4"])
def test_scalar_function_of_mixed_dtypes(backend: str, dtype: str) -> None:
    @numba.njit
    def chosen(condition: Any, x: Any, y: Any) -> Any:
        return x if condition else y

    generator = np.random.default_rng(3)
    condition = generator.integers(0, 2, 50).astype(bool)
    x, y = (generator.integers(-200, 200, 50).astype(dtype) for _ in range(2))
    operation = rlx.numba_scalar(chosen)
    expected = np.where(condition, x, y)
    for call in (operation, rlx.jit(operation, backend=backend)):
        found = call(condition, x, y)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


def test_scalar_function_is_fused_batched_and_asked_for_a_dtype(backend: str) -> None:
    operation = rlx.numba_scalar(collatz, dtype="float32")

    def total(n: Any) -> Any:
        return (operation(n + 1) * 0.5).sum()

    n = np.arange(12).reshape(3, 4)
    expected = [sum(collatz(int(i) + 1) for i in row) / 2 for row in n]
    assert rlx.jit(rlx.vmap(total), backend=backend)(n).tolist() == expected
    assert operation(n + 1).dtype == np.float32
    plan = rlx.inspect(total)(n[0]).plan
    assert plan is not None and [type(k).__name__ for k in plan.kernels] == ["Loops"]


def test_scalar_function_on_threads_and_in_a_loop() -> None:
    operation = rlx.numba_scalar(logistic_map)
    x = np.random.default_rng(4).uniform(size=300_000)
    np.testing.assert_array_equal(rlx.jit(operation)(x, 1.5), operation(x, 1.5))
    turns = rlx.jit(lambda x: rlx.lax.fori_loop(0, 5, lambda i, x: operation(x, 1.5), x))
    expected = x[:10]
    for _ in range(5):
        expected = np.asarray(operation(expected, 1.5))
    np.testing.assert_allclose(turns(x[:10]), expected, rtol=1e-12)


# ------------------------------------------------------------------ derivatives
@pytest.mark.thorough
def test_custom_rules_give_derivatives() -> None:
    @numba.njit
    def scale(out: Any, x: Any, factor: Any) -> None:
        out[:] = x * factor[()]

    @rlx.custom_vjp
    def scaled(x: Any) -> Any:
        return rlx.numba_call(scale, x, x, 3.0)

    scaled.defvjp(lambda x: (scaled(x), None), lambda _, g: (rlx.numba_call(scale, g, g, 3.0),))
    x = np.arange(3.0)
    slope = rlx.grad(lambda x: (scaled(x) ** 2).sum())
    for call in (slope, rlx.jit(slope)):
        np.testing.assert_allclose(call(x), 18 * x)
    np.testing.assert_allclose(rlx.jit(rlx.vmap(slope))(np.stack([x, x + 1])), [18 * x, 18 * (x + 1)])

    sine = rlx.numba_scalar(numba.njit(lambda x: np.sin(x)))
    operation = rlx.custom_jvp(sine)
    operation.defjvp(lambda primals, tangents: (operation(*primals), tangents[0] * jnp.cos(primals[0])))
    np.testing.assert_allclose(rlx.jit(rlx.vmap(rlx.grad(operation)))(x), np.cos(x), rtol=1e-12)


@pytest.mark.parametrize("function", [maximum_so_far, lambda x: rlx.numba_scalar(logistic_map)(x, 2.0)])
def test_a_bare_derivative_says_what_to_write(function: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"has no derivative.(.|\n)*custom_jvp"):
        rlx.grad(lambda x: function(x).sum())(np.ones(3))


# ------------------------------------------------------------------ errors
def test_functions_that_are_not_numbas() -> None:
    with pytest.raises(UnsupportedError, match=r"is a function and not a function compiled by Numba(.|\n)*numba\.njit"):
        rlx.numba_call(lambda out, x: None, np.ones(3), np.ones(3))
    with pytest.raises(UnsupportedError, match=r"compiled by Numba"):
        rlx.numba_scalar(np.sin)
    objects = numba.jit(forceobj=True)(lambda out, x: None)
    with pytest.raises(UnsupportedError, match="object mode"):
        rlx.numba_call(objects, np.ones(3), np.ones(3))


@pytest.mark.parametrize("wrap", [lambda f: f, rlx.jit])
def test_what_nopython_mode_refuses(wrap: Any) -> None:
    @numba.njit
    def unknown(out: Any, x: Any) -> None:
        out[:] = x.no_such_attribute

    @numba.njit
    def overwrites(out: Any, x: Any) -> None:
        x[0] = 1

    for function, says in ((unknown, "no_such_attribute"), (overwrites, "readonly array")):
        call = wrap(lambda x, function=function: rlx.numba_call(function, x, x))
        with pytest.raises(UnsupportedError, match=rf"cannot compile {function.__name__} in nopython(.|\n)*{says}"):
            call(np.ones(3))


def test_wrong_parameters_results_and_dtypes() -> None:
    x = np.ones(3)
    with pytest.raises(UnsupportedError, match=r"with 2 arguments(.|\n)*\*outputs, \*inputs"):
        rlx.numba_call(numba.njit(lambda x: x), x, x)
    with pytest.raises(UnsupportedError, match=r"returns readonly array(.|\n)*out\[\.\.\.\] = "):
        rlx.numba_call(numba.njit(lambda out, x: x), x, x)
    with pytest.raises(UnsupportedError, match="no shape and dtype"):
        rlx.numba_call(running_maximum, 3, x)
    with pytest.raises(UnsupportedError, match="declares signatures"):
        rlx.numba_call(numba.njit("void(f4[:], f4[:])")(lambda out, x: None), x, x)
    with pytest.raises(UnsupportedError, match="bfloat16"):
        copied(x.astype(jnp.dtype("bfloat16")))
    with pytest.raises(UnsupportedError, match="not one real number"):
        rlx.numba_scalar(numba.njit(lambda x: (x, x)))(x)
    with pytest.raises(DtypeError, match="complex"):
        rlx.numba_scalar(numba.njit(lambda x: x))(1j * x)


@pytest.mark.selected(1)
def test_exceptions_inside_become_errors(backend: str) -> None:
    @numba.njit
    def wrong_shape(out: Any, x: Any) -> None:
        out[:] = x[:-1]

    def call(x: Any) -> Any:
        return rlx.numba_call(wrong_shape, x, x)

    x = np.ones(3)
    with pytest.raises(CallbackError, match=r"Numba function wrong_shape raised an exception: ValueError"):
        call(x)
    jitted = rlx.jit(call, backend=backend)
    for _ in range(2):
        with pytest.raises(CallbackError, match="Numba function wrong_shape raised an exception"):
            jitted(x)
    with pytest.raises(CallbackError, match="wrong_shape raised"):
        rlx.jit(lambda x: rlx.lax.scan(lambda c, _: (call(c), None), x, None, length=3), backend=backend)(x)
