"""JAX's switches as context managers and decorators: promotion, leaks, tracing, running, logging."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import rlx
from rlx import errors
from rlx import numpy as jnp

MATRIX, ROW, COUNTS = jnp.ones((2, 3)), jnp.ones(3), jnp.arange(3)


@pytest.mark.parametrize(
    "broadcast",
    [
        lambda x, y: x + y,
        lambda x, y: y > x,
        jnp.multiply,
        jnp.logaddexp,
        lambda x, y: rlx.vmap(lambda a: a * y[None])(x[None]) + y,
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, rlx.jit], ids=["eager", "jit"])
def test_rank_promotion(broadcast: Callable[..., Any], wrap: Callable[..., Any]) -> None:
    function = wrap(broadcast)
    expected = function(MATRIX, ROW)
    with rlx.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="different numbers of axes"):
        function(MATRIX, ROW)
    with rlx.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="numpy_rank_promotion") as seen:
        again = function(MATRIX, ROW)
    assert seen[0].filename == __file__
    np.testing.assert_array_equal(again, expected)
    with rlx.numpy_rank_promotion("raise"):
        where = jnp.where(MATRIX > 0, MATRIX, ROW)  # as in JAX, which asks functions of two operands
        for fine in (where, MATRIX + 1.0, MATRIX + jnp.ones(()), MATRIX + MATRIX[:1], jnp.var(MATRIX, axis=0)):
            assert np.isfinite(fine).all()
        assert rlx.grad(lambda x: (jnp.linalg.norm(x, axis=1) ** 2).mean())(MATRIX).shape == (2, 3)


def test_rank_promotion_as_a_decorator_and_process_wide() -> None:
    @rlx.numpy_rank_promotion("raise")
    def add() -> Any:
        return MATRIX + ROW

    for _ in range(2):
        with pytest.raises(errors.ShapeError):
            add()
    assert (MATRIX + ROW).shape == (2, 3)
    rlx.config.update("jax_numpy_rank_promotion", "raise")
    try:
        assert rlx.config.jax_numpy_rank_promotion == "raise"
        with pytest.raises(errors.ShapeError):
            _ = MATRIX + ROW
    finally:
        rlx.config.update("jax_numpy_rank_promotion", "allow")
    with pytest.raises(ValueError, match="one of 'allow'"), rlx.numpy_rank_promotion("never"):
        pass


OPERANDS = {
    "bool": np.ones(3, bool),
    "i1": np.ones(3, np.int8),
    "i4": np.ones(3, np.int32),
    "f4": np.ones(3, np.float32),
    "f8": np.ones(3),
    "c8": np.ones(3, np.complex64),
    "Python bool": True,
    "Python int": 2,
    "Python float": 2.0,
    "Python complex": 2j,
}


@pytest.mark.parametrize("left", OPERANDS)
@pytest.mark.parametrize("right", OPERANDS)
def test_strict_dtype_promotion_refuses_what_jax_refuses(left: str, right: str) -> None:
    x, y = OPERANDS[left], OPERANDS[right]

    def refused(numpy: Any, scope: Callable[..., Any]) -> bool:
        try:
            with scope("strict"):
                numpy.add(*(numpy.asarray(v) if isinstance(v, np.ndarray) else v for v in (x, y)))
        except ValueError:
            return True
        return False

    assert refused(jnp, rlx.numpy_dtype_promotion) == refused(jax.numpy, jax.numpy_dtype_promotion)


def test_strict_dtype_promotion() -> None:
    add = rlx.jit(lambda x, y: x + y)
    assert add(ROW, COUNTS).dtype == np.float32
    with rlx.numpy_dtype_promotion("strict"):
        with pytest.raises(rlx.dtypes.TypePromotionError, match="float32, int32"):
            add(ROW, COUNTS)
        assert jnp.mean(COUNTS) == 1.0 and jnp.zeros(3).at[0].set(jnp.asarray(1))[0] == 1.0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert jnp.zeros(3).at[0].set(jnp.asarray(1, np.int32))[0] == 1.0


def test_legacy_keys() -> None:
    key = rlx.random.PRNGKey(0)
    with rlx.legacy_prng_key("error"):
        with pytest.raises(TypeError, match="legacy_prng_key"):
            rlx.random.split(key)
        assert rlx.random.split(rlx.random.key(0)).shape == (2,)
    with rlx.legacy_prng_key("warn"), pytest.warns(UserWarning, match="legacy_prng_key"):
        rlx.random.split(key)


def test_leaks_are_found_where_the_function_ends() -> None:
    held: list[Any] = []

    def leaky(x: Any) -> Any:
        held.append(x * 2)
        return x

    def fine(x: Any) -> Any:
        return jnp.sum(rlx.lax.scan(lambda c, _: (c * 2, c), x, None, 3)[1])

    for transform in (rlx.jit, rlx.grad, lambda f: lambda x: rlx.vmap(f)(x[None])):
        with rlx.checking_leaks():
            with pytest.raises(errors.UnexpectedTracerError, match="Leaked"):
                transform(leaky)(jnp.ones(()))
            held.clear()
            transform(fine)(jnp.ones(()))
    with rlx.check_tracer_leaks(False):
        rlx.jit(leaky)(1.0)


def test_no_tracing_and_no_execution() -> None:
    f = rlx.jit(lambda x: x + 1.0)
    f(1.0)
    with rlx.no_tracing():
        assert f(2.0) == 3.0
        with pytest.raises(RuntimeError, match="no_tracing"):
            f(jnp.ones(2))
    with rlx.no_execution():
        for run in (lambda: f(2.0), lambda: ROW + 1.0, lambda: jnp.sin(ROW)):
            with pytest.raises(RuntimeError, match="no_execution"):
                run()
        lowered = f.lower(ROW)
        assert rlx.eval_shape(jnp.sin, ROW).shape == (3,)
    assert lowered.compile()(ROW).tolist() == [2.0] * 3 and f(2.0) == 3.0
    with rlx.no_execution(False):
        assert f(2.0) == 3.0


def test_compiles_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def shift(x: Any) -> Any:
        return x * 17.25 - 3.5

    with caplog.at_level(logging.WARNING, "rlx"), rlx.log_compiles():
        rlx.jit(shift)(ROW)
    assert [r.message for r in caplog.records if "Compiling shift for" in r.message]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "rlx"):
        rlx.jit(lambda x: x * 18.25 - 3.5)(ROW)
    assert not caplog.records


def test_switches_that_change_nothing_and_those_that_are_refused() -> None:
    accepted = [
        rlx.transfer_guard("disallow"),
        rlx.transfer_guard_host_to_device("log"),
        rlx.transfer_guard_device_to_device("allow"),
        rlx.transfer_guard_device_to_host("disallow_explicit"),
        rlx.softmax_custom_jvp(False),
        rlx.enable_custom_prng(True),
        rlx.debug_key_reuse(False),
        rlx.threefry_partitionable(True),
        rlx.default_prng_impl("threefry2x32"),
        rlx.enable_checks(),
        rlx.explain_cache_misses(),
    ]
    for scope in accepted:
        with scope:
            assert rlx.jit(jnp.sin)(0.0) == 0.0
    with rlx.transfer_guard("disallow"):
        assert rlx.config.jax_transfer_guard == "disallow"
    assert rlx.config.jax_transfer_guard is None
    for scope in (rlx.debug_key_reuse(True), rlx.transfer_guard("never")):
        with pytest.raises(ValueError, match="rlx knows only|must be one of"), scope:
            pass


def test_live_arrays_and_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    kept = jnp.ones(5)
    assert any(x is kept for x in rlx.live_arrays())
    kept.delete()
    assert not any(x is kept for x in rlx.live_arrays())
    with pytest.raises(errors.DeviceError):
        rlx.live_arrays("toaster")
    text = rlx.print_environment_info(return_string=True)
    assert rlx.print_environment_info() is None and capsys.readouterr().out.strip() == str(text).strip()
    assert (rlx.host_count(), rlx.host_id(), rlx.host_ids(), rlx.process_indices()) == (1, 0, [0], [0])


def test_errors_have_the_bases_of_jax() -> None:
    ours, theirs = errors, jax.errors
    for name in theirs.__all__ if hasattr(theirs, "__all__") else dir(theirs):
        found = getattr(theirs, name)
        if isinstance(found, type) and issubclass(found, Exception):
            own = getattr(ours, name)
            bases = {b.__name__ for b in found.__mro__ if b.__module__ == "jax.errors" or b.__module__ == "builtins"}
            assert bases <= {b.__name__ for b in own.__mro__}, name
    assert issubclass(errors.UnexpectedTracerError, errors.JAXTypeError)
    assert issubclass(errors.CallbackError, errors.JaxRuntimeError)


def test_a_users_context_traces_again_for_each_value() -> None:
    context = rlx.make_user_context(0)
    traced: list[int] = []

    @rlx.jit
    def f(x: Any) -> Any:
        traced.append(context.value)
        return x + context.value

    for _ in range(2):
        found = [float(f(1.0))]
        with context(2):
            found.append(float(f(1.0)))
            with context(3), rlx.enable_x64():
                found.append(float(f(1.0)))
            with context(True):  # equal to 1, and another value
                found.append(float(f(1.0)))
            with context(1):
                found.append(float(f(1.0)))
        assert found == [1.0, 3.0, 4.0, 2.0, 2.0]
    assert traced == [0, 2, 3, True, 1]
    assert context.value == 0


def test_a_users_context_for_all_threads_and_for_one() -> None:
    context, other = rlx.make_user_context("a"), rlx.make_user_context()
    seen: list[Any] = []
    with context("b"), other(1):
        thread = threading.Thread(target=lambda: seen.append((context.value, other.value)))
        thread.start()
        thread.join()
        context.set_global("c")
        assert (context.value, context.get_global(), other.value) == ("b", "c", 1)
        with pytest.raises(TypeError):
            context.set_global([])
        with pytest.raises(TypeError), context([]):
            pass
        assert context.value == "b"
    assert seen == [("a", None)] and context.value == "c"
    with pytest.raises(TypeError):
        rlx.make_user_context([])


def test_a_default_set_inside_of_a_scope_leaves_the_scope_as_it_is() -> None:
    """A function traced there is not taken for one of another dtype."""
    ones = rlx.jit(lambda: jnp.ones(2))
    assert ones().dtype == np.float32
    with rlx.enable_x64():
        rlx.config.update("explain", False)
        assert ones().dtype == np.float64
    assert ones().dtype == np.float32


def test_the_default_device_can_be_unset() -> None:
    """None restores the initial device; devices and names are accepted."""
    initial = rlx.config.device
    with rlx.default_device("reference"), rlx.default_device(None):
        assert rlx.config.device == initial
    try:
        for value in ("reference", rlx.devices("reference")[0]):
            rlx.config.update("jax_default_device", value)
            assert rlx.config.device == rlx.config.jax_default_device == "reference"
            rlx.config.update("jax_default_device", None)
            assert rlx.config.device == initial
    finally:
        rlx.config.update("device", initial)
