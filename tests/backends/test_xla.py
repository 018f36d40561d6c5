"""The device xla: programs as StableHLO on PJRT's processor, beside the CPU and NumPy."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from primitive_cases import cases_of, names
from test_primitives import compiled_tolerance, is_claimed, turned_towards
from trainings import losses

import rlx
import rlx.numpy as jnp
from rlx import errors, lax
from rlx.backends import backend_named
from rlx.testing import assert_close
from rlx.xla import client

DEVICE = "xla:cpu"
# StableHLO has no operation for these, and rlx no decomposition
REFUSED = """assumed_pattern bessel_j confluent_hypergeometric csr_incomplete_lu csr_logdet csr_lstsq csr_solve
    csr_triangular_solve eig faddeeva hypergeometric matrix_sqrt process_all_gather process_all_reduce
    process_all_to_all process_broadcast process_copy process_part process_permute process_reduce
    process_reduce_scatter process_rows process_same process_total schur sylvester""".split()
DIRECTIONS = {("eigh", 1), ("svd", 0), ("svd", 2)}  # columns, or rows, up to a phase
X = np.linspace(-2.0, 2.0, 24, dtype=np.float32).reshape(4, 6)


@pytest.mark.skipif(os.environ.get("RLX_TEST_XLA") != "1", reason="XLA takes minutes to compile: make test-xla runs it")
@pytest.mark.parametrize("name", [name for name in names() if name not in REFUSED])
def test_a_primitive_computes_the_reference(name: str) -> None:
    backend = backend_named(DEVICE)
    for case in cases_of(name):
        if not is_claimed(case, backend):
            continue
        if name == "reduce" and not case.sample.params["axes"]:
            continue  # XLA drops the initial value then, as if it were neutral
        if name == "select_and_scatter_add" and "dilat" in _refusal(case):
            continue
        with rlx.enable_x64(True):
            found = rlx.jit(lambda *a, case=case: case.bind(*a), device=DEVICE)(*case.arrays)
        references = case.reference(*case.arrays)
        for number, expected in enumerate(references):
            result, tolerance = np.asarray(found[number]), 10 * compiled_tolerance(expected.dtype)
            if (name, number) in DIRECTIONS and len(references) > 1:
                rows = (name, number) == ("svd", 2)
                turned = turned_towards(*(x.swapaxes(-1, -2) if rows else x for x in (result, expected)))
                result = turned.swapaxes(-1, -2) if rows else turned
            assert_close(result, expected, tolerance, tolerance, message=repr(case))


def _refusal(case: Any) -> str:
    try:
        rlx.jit(case.bind, device=DEVICE).lower(*case.arrays).compile()
    except errors.UnsupportedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", REFUSED[:3])
def test_missing_operations_are_refused_by_name(name: str) -> None:
    case = cases_of(name)[0]
    with pytest.raises(errors.UnsupportedError, match=name):
        rlx.jit(lambda *a: case.bind(*a), device=DEVICE)(*case.arrays)


def test_arrays_keys_and_control_flow() -> None:
    """Results are arrays of the device; keys, constants, passed-through values, 64 bits and empty arrays."""
    constant = np.arange(6.0, dtype=np.float32)

    def f(key: Any, x: Any, n: Any) -> Any:
        drawn = rlx.random.normal(key, x.shape)
        looped = lax.fori_loop(0, n, lambda i, c: c * 0.5 + constant, x[0])
        chosen = lax.cond(n > 2, jnp.sin, jnp.cos, x)
        return {"drawn": drawn, "looped": looped, "x": x, "empty": x[:0], "chosen": chosen}

    arguments = (rlx.random.key(3), X, 4)
    expected, found = (rlx.jit(f, device=device)(*arguments) for device in ("cpu", DEVICE))
    for name, value in expected.items():
        assert_close(np.asarray(found[name]), np.asarray(value), 1e-5, 1e-6, message=name)
        assert found[name].device == DEVICE
    assert float((found["drawn"] + found["x"]).sum()) == pytest.approx(float((expected["drawn"] + X).sum()), rel=1e-4)
    sums = lambda x: (jnp.nonzero(x > 0, size=3)[0], jnp.cumsum(x))  # noqa: E731  which states no direction
    for value, reference in zip(rlx.jit(sums, device=DEVICE)(X[0]), sums(X[0]), strict=True):
        assert_close(np.asarray(value), np.asarray(reference), 1e-5, 1e-6)
    with rlx.enable_x64(True):
        wide = rlx.jit(lambda x: x * 3, device=DEVICE)(np.array([2**40, 1]))
        assert wide.dtype == np.int64 and wide.tolist() == [3 * 2**40, 3]


@pytest.mark.thorough
def test_gradients_vmap_and_training() -> None:
    """The same losses as on the CPU, and gradients under vmap."""
    example = "digits"
    np.testing.assert_allclose(losses(DEVICE, 3, example), losses("cpu", 3, example), rtol=1e-4)
    each = rlx.vmap(rlx.grad(lambda x: jnp.tanh(x @ x).sum()))
    np.testing.assert_allclose(rlx.jit(each, device=DEVICE)(X), each(X), rtol=1e-5)


def test_a_program_has_texts_instead_of_a_plan() -> None:
    found = rlx.inspect(lambda x: jnp.sin(x) @ x.T, device=DEVICE)(X)
    assert found.plan is None and "plans by itself" in found.lir
    assert set(found.kernels.texts) == {"cost", "memory", "stablehlo", "xla"}
    assert "stablehlo.sine" in found.kernels.texts["stablehlo"] and "HloModule" in found.kernels.texts["xla"]
    assert str(found) and found.statistics.kernels == {}
    with pytest.raises(errors.UnsupportedError, match="memory_limit"):
        rlx.jit(jnp.sin, device=DEVICE, memory_limit=10)(X)


def test_donated_arguments_become_results() -> None:
    """Results are written over donated inputs, unless something else refers to them; views keep their values."""
    step = rlx.jit(lambda p, g, n: (p - 0.1 * g, n + 1, g), donate_argnums=(0, 1, 2), device=DEVICE)
    p, g, n = (rlx.device_put(x, DEVICE) for x in (X, np.ones_like(X), np.float32(0)))
    assert "alias: 100 bytes" in rlx.inspect(step)(p, g, n).kernels.texts["memory"]
    view, places = np.asarray(p), []
    for count in range(1, 4):
        before, (p, n, g) = p, step(p, g, n)
        assert before.is_deleted() and not g.is_deleted()
        np.testing.assert_allclose(p, X - 0.1 * count, rtol=1e-6)
        places.append(p._storage.pointer)
    np.testing.assert_array_equal(view, X)  # PJRT copied what the view reads
    assert places[0] == places[1] == places[2] != view.ctypes.data and float(n) == 3
    other = p._storage.array  # as another library would hold it
    step(p, g, n)
    np.testing.assert_allclose(other, X - 0.3, rtol=1e-6)
    twice = rlx.jit(lambda a: (a + 1, a + 2), donate_argnums=0, device=DEVICE)
    assert [float(x[0, 0]) for x in twice(rlx.device_put(X, DEVICE))] == [-1.0, 0.0]


def test_executables_are_kept_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A second executable of the same program compiles nothing; damaged files are compiled again."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    compiled: list[str] = []
    real = client.serialized_executable

    def counted(place: Any, text: str) -> bytes:
        compiled.append(text)
        return real(place, text)

    monkeypatch.setattr("rlx.xla.executable.serialized_executable", counted)

    def run() -> float:
        rlx.clear_caches()
        return float(rlx.jit(lambda x: jnp.cos(x).sum(), device=DEVICE)(X))

    values = [run(), run()]
    assert len(compiled) == 1
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"\0")
    values.append(run())
    assert len(compiled) == 2 and len(set(values)) == 1


def test_unknown_devices_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that name the devices that exist, the packages, and the versions."""
    with pytest.raises(errors.DeviceError, match="xla:cpu"):
        backend_named("xla:abacus")
    with pytest.raises(errors.DeviceError, match="tpu"):
        rlx.jit(jnp.sin, device="tpu")(X)
    monkeypatch.setattr(client, "VERSIONS", ((0, 1), (0, 2)))
    with pytest.raises(errors.DeviceError, match="jaxlib"):
        client.jax.__wrapped__()
