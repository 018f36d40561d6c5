"""The renderer's names in the first design, and the page that shows a scene."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from splat_scenes import image

import rlx
import rlx.numpy as jnp
from rlx.errors import OptionError, ShapeError, UnsupportedError
from rlx.ir.splats import COLOUR
from rlx.splat import (
    GaussianSplatInputs,
    RenderParams,
    Splats,
    gaussian_splat_prepare,
    gaussian_splat_rasterize,
    gaussian_splat_render,
    gaussian_splat_render_backward,
    harmonic_basis,
    init_from_points,
    make_parity_scene,
    register,
    unpack_gaussian_splat_packed_grads,
    viewer_page,
)

WIDTH, HEIGHT = 20, 14


def test_the_flat_image_is_that_of_rays() -> None:
    register()
    scene = make_parity_scene(WIDTH, HEIGHT)
    params = RenderParams.from_meta(scene.meta)._replace(radius_scale=1.6, background=(0.1, 0.2, 0.3))
    scene = scene._replace(meta=params.meta)
    camera = params.camera
    away = scene.positions - np.asarray(camera.position)
    basis = np.asarray(harmonic_basis(away / np.linalg.norm(away, axis=1, keepdims=True), 3))
    colours = np.maximum(0.5 + np.einsum("nk,nkc->nc", basis, scene.sh_coeffs), 0)
    rgb, alpha, _ = image(
        scene.positions, scene.rotations, scene.scales + np.log(1.6), scene.opacities, colours, camera, WIDTH, HEIGHT,
        method="ray", background=params.background,
    )  # fmt: skip
    found = np.asarray(gaussian_splat_render(scene)).reshape(HEIGHT, WIDTH, 4)
    np.testing.assert_allclose(found, np.concatenate([rgb**2.2, alpha[..., None]], -1), atol=2e-5)


def test_the_image_is_that_of_the_two_halves() -> None:
    scene = make_parity_scene(WIDTH, HEIGHT)
    prepared, meta = gaussian_splat_prepare(scene)
    np.testing.assert_array_equal(gaussian_splat_rasterize(prepared, meta), gaussian_splat_render(scene))

    def brightness(rows: Any) -> Any:
        return jnp.sum(gaussian_splat_rasterize(prepared._replace(rows=rows), meta))

    slopes = np.asarray(rlx.grad(brightness)(prepared.rows))
    brighter = brightness(prepared.rows.at[3, COLOUR].add(1e-2)) - brightness(prepared.rows)
    np.testing.assert_allclose(1e-2 * slopes[3, COLOUR], brighter, rtol=0.05)


def test_packed_gradients_are_exact() -> None:
    scene = make_parity_scene(WIDTH, HEIGHT)
    scene = GaussianSplatInputs(*(np.float64(a) for a in scene))
    rng = np.random.default_rng(0)
    weights = rng.normal(size=WIDTH * HEIGHT * 4)
    slopes = unpack_gaussian_splat_packed_grads(gaussian_splat_render_backward(scene, weights), 18)
    step = [rng.normal(size=a.shape) for a in scene[:6]]

    def value(size: float) -> float:
        moved = [a + size * d for a, d in zip(scene[:6], step, strict=True)]
        return float(jnp.vdot(gaussian_splat_render(GaussianSplatInputs(*moved, scene.meta)), weights))

    found = sum(float(np.vdot(a, b)) for a, b in zip(slopes[:6], step, strict=True))
    np.testing.assert_allclose(found, (value(1e-6) - value(-1e-6)) / 2e-6, rtol=1e-5)
    clipped = gaussian_splat_render_backward(scene, weights, loss_grad_clip=0.1)
    expected = gaussian_splat_render_backward(scene, np.clip(weights, -0.1, 0.1))
    np.testing.assert_array_equal(clipped, expected)


def test_parameters_are_numbers_in_one_array() -> None:
    params = RenderParams(position=(1.0, 2.0, 3.0), fov_y=40.0, width=30, max_list_entries=7)
    again = RenderParams.from_meta(params.meta)
    assert (again.fov_y, again.width, again.max_list_entries) == (40.0, 30, 7) and again.position.tolist() == [1, 2, 3]
    with pytest.raises(ShapeError, match="23"):
        RenderParams.from_meta(params.meta[:-1])
    with pytest.raises(UnsupportedError, match="max_splat_steps"):
        RenderParams.from_meta(params._replace(max_splat_steps=32).meta)
    without = GaussianSplatInputs(*(np.zeros(0),) * 5, None, None)
    assert unpack_gaussian_splat_packed_grads(np.zeros(28), 2)[5:] == without[5:]
    with pytest.raises(ShapeError, match="Packed"):
        unpack_gaussian_splat_packed_grads(np.zeros(5), 2)


def test_a_page_has_the_scene_and_fetches_nothing() -> None:
    scene = init_from_points(np.eye(3), np.ones((3, 3)), degree=0)
    broken = Splats(*(np.concatenate([a, a[:1] * np.nan]) for a in scene))
    page = viewer_page(broken, "a </script> scene")
    found = re.search(r'id="contents">(.*?)</script>', page)
    assert found and "http" not in page.replace("http-equiv", "")
    contents = json.loads(found[1])
    assert len(contents["means"]) == 48 and "a &lt;/script&gt; scene" in page  # 3 * 3 numbers of 4 bytes
    with pytest.raises(OptionError, match="finite"):
        viewer_page(Splats(*(a * np.nan for a in scene)))
