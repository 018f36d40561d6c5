"""The blocks that draw splats: native code against their meaning, and one device against another."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from splat_scenes import camera_at, drawn

import rlx
import rlx.numpy as jnp
from rlx.splat import intersections, render
from rlx.splat.rasterise import splat_rasterise, splat_rasterise_gradient

WIDTH = HEIGHT = 20


def listed(tile: int, channels: int, perspective: bool, dtype: Any, seed: int = 0) -> list[np.ndarray]:
    """splats, order, starts, ends, origins of six tiles with random lists: an empty one, and a long opaque one."""
    rng = np.random.default_rng(seed)
    columns, count, lengths = 3, 40, np.array([0, 9, 70, 3, 1, 25])
    y, x = np.divmod(np.arange(6), columns)
    middles = rng.uniform(-2, 1.2, size=(count, 2)) * tile + np.array([tile * 2, tile])
    factors = rng.normal(size=(count, 2, 2)) / tile * 3
    forms = np.einsum("nij,nkj->nik", factors, factors) + 0.01 * np.eye(2)
    numbers = [
        middles,
        np.stack([forms[:, 0, 0], forms[:, 0, 1], forms[:, 1, 1]], -1),
        rng.uniform(0.01, 1.2, size=(count, 1)),
        rng.normal(size=(count, channels)),
        *([rng.normal(size=(count, 5)) * 0.02] if perspective else []),
    ]
    splats = np.concatenate(numbers, -1).astype(dtype)
    splats[:2, 5] = 0.0, 1.0
    ends = np.cumsum(lengths).astype(np.int32)
    order = rng.integers(0, count, size=ends[-1] + 5).astype(np.int32)
    return [splats, order, ends - lengths.astype(np.int32), ends, (np.stack([x, y], -1) * tile).astype(dtype)]


def both(operands: Any, tile: int, channels: int, cotangent: Any) -> Any:
    """The results of the two blocks."""
    image, seen = splat_rasterise(*operands, tile=tile, channels=channels)
    moved = splat_rasterise_gradient(*operands, image, seen, cotangent, tile=tile, channels=channels)
    return image, seen, moved


LAYOUTS = [(16, 3, False, "f4"), (16, 4, True, "f8"), (7, 1, False, "f8"), (32, 3, True, "f4"), (1, 2, False, "f4")]


@pytest.mark.thorough
@pytest.mark.parametrize(("tile", "channels", "perspective", "dtype"), LAYOUTS)
def test_native_code_equals_the_meaning(tile: int, channels: int, perspective: bool, dtype: str) -> None:
    operands = listed(tile, channels, perspective, dtype)
    cotangent = np.random.default_rng(1).normal(size=(6, tile * tile, channels + 1)).astype(dtype)
    compiled = rlx.jit(lambda *xs: both(xs[:-1], tile, channels, xs[-1]))
    plan = rlx.inspect(compiled)(*operands, cotangent).plan
    names = [getattr(kernel, "routine", "") for kernel in plan.kernels]
    assert {"splat_rasterise", "splat_rasterise_gradient"} <= set(names)
    found = compiled(*operands, cotangent)
    meant = rlx.jit(lambda *xs: both(xs[:-1], tile, channels, xs[-1]), device="reference")(*operands, cotangent)
    tolerance = 3e-5 if dtype == "f4" else 1e-11
    np.testing.assert_array_equal(found[1], meant[1])
    for a, b in zip(found, meant, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max())))
    assert np.abs(np.asarray(found[2])).max() > 0.01


def _loss(camera: Any, capacity: int, method: str) -> Any:
    def value(scene: Any) -> Any:
        shown = render(*scene, camera, WIDTH, HEIGHT, method=method, capacity=capacity, depth=True)
        return jnp.sum(shown.rgb**2) + jnp.sum(shown.depth) + jnp.sum(shown.alpha)

    return value


@pytest.mark.thorough
def test_results_have_the_same_bits_for_any_number_of_threads() -> None:
    scene, camera = drawn(300, size=-2.5, dtype=np.float32), camera_at(WIDTH, HEIGHT, dtype="float32")
    capacity = intersections(*scene[:3], camera, WIDTH, HEIGHT)
    slopes = rlx.jit(rlx.value_and_grad(_loss(camera, capacity, "ewa")))
    before = rlx.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 2):
            rlx.set_num_threads(threads)
            results.append([np.asarray(x).tobytes() for x in rlx.tree_util.tree_leaves(slopes(scene))])
    finally:
        rlx.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def _same_on(device: str, method: str) -> None:
    scene, camera = drawn(40, size=-2.0, dtype=np.float32), camera_at(WIDTH, HEIGHT, dtype="float32")
    capacity = intersections(*scene[:3], camera, WIDTH, HEIGHT, method=method)
    value = rlx.value_and_grad(_loss(camera, capacity, method))
    for a, b in zip(
        *(rlx.tree_util.tree_leaves(rlx.jit(value, device=d)(scene)) for d in (device, "cpu")), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(np.asarray(b)).max())))


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["ewa", "ray"])
@pytest.mark.parametrize("device", ["reference", "c"])
def test_devices_agree(device: str, method: str) -> None:
    _same_on(device, method)


@pytest.mark.thorough
@pytest.mark.skipif(os.environ.get("RLX_TEST_OPENCL") != "1", reason="RLX_TEST_OPENCL is not 1")
@pytest.mark.parametrize("method", ["ewa", "ray"])
def test_opencl_agrees(method: str) -> None:
    _same_on("opencl", method)
