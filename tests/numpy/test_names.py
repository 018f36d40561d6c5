"""rlx.numpy has the public names of jax.numpy, and takes every parameter of its functions."""

from __future__ import annotations

import inspect
import warnings
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import pytest

import rlx
import rlx.numpy as rnp
from rlx import errors

# dtypes of less than 8 bits, and 8-bit floats that no kernel computes with
NARROW = {"int1", "int2", "int4", "uint1", "uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"}
NARROW |= {"float8_e3m4", "float8_e4m3", "float8_e8m0fnu"}
# a hook of einsum for its own tests
PRIVATE = {"_dot_general"}
# parts of arrays that belong to XLA: buffers of several devices, layouts, tracebacks
OF_XLA = {"addressable_shards", "global_shards", "device_buffer", "device_buffers", "format", "platform", "traceback"}
# properties that raise for this array in jax
REFUSED = {"flat"}

PAIRS = [(jnp, rnp), (jnp.linalg, rnp.linalg), (jnp.fft, rnp.fft)]


def public(module: ModuleType) -> list[str]:
    """Names without an underscore in front."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [n for n in dir(module) if not n.startswith("_") and hasattr(module, n)]


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name."""
    return dict(inspect.signature(function).parameters)


@pytest.mark.parametrize("theirs, ours", PAIRS, ids=["numpy", "linalg", "fft"])
def test_every_name_is_there(theirs: ModuleType, ours: ModuleType) -> None:
    """Functions, dtypes, constants."""
    assert [n for n in public(theirs) if n not in NARROW and not hasattr(ours, n)] == []


@pytest.mark.parametrize("theirs, ours", PAIRS, ids=["numpy", "linalg", "fft"])
def test_every_parameter_is_taken(theirs: ModuleType, ours: ModuleType) -> None:
    """By name where jax takes it by name, and in as many positions."""
    for name in set(public(theirs)) - NARROW:
        function = getattr(theirs, name)
        if isinstance(function, (type, ModuleType)) or not inspect.isroutine(function):
            continue
        wanted, taken = parameters(function), parameters(getattr(ours, name))
        if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
            continue
        named = {n for n, p in wanted.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        assert named - PRIVATE <= set(taken), name
        places = [
            sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in s.values()) for s in (wanted, taken)
        ]
        assert places[0] <= places[1] or any(p.kind is p.VAR_POSITIONAL for p in taken.values()), name


def test_arrays_have_the_methods_of_jax_arrays() -> None:
    """Methods with their parameters, and properties."""
    theirs, ours = jnp.ones((2, 2)), rnp.ones((2, 2))
    for name in [n for n in dir(type(theirs)) if not n.startswith("_")]:
        if name in OF_XLA | REFUSED:
            continue
        assert hasattr(ours, name), name
        method = getattr(theirs, name)
        if not inspect.ismethod(method):
            continue
        taken = parameters(getattr(ours, name))
        flexible = any(p.kind is p.VAR_KEYWORD for p in taken.values())
        missing = [n for n, p in parameters(method).items() if p.kind is not p.VAR_POSITIONAL and n not in taken]
        assert flexible or not missing, (name, missing)


def test_updates_have_the_methods_of_jax() -> None:
    """x.at[index].set and its kin."""
    theirs, ours = jnp.ones(3).at[0], rnp.ones(3).at[0]
    assert [n for n in dir(theirs) if not n.startswith("_") and not hasattr(ours, n)] == []


def test_out_is_refused_and_out_sharding_checked() -> None:
    """out is accepted as None only, out_sharding as a sharding; neither is ignored."""
    x = rnp.ones(3)
    for function in (rnp.sum, rnp.cumsum, rnp.max, rnp.median, rnp.add.reduce, rnp.stack, rnp.nanmean):
        with pytest.raises(NotImplementedError, match="out"):
            function(x, out=x)
    with pytest.raises(errors.UnsupportedError):
        rnp.add(x, x, out=x)
    for refused in (
        lambda: rnp.zeros(3, out_sharding="x"),
        lambda: rnp.reshape(x, 3, out_sharding="x"),
        lambda: x.at[0].set(1.0, out_sharding="x"),
    ):
        with pytest.raises(errors.InputTypeError, match="as a sharding"):
            refused()


def test_devices_are_checked() -> None:
    """Arrays live on the host, by its name or as a Device."""
    host = rlx.devices("cpu")[0]
    for device in (None, "cpu", "cpu:0", host):
        x = rnp.zeros(2, device=device)
        assert x.device == host and x.device == "cpu" and x.devices() == {host}
        assert x.to_device(device) is x
    assert rnp.eye(2, device="cpu").device == rnp.arange(2, device=host).device
    for refused in (lambda: rnp.zeros(2, device="abacus"), lambda: x.to_device("abacus"), lambda: rnp.eye(2, device=7)):
        with pytest.raises(errors.DeviceError):
            refused()


@pytest.mark.parametrize("module", [rnp, rlx.lax])
def test_a_name_has_one_home(module: ModuleType) -> None:
    """What a front takes from its modules' __all__ collides nowhere, and is all there."""
    assert len(module.__all__) == len(set(module.__all__))
    assert all(hasattr(module, name) for name in module.__all__)


def test_functions_know_their_names() -> None:
    """Functions with two names answer to both."""
    for name in ("abs", "absolute", "asin", "arcsin", "pow", "power", "mod", "remainder", "invert", "amax", "around"):
        function = getattr(rnp, name)
        assert function.__name__ == name and function.__module__.startswith("rlx.numpy")
