"""Static values that are equal and mean something else, and switches: what caches of programs tell apart."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx
from rlx import numpy as jnp
from rlx.config import Config
from rlx.statics import static_key


class Pair(NamedTuple):
    """A named tuple."""

    first: Any


@dataclass(frozen=True)
class Setting:
    """A dataclass with the equality that Python makes."""

    value: Any


# values that are equal, and no two of which mean the same
EQUAL: list[tuple[Any, ...]] = [
    (1, True, 1.0, 1 + 0j, np.int32(1), np.float32(1), np.float64(1), np.bool_(True)),
    (0.0, -0.0, 0, False, np.float32(-0.0)),
    (0j, complex(-0.0, 0.0), complex(0.0, -0.0)),
]
WRAPPED: dict[str, Callable[[Any], Any]] = {
    "alone": lambda x: x,
    "tuple": lambda x: (x,),
    "nested": lambda x: ((x, "a"), None),
    "named tuple": Pair,
    "dataclass": Setting,
    "frozenset": lambda x: frozenset([x]),
}


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_keys_of_static_values(wrapped: str) -> None:
    """Equal where the values are of one type and one sign, at every level."""
    wrap = WRAPPED[wrapped]
    for values in EQUAL:
        keys = [static_key(wrap(x)) for x in values]
        assert len(set(keys)) == len(values)
        assert keys == [static_key(wrap(x)) for x in values]
    assert static_key(wrap(math.nan)) == static_key(wrap(float("nan"))) or wrapped in ("dataclass",)
    assert static_key((1,)) != static_key(Pair(1))


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_jit_and_checkpoint_tell_static_values_apart(wrapped: str) -> None:
    """Each is traced once, by position and by keyword."""
    for values in EQUAL:
        given = tuple(map(WRAPPED[wrapped], values))
        for kind in ("position", "name", "checkpoint"):
            seen: list[Any] = []

            def f(x: Any, v: Any, seen: list[Any] = seen) -> Any:
                seen.append(v)
                return x * 2.0

            if kind == "position":
                run = rlx.jit(f, static_argnums=1)
                calls: list[Callable[[Any], Any]] = [lambda v, run=run: run(1.0, v)]
            elif kind == "name":
                run = rlx.jit(f, static_argnames="v")
                calls = [lambda v, run=run: run(1.0, v=v)]
            else:
                run = rlx.checkpoint(f, static_argnums=1)
                calls = [lambda v, run=run: run(1.0, v)]
            for value in (*given, *given):
                calls[0](value)
            assert len(seen) == len(values), kind


def test_keys_of_dicts_are_told_apart() -> None:
    """In flat dicts, in nested ones, and by what takes the quick way."""
    f = rlx.jit(lambda d: d)
    for make in (lambda k: {k: 2.0}, lambda k: {"a": [{k: jnp.ones(2)}]}, lambda k: {k: jnp.ones(2)}):
        for key in (1, True, 1.0, 1, True, 1.0):
            found = f(make(key))
            inner = found["a"][0] if "a" in found else found
            assert [type(k) for k in inner] == [type(key)]


def test_a_sign_is_part_of_a_static_number() -> None:
    f = rlx.jit(jnp.copysign, static_argnums=1)
    assert [float(f(1.0, k)) for k in (0.0, -0.0, 0.0)] == [1.0, -1.0, 1.0]


# ------------------------------------------------------------------ switches
SWITCHES = [name for name in Config.__annotations__ if name not in ("token", "watched")]
# another value of each switch that changes programs, or what they do
CHANGING: dict[str, Any] = {
    "auto_device": True,
    "default_float": np.dtype("f8"),
    "default_int": np.dtype("i8"),
    "disable_jit": True,
    "debug_nans": True,
    "debug_infs": True,
    "device": "c",
    "excess_precision": True,
    "deterministic": True,
    "numpy_rank_promotion": "warn",
    "numpy_dtype_promotion": "strict",
    "legacy_prng_key": "warn",
    "default_matmul_precision": "highest",
    "mesh": "a mesh",
    "default_prng_impl": "philox4x32",
    "enable_custom_prng": True,
    "narrow": True,
    "threefry_partitionable": False,
}
# another value of each of the others
ASIDE: dict[str, Any] = {
    "check": True,
    "explain": True,
    "progress": False,
    "dump": "",  # a folder
    "log_compiles": True,
    "check_tracer_leaks": True,
    "no_tracing": True,
    "num_cpu_devices": 7,
    "symbolic_sizes": False,
}


def test_every_switch_is_one_or_the_other() -> None:
    """A new switch has to be added here, with a proof if it is declared to change no program."""
    assert sorted([*CHANGING, *ASIDE]) == sorted(SWITCHES)


@pytest.fixture
def unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets switches be set that are otherwise fixed once devices are in use."""
    monkeypatch.setattr(sys.modules["rlx.config"], "_settled", set())


@pytest.mark.usefixtures("unsettled")
@pytest.mark.parametrize("switch", SWITCHES)
def test_tokens_follow_the_declarations(switch: str, tmp_path: Path) -> None:
    """A switch that changes programs changes the token, for a `with` block; another one does not."""
    value = CHANGING.get(switch, ASIDE.get(switch))
    value = str(tmp_path) if switch == "dump" else value
    before = rlx.config.token
    if value == getattr(rlx.config, switch):
        value = not value
    with rlx.scoped(**{switch: value}):
        assert (rlx.config.token != before) == (switch in CHANGING)
    assert rlx.config.token == before


def _sample(x: Any) -> Any:
    """Of many kinds of operations, loops and random numbers."""
    y = rlx.lax.scan(lambda c, v: (c * v + jnp.float32(1), c), x[0], x)[0]
    z = rlx.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, y) + rlx.random.normal(rlx.random.key(0), x.shape).sum()
    return rlx.grad(lambda v: (jnp.tanh(v @ v[:, None]) * z * jnp.arange(3)).sum())(x)


@pytest.mark.usefixtures("unsettled")
@pytest.mark.parametrize("switch", ASIDE)
def test_the_others_change_no_program(switch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The program that is traced under another value is the same."""
    value = str(tmp_path) if switch == "dump" else ASIDE[switch]
    expected = rlx.make_program(_sample)(jnp.ones(3))
    with rlx.scoped(**{switch: value}):
        found = rlx.make_program(_sample)(jnp.ones(3))
    assert found == expected
    capsys.readouterr()


def test_functions_nested_too_deeply_are_refused_in_words() -> None:
    """Hundreds of jitted functions inside one another, and a recursion without an end."""
    f: Any = lambda x: x + 1  # noqa: E731
    for _ in range(400):
        f = (lambda g: rlx.jit(lambda x: g(x)))(f)
    with pytest.raises(rlx.errors.NestingError, match="Python's limit"):
        f(1.0)
    assert float(rlx.jit(lambda x: x + 1)(1.0)) == 2.0
