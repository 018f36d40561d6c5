"""What jit may be told about arguments, what it refuses, and types of absent arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors


def _three(a: Any, b: Any, c: Any) -> Any:
    return a + b + c


def _named(a: Any, /, b: Any, *, c: Any) -> Any:
    return a + b + c


def _more(a: Any, *rest: Any, **named: Any) -> Any:
    return a


@pytest.mark.parametrize("kind", ("static", "donate"))
def test_arguments_that_are_not_there(kind: str) -> None:
    numbers, names = f"{kind}_argnums", f"{kind}_argnames"
    for function, given in ((_three, (0, 1, 3)), (_three, (0, -4)), (_named, 2), (_named, -3)):
        with pytest.raises(ValueError, match=f"jit got {numbers}="):
            rlx.jit(function, **{numbers: given})
    with pytest.raises(errors.OptionError, match=f"jit got {names}='d'"):
        rlx.jit(_three, **{names: ("b", "d")})
    for function, options in ((_three, {numbers: (0, -1)}), (_more, {numbers: (0, 99)}), (_more, {names: "other"})):
        assert rlx.jit(function, **options).fun is function


def test_static_arguments_cannot_be_given_away() -> None:
    for options in (
        {"static_argnums": 0, "donate_argnums": 0},
        {"static_argnames": "b", "donate_argnames": "b"},
        {"static_argnames": "b", "donate_argnums": 1},
    ):
        with pytest.raises(errors.OptionError, match="both as static and as one to donate"):
            rlx.jit(_three, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", ({"donate_argnums": 1}, {"donate_argnames": "b"}, {"donate_argnums": -2}))
def test_an_argument_is_given_away_by_position_and_by_name(options: dict[str, Any]) -> None:
    f = rlx.jit(_three, **options)
    for call in (lambda a, b, c: f(a, b, c), lambda a, b, c: f(a, c=c, b=b)):
        a, b, c = jnp.ones(3), jnp.ones(3), jnp.ones(3)
        np.testing.assert_array_equal(call(a, b, c), [3.0, 3.0, 3.0])
        assert b.is_deleted() and not a.is_deleted() and not c.is_deleted()


def test_an_array_that_is_given_away_is_no_other_argument() -> None:
    f, x = rlx.jit(_three, donate_argnums=(0, 1)), jnp.ones(3)
    with pytest.raises(errors.DonatedArrayError, match="another argument"):
        f(x, jnp.ones(3), x)
    with pytest.raises(RuntimeError):
        f(x, x, jnp.ones(3))
    assert not x.is_deleted()
    np.testing.assert_array_equal(rlx.jit(lambda y: f(y, y, y))(x), [3.0, 3.0, 3.0])  # inside, nothing is given away


def test_what_cannot_be_traced() -> None:
    def numbers(x: Any) -> Iterator[Any]:
        yield x

    decorator: Callable[..., Any] = rlx.jit(static_argnums=0)
    for call in (lambda: rlx.jit(3), lambda: decorator(classmethod(_three))):
        with pytest.raises(TypeError, match="takes a function"):
            call()
    with pytest.raises(errors.OptionError, match="generator"):
        rlx.jit(numbers)


def test_attributes_of_the_function_are_the_jitted_functions() -> None:
    def f(x: Any) -> Any:
        """Adds one."""
        return x + 1

    f.note = "known"  # type: ignore[attr-defined]
    jitted = rlx.jit(f)
    assert jitted.note == "known" and jitted.__doc__ == "Adds one."
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        getattr(jitted, "other")  # noqa: B009
    with pytest.raises(AttributeError):
        getattr(rlx.jit(np.add), "other")  # noqa: B009


def test_types_of_absent_arrays() -> None:
    kinds = (rlx.ShapeDtypeStruct.like(x) for x in (jnp.ones((2, 3), "int8"), np.ones(4), 1.0))
    assert [(k.shape, k.dtype.name, k.weak_type) for k in kinds] == [
        ((2, 3), "int8", False),
        ((4,), "float64", False),
        ((), "float32", True),
    ]
    with pytest.raises(ValueError, match="Every size is a number"):
        rlx.ShapeDtypeStruct((None, 2), "float32")  # type: ignore[arg-type]


# ------------------------------------------------------------------ debug_nans, debug_infs
def test_infinities_name_their_operation() -> None:
    with rlx.debug_infs():
        with pytest.raises(errors.NanError, match="divide made an infinity"):
            1.0 / jnp.zeros(2)
        with pytest.raises(FloatingPointError, match=r"exp made an infinity[^@]*test_jit_options.py"):
            rlx.jit(lambda x: jnp.exp(x) + 1)(1000.0)
        assert np.isnan(jnp.sqrt(-1.0)) and np.isinf(jnp.float32(np.inf) + 1)
        np.testing.assert_array_equal(rlx.jit(jnp.max)(jnp.ones(3)), 1.0)
    assert np.isinf(rlx.jit(lambda x: jnp.exp(x) + 1)(1000.0))
    rlx.config.update("jax_debug_infs", True)
    try:
        assert rlx.config.debug_infs
        with pytest.raises(errors.NanError):
            jnp.exp(1000.0)
    finally:
        rlx.config.update("jax_debug_infs", False)


@pytest.mark.parametrize(("switch", "value"), ((rlx.debug_nans, np.nan), (rlx.debug_infs, np.inf)))
def test_results_that_no_operation_made_are_refused(switch: Any, value: float) -> None:
    chosen = rlx.jit(lambda x: rlx.lax.cond(x == 1, lambda: value, lambda: 2.0))
    assert float(chosen(2)) == 2.0
    with switch():
        assert float(chosen(2)) == 2.0
        with pytest.raises(errors.NanError, match="cond made"):
            chosen(1)
        with pytest.raises(errors.NanError, match="came in with the arguments"):
            rlx.jit(lambda x: x * 3.0)(value)
        with pytest.raises(errors.NanError, match="came in with the arguments"):
            rlx.jit(lambda x: (value, x + 2))(3.0)


def test_names_of_arguments_that_cannot_be_given_by_name() -> None:
    def f(x: Any, /, *y: Any, z: int = 0) -> Any:
        return x * z

    for name in ("x", "y"):
        with pytest.raises(ValueError, match="no such argument"):
            rlx.jit(f, static_argnames=name)
    assert rlx.jit(f, static_argnames="z")(2.0, z=3) == 6.0
    with pytest.raises(TypeError, match="staticmethod"):
        rlx.jit(staticmethod(f))
