"""The blocks that draw splats: native code against their meaning, and one device against another."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from splat_scenes import blocks_program, camera_at, drawn

import rlx
import rlx.numpy as jnp
from rlx.splat import intersections, render

WIDTH = HEIGHT = 20


LAYOUTS = [(16, 3, False, "f4"), (16, 4, True, "f8"), (7, 1, False, "f8"), (32, 3, True, "f4"), (1, 2, False, "f4")]
NEEDS_OPENCL = pytest.mark.skipif(os.environ.get("RLX_TEST_OPENCL") != "1", reason="RLX_TEST_OPENCL is not 1")
DEVICES = ["c", pytest.param("opencl", marks=NEEDS_OPENCL)]


def _check_blocks(device: str, tile: int, channels: int, perspective: bool, dtype: str) -> None:
    """A device has kernels of its own for both blocks, which compute their meaning."""
    function, *given = blocks_program(tile, channels, perspective, dtype)
    compiled = rlx.jit(function, device=device)
    names = [getattr(kernel, "routine", "") for kernel in rlx.inspect(compiled)(*given).plan.kernels]
    assert {"splat_rasterise", "splat_rasterise_gradient"} <= set(names)
    found = compiled(*given)
    meant = rlx.jit(function, device="reference")(*given)
    tolerance = 3e-5 if dtype == "f4" else 1e-11
    np.testing.assert_array_equal(found[1], meant[1])
    for a, b in zip(found, meant, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max())))
    assert np.abs(np.asarray(found[2])).max() > 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["cpu", *DEVICES])
@pytest.mark.parametrize(("tile", "channels", "perspective", "dtype"), LAYOUTS)
def test_kernels_equal_the_meaning(device: str, tile: int, channels: int, perspective: bool, dtype: str) -> None:
    _check_blocks(device, tile, channels, perspective, dtype)


@pytest.mark.thorough
@pytest.mark.parametrize(("tile", "channels", "perspective", "dtype"), LAYOUTS[:2])
def test_numba_equals_the_meaning(tile: int, channels: int, perspective: bool, dtype: str) -> None:
    _check_blocks("numba", tile, channels, perspective, dtype)


def test_loops_equal_the_meaning() -> None:
    _check_blocks("c", 5, 2, True, "f4")


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


@pytest.mark.thorough
@NEEDS_OPENCL
def test_gradients_on_gpus_have_the_same_bits_if_asked() -> None:
    scene, camera = drawn(300, size=-2.5, dtype=np.float32), camera_at(WIDTH, HEIGHT, dtype="float32")
    capacity = intersections(*scene[:3], camera, WIDTH, HEIGHT)
    with rlx.scoped(deterministic=True):
        slopes = rlx.jit(rlx.grad(_loss(camera, capacity, "ewa")), device="opencl")
        results = [[np.asarray(x).tobytes() for x in slopes(scene)] for _ in range(3)]
        launches = rlx.inspect(slopes)(scene).kernels.texts["launches"]
    assert results[0] == results[1] == results[2]
    assert "ordered sums" in launches and "pixels pass" in launches


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
@pytest.mark.parametrize("device", ["reference", *DEVICES])
def test_devices_agree(device: str, method: str) -> None:
    _same_on(device, method)
