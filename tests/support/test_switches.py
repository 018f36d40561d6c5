"""Switches under JAX's names, scopes, devices, debugging, profiles, dtypes, derivative checks."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import rlx
from rlx import dtypes, errors
from rlx import numpy as jnp
from rlx.test_util import check_jvp, check_vjp


def test_jax_names_of_switches() -> None:
    config = rlx.config
    assert config.jax_enable_x64 is False and config.jax_platform_name == config.device == "cpu"
    with rlx.enable_x64():
        assert config.jax_enable_x64 and jnp.zeros(2).dtype == np.float64 and jnp.arange(2).dtype == np.int64
        with rlx.enable_x64(False):
            assert jnp.zeros(2).dtype == np.float32
    config.update("jax_debug_nans", True)
    try:
        assert config.jax_debug_nans and config.debug_nans and config.read("debug_nans")
    finally:
        config.update("jax_debug_nans", False)
    config.update("jax_log_compiles", False)
    config.update("jax_threefry_partitionable", True)
    with pytest.raises(ValueError, match="knows only"):
        config.update("debug_key_reuse", True)
    with pytest.raises(ValueError, match="must be one of"):
        config.update("jax_default_prng_impl", "dice")
    with pytest.raises(ValueError, match="not a precision"):
        config.update("jax_default_matmul_precision", "exact")
    for missing in ("jax_nothing", "nothing"):
        with pytest.raises(AttributeError, match="no switch"):
            getattr(config, missing)


def test_scopes() -> None:
    with rlx.debug_nans(), pytest.raises(errors.NanError):
        jnp.log(-1.0)
    with rlx.default_matmul_precision("highest"), rlx.named_scope("product"):
        assert float(jnp.ones(3) @ jnp.ones(3)) == 3.0
    with pytest.raises(ValueError, match="not a precision"), rlx.default_matmul_precision("best"):
        pass
    with pytest.raises(TypeError, match="string"), rlx.named_scope(3):  # type: ignore[arg-type]
        pass

    @rlx.jit
    @partial(rlx.named_call, name="known")
    def f(x: Any) -> Any:
        with rlx.ensure_compile_time_eval():
            steps = int((jnp.ones(3) * 2).sum())
        return x * steps

    assert f(2.0) == 12.0 and rlx.named_call(f, name="other").__name__ == "other"


def test_devices() -> None:
    (cpu,) = rlx.devices("cpu")
    assert rlx.local_devices() == rlx.devices() and rlx.device_count("cpu") == rlx.local_device_count("cpu") == 1
    assert (rlx.process_count(), rlx.process_index(), cpu.process_index, cpu.local_hardware_id) == (1, 0, 0, 0)
    assert rlx.device_put({"a": 1.0}, {"a": cpu}, donate=True)["a"].dtype == np.float32
    assert rlx.copy_to_host_async([1]) == [1]
    rlx.effects_barrier()
    with pytest.raises(errors.DeviceError):
        rlx.local_devices(process_index=1)
    with pytest.raises(errors.DeviceError):
        rlx.device_put(1.0, "nowhere")
    assert rlx.typeof(1.0).weak and rlx.typeof(np.ones((2, 3))).shape == (2, 3)


def test_prints(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    rlx.jit(lambda x: rlx.debug.print("{} {y:.1f} {kind} {p.real}", x, y=x / 2, kind="text", p=x))(3.0)
    assert capsys.readouterr().out == "3.0 1.5 text 3.0\n"
    for fmt, error in (("{}", ValueError), ("{} {} {}", IndexError), ("{a} {}", KeyError)):
        with pytest.raises(error):
            rlx.debug.print(fmt, 1.0, 2.0)
    with pytest.raises(TypeError):
        rlx.debug.log(1.0)  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO, "rlx"):
        rlx.jit(lambda x: rlx.debug.log("at {}", x))(2.0)
    assert caplog.messages == ["at 2.0"]
    rlx.debug.visualize_array_sharding(jnp.ones((2, 2)))
    assert "CPU 0" in capsys.readouterr().out
    with pytest.raises(ValueError, match="1 or 2 axes"):
        rlx.debug.visualize_array_sharding(jnp.ones(()))


def test_breakpoint_sees_the_arrays_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, float] = {}
    monkeypatch.setattr(rlx.debug, "_stop", lambda **values: seen.update({k: float(v) for k, v in values.items()}))

    def f(x: Any) -> Any:
        y = x * x
        rlx.debug.breakpoint()
        rlx.debug.breakpoint(z=y + 1)
        return y

    rlx.jit(f)(3.0)
    assert seen == {"x": 3.0, "y": 9.0, "z": 10.0}


def test_profiler_writes_what_was_annotated(tmp_path: Path) -> None:
    double = rlx.profiler.annotate_function(lambda x: 2 * x, name="double")
    double(1)  # outside of a trace: not recorded
    with rlx.profiler.trace(tmp_path), rlx.profiler.StepTraceAnnotation("step", step_num=3):
        assert double(2) == 4
        with pytest.raises(RuntimeError, match="already"):
            rlx.profiler.start_trace(tmp_path)
    events = json.loads((tmp_path / "rlx.trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == ["double", "step"] and events[1]["args"] == {"step_num": "3"}
    assert events[0]["ts"] >= events[1]["ts"] and events[0]["dur"] <= events[1]["dur"]
    with pytest.raises(RuntimeError, match="no trace"):
        rlx.profiler.stop_trace()


def test_dtypes() -> None:
    key = rlx.random.key(0)
    for category in (dtypes.prng_key, dtypes.extended, np.generic):
        assert jnp.issubdtype(key.dtype, category)
    assert not jnp.issubdtype(key.dtype, np.floating) and not jnp.issubdtype(np.float32, dtypes.prng_key)
    assert dtypes.canonicalize_dtype(float) == np.float32 and dtypes.canonicalize_dtype("i8") == np.int64
    assert dtypes.canonicalize_dtype(key.dtype, allow_extended_dtype=True) == rlx.random.key_dtype()
    with pytest.raises(errors.DtypeError):
        dtypes.canonicalize_dtype(key.dtype)
    for name in ("bool", "int8", "float16", "bfloat16", "complex64", "float8_e5m2"):
        dtype = jax.numpy.dtype(name)
        assert dtypes.itemsize_bits(dtype) == jax.dtypes.itemsize_bits(dtype)
        assert dtypes.scalar_type_of(np.zeros(2, dtype)) is jax.dtypes.scalar_type_of(np.zeros(2, dtype))
    with pytest.raises(errors.DtypeError):
        dtypes.scalar_type_of("text")
    assert dtypes.float0 == jax.dtypes.float0
    assert isinstance(jnp.ones(2), rlx.typing.SupportsDType) and isinstance(1.0, rlx.typing.ArrayLike)


def test_derivative_checks_find_errors() -> None:
    x = (np.array([0.3, -1.2]), {"c": np.array([1.0 + 2.0j])})
    f = lambda a, b: {"r": jnp.sin(a) * jnp.real(b["c"]), "h": b["c"] ** 2}  # noqa: E731
    check_jvp(f, partial(rlx.jvp, f), x)
    check_vjp(f, partial(rlx.vjp, f), x)
    doubled = lambda p, t: (rlx.jvp(f, p, t)[0], rlx.tree.map(lambda v: 2 * v, rlx.jvp(f, p, t)[1]))  # noqa: E731
    with pytest.raises(AssertionError, match="mine tangent"):
        check_jvp(f, doubled, x, err_msg="mine")

    def wrong(*args: Any) -> Any:
        value, pull = rlx.vjp(f, *args)
        return value, lambda ct: rlx.tree.map(lambda v: 2 * v, pull(ct))

    with pytest.raises(AssertionError, match="cotangent"):
        check_vjp(f, wrong, x)
