"""Every kind of view under every kind of indexing, on every device: index maps of both are composed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import errors, lax

Function = Callable[..., Any]

# of an array of shape (6, 4): arrays of two axes, whose elements are in other places
VIEWS: dict[str, Function] = {
    "whole": lambda x: x,
    "reversed rows": lambda x: x[::-1],
    "reversed columns": lambda x: x[:, ::-1],
    "reversed": lambda x: x[::-1, ::-1],
    "strided": lambda x: x[1::2, ::3],
    "strided backwards": lambda x: x[4::-2, ::-1],
    "transposed": lambda x: x.T,
    "transposed and reversed": lambda x: x.T[::-1],
    "rotated": lambda x: jnp.rot90(x),
    "broadcast rows": lambda x: jnp.broadcast_to(x[3:4, ::-1], (5, 4)),
    "broadcast columns": lambda x: jnp.broadcast_to(x[::-1, 1:2], (6, 3)),
    "sliced": lambda x: x[2:5, 1:3],
    "sliced and reversed": lambda x: x[1:][::-1],
    "padded": lambda x: jnp.pad(x, ((1, 2), (0, 1)))[::-1],
    "reshaped": lambda x: x.reshape(3, 8)[:, ::-1],
    "sorted": lambda x: jnp.sort(x, axis=0)[::-1],
    "rolled": lambda x: jnp.roll(x, 2, axis=0),
    "concatenated": lambda x: jnp.concatenate([x[::-1], x[:2]]),
    "diagonal": lambda x: jnp.diagonal(x[::-1])[:, None],
    "computed": lambda x: (x + x)[::-1],
}
# of a view, and of numbers of which some are negative and some outside
OPERATIONS: dict[str, Function] = {
    "rows": lambda v, i: v[i],
    "a row": lambda v, i: v[i[1]],
    "columns": lambda v, i: v[:, i],
    "elements": lambda v, i: v[i, i[::-1]],
    "clipped": lambda v, i: jnp.take(v, i, axis=0, mode="clip"),
    "filled": lambda v, i: jnp.take(v, i, axis=1, mode="fill", fill_value=3),
    "promised": lambda v, i: v.at[jnp.where(i % 3 == 2, 0, i % 3) % v.shape[0]].get(mode="promise_in_bounds"),
    "promised, negative": lambda v, i: lax.dynamic_index_in_dim(v, jnp.where(i[2] < 0, i[2] + 2, i[2]), keepdims=False),
    "in rows of rows": lambda v, i: v[::-1][i],
    "along rows": lambda v, i: jnp.take_along_axis(v, jnp.broadcast_to(i[:, None] % v.shape[0], (6, v.shape[1])), 0),
    "along columns": lambda v, i: jnp.take_along_axis(v, jnp.argsort(v, axis=1, descending=True), 1),
    "slice": lambda v, i: v[1:3, ::-1],
    "traced slice": lambda v, i: lax.dynamic_slice(v, (i[2], i[1]), (2, 1)),
    "batched slices": lambda v, i: rlx.vmap(lambda k: lax.dynamic_slice_in_dim(v, k, 2))(i),
    "traced update": lambda v, i: lax.dynamic_update_slice(v, v[:2, :1] + 1, (i[2], i[1])),
    "update by a view": lambda v, i: lax.dynamic_update_slice(jnp.zeros((9, 9), v.dtype), v, (i[0], i[1])),
    "scatter": lambda v, i: v.at[i[:4]].set(7),
    "scattered sums": lambda v, i: v.at[i, i[::-1]].add(2),
    "scattered views": lambda v, i: jnp.zeros((7, v.shape[1]), v.dtype).at[i[: v.shape[0]]].add(v[: len(i)]),
    "derivative": lambda v, i: rlx.grad(lambda w: (w[::-1][i].real ** 2).sum().astype(float))(v)
    if jnp.issubdtype(v.dtype, jnp.floating) else v[i],
    "loop": lambda v, i: lax.scan(lambda c, k: (c + v[k, 0], v[::-1][k]), v[0, 0], i)[1],
    "product": lambda v, i: v @ v[::-1].T,
    "sums": lambda v, i: jnp.cumsum(v, axis=0)[i],
}  # fmt: skip
INDEX = np.array([1, 0, -1, 3, 9, -8], np.int32)
DEVICES = ("reference", "cpu", "c", "numba", "mlx", "opencl")
OPENCL = pytest.mark.skipif(os.environ.get("RLX_TEST_OPENCL") != "1", reason="make test-opencl installs what it needs")


def device_named(name: str) -> str:
    """The device, or skip the test where it is not there."""
    if name == "mlx":
        pytest.importorskip("mlx.core", reason="mlx is not installed: pip install 'rlx[mlx]'")
    try:
        rlx.devices(name)
    except errors.DeviceError as error:
        if name == "opencl":  # only asked for where make test-opencl installs it
            raise
        pytest.skip(str(error))  # no C compiler
    return name


CASES = [
    *((device, "float32") for device in DEVICES[:-1]),
    *(pytest.param(d, t, marks=pytest.mark.thorough) for d in DEVICES[:-1] for t in ("complex64", "int8", "int64")),
    pytest.param("opencl", "float32", marks=OPENCL),  # whose compiler takes a minute for these programs
]


@pytest.mark.thorough
@pytest.mark.selected(len(CASES))
@pytest.mark.parametrize(("device", "dtype"), CASES)
def test_indexing_of_views(dtype: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    device = device_named(device)
    x = np.random.default_rng(3).permutation(24).reshape(6, 4).astype(dtype)
    for name, view in VIEWS.items():
        def results(x: Any, i: Any, view: Function = view) -> dict[str, Any]:
            return {operation: f(view(x), i) for operation, f in OPERATIONS.items()}

        found, expected = rlx.jit(results, device=device)(x, INDEX), results(jnp.asarray(x), jnp.asarray(INDEX))
        for operation in OPERATIONS:
            both = np.asarray(found[operation]), np.asarray(expected[operation])
            np.testing.assert_allclose(*both, rtol=1e-5, err_msg=f"{operation} of {name}")
