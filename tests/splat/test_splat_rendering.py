"""rlx.splat.render against every splat at every pixel in NumPy, finite differences, and loops."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import sph_harm_y
from splat_scenes import camera_at, drawn, image

import rlx
import rlx.numpy as jnp
from rlx.errors import ConcretizationTypeError, DtypeError, InputTypeError, OptionError, ShapeError
from rlx.experimental import checkify
from rlx.splat import Camera, harmonic_basis, intersections, project, render, spherical_harmonics

WIDTH, HEIGHT = 27, 21


def _close(got: Any, expected: Any, tolerance: float) -> None:
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=tolerance, atol=tolerance)


def _rendered(scene: Any, camera: Any, width: int = WIDTH, height: int = HEIGHT, **options: Any) -> list[Any]:
    shown = render(*scene, camera, width, height, depth=True, **options)
    return [shown.rgb, shown.alpha, shown.depth]


# ------------------------------------------------------------- meaning
@pytest.mark.parametrize("method", ["ewa", "ray"])
@pytest.mark.parametrize("tile", [16, *(pytest.param(n, marks=pytest.mark.thorough) for n in (8, 32))])
def test_tiles_equal_all_pixels(method: str, tile: int) -> None:
    scene, camera = drawn(60, tile), camera_at(WIDTH, HEIGHT)
    background = np.array([0.1, 0.5, 0.9])
    expected = image(*scene, camera, WIDTH, HEIGHT, method=method, background=background)
    _close(_rendered(scene, camera, method=method, tile=tile, background=background), expected, 1e-12)
    single = [a.astype(np.float32) for a in scene]
    again = [np.float64(a) for a in single]
    expected = image(*again, camera, WIDTH, HEIGHT, method=method, background=background)
    _close(_rendered(single, camera, method=method, tile=tile, background=background)[:2], expected[:2], 2e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["ewa", "ray"])
@pytest.mark.parametrize(
    ("count", "spread", "size"),
    [(1, 0.0, 1.2), (400, 0.02, -4.0), (50, 3.0, -2.0)],
    ids=["large", "one tile", "outside"],
)
def test_extreme_scenes(method: str, count: int, spread: float, size: float) -> None:
    scene, camera = drawn(count, 5, spread=spread, size=size), camera_at(WIDTH, HEIGHT)
    _close(_rendered(scene, camera, method=method), image(*scene, camera, WIDTH, HEIGHT, method=method), 1e-11)


@pytest.mark.thorough
def test_ten_thousand_splats_in_one_tile() -> None:
    scene, camera = drawn(10_000, 2, spread=0.01, size=-5.0), camera_at(16, 16)
    scene[3] *= 0.01
    _close(_rendered(scene, camera, 16, 16), image(*scene, camera, 16, 16), 1e-10)


def test_antialiased() -> None:
    scene, camera = drawn(40, 7, size=-4.0), camera_at(WIDTH, HEIGHT)
    expected = image(*scene, camera, WIDTH, HEIGHT, antialiased=True)
    _close(_rendered(scene, camera, antialiased=True), expected, 1e-12)
    assert np.abs(expected[1] - image(*scene, camera, WIDTH, HEIGHT)[1]).max() > 0.01


@pytest.mark.parametrize("count", [0, 5])
def test_nothing_to_see(count: int) -> None:
    scene, camera = drawn(count), camera_at(WIDTH, HEIGHT)
    scene[0] = scene[0] + np.array([0.0, 0.0, -100.0])
    shown = render(*scene, camera, WIDTH, HEIGHT, background=0.25, depth=True)
    assert np.all(np.asarray(shown.rgb) == 0.25) and not np.any(np.asarray(shown.alpha))
    moved = rlx.grad(lambda s: jnp.sum(render(*s, camera, WIDTH, HEIGHT).rgb))(scene)
    assert not any(np.any(np.asarray(a)) for a in moved)


def test_numbers_that_are_not_finite_are_dropped_and_counted() -> None:
    scene, camera = drawn(20), camera_at(WIDTH, HEIGHT)
    expected = _rendered([a[5:] for a in scene], camera)
    for n, array in enumerate(scene):
        array[n] = [np.nan, np.inf][n % 2]
    shown = render(*scene, camera, WIDTH, HEIGHT, depth=True)
    _close([shown.rgb, shown.alpha, shown.depth], [np.asarray(x) for x in expected], 1e-12)
    assert int(shown.info.dropped) == 5
    moved = rlx.grad(lambda s, c: jnp.sum(render(*s, c, WIDTH, HEIGHT).rgb), argnums=(0, 1))(scene, camera)
    assert all(np.all(np.isfinite(np.asarray(a))) for part in moved for a in part)


EXTREMES = {"scale": (2, (-1e3, -30.0, 30.0, 1e3)), "place": (0, (1e8, 1e30)), "opacity": (3, (-1.0, 0.0, 1.0, 50.0))}


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["cpu", "c"])
@pytest.mark.parametrize("method", ["ewa", "ray"])
@pytest.mark.parametrize("kind", EXTREMES)
def test_derivatives_of_extreme_splats_are_finite(kind: str, method: str, device: str) -> None:
    number, values = EXTREMES[kind]
    camera = camera_at(WIDTH, HEIGHT, dtype="float32")

    @partial(rlx.jit, device=device)
    def slopes(scene: Any, camera: Any) -> Any:
        def value(scene: Any, camera: Any) -> Any:
            return jnp.sum(render(*scene, camera, WIDTH, HEIGHT, method=method, capacity=64).rgb)

        return rlx.value_and_grad(value, argnums=(0, 1))(scene, camera)

    for value in values:
        scene = drawn(6, 3, dtype=np.float32)
        scene[number][::2] = value
        assert all(np.all(np.isfinite(np.asarray(a))) for a in rlx.tree_util.tree_leaves(slopes(scene, camera)))


def test_equal_depths_keep_their_order() -> None:
    scene, camera = drawn(2, spread=0.0, size=0.0), camera_at(WIDTH, HEIGHT)
    scene[1], scene[2], scene[3] = np.ones((2, 4)), np.zeros((2, 3)), np.full(2, 0.9)
    front = [_rendered([a[order] for a in scene], camera)[0][HEIGHT // 2, WIDTH // 2] for order in ([0, 1], [1, 0])]
    assert np.abs(front[0] - front[1]).max() > 0.01
    np.testing.assert_allclose(front[0], image(*scene, camera, WIDTH, HEIGHT)[0][HEIGHT // 2, WIDTH // 2], atol=1e-12)


def test_gamma_is_a_step_of_its_own() -> None:
    scene, camera = drawn(20), camera_at(WIDTH, HEIGHT)
    linear, curved = (render(*scene, camera, WIDTH, HEIGHT, gamma=g).rgb for g in (None, 2.2))
    np.testing.assert_allclose(curved, np.asarray(linear) ** 2.2, rtol=1e-12)


# ------------------------------------------------------------- harmonics and cameras
def test_harmonics_are_those_of_scipy_in_the_order_of_the_files() -> None:
    directions = np.random.default_rng(0).normal(size=(50, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    polar, azimuth = np.arccos(directions[:, 2]), np.arctan2(directions[:, 1], directions[:, 0])
    expected = []
    for degree in range(4):
        for order in range(-degree, degree + 1):
            wave = sph_harm_y(degree, abs(order), polar, azimuth)  # with the sign (-1)^order, which the files have too
            part = wave.imag if order < 0 else wave.real
            expected.append(part * (math.sqrt(2) if order else 1.0))
    np.testing.assert_allclose(harmonic_basis(directions, 3), np.stack(expected, -1), atol=1e-13)


def test_harmonics_become_colours() -> None:
    scene, camera = drawn(30), camera_at(WIDTH, HEIGHT)
    weights = np.random.default_rng(3).normal(size=(30, 16, 3)) * 0.3
    eye = -camera.rotation.T @ camera.translation
    away = scene[0] - eye
    seen = np.asarray(spherical_harmonics(weights, away / np.linalg.norm(away, axis=1, keepdims=True)))
    expected = image(*scene[:4], seen, camera, WIDTH, HEIGHT)
    _close(_rendered([*scene[:4], weights], camera), expected, 1e-12)


def test_look_at_sees_its_target_in_the_middle() -> None:
    camera = Camera.look_at((3.0, 1.0, 2.0), (0.5, 0.5, 0.0), fov_y=40.0, width=80, height=60)
    target = np.asarray(camera.rotation) @ np.array([0.5, 0.5, 0.0]) + np.asarray(camera.translation)
    np.testing.assert_allclose(target[:2], 0, atol=1e-6)
    np.testing.assert_allclose(camera.position, (3.0, 1.0, 2.0), atol=1e-5)
    np.testing.assert_allclose(np.linalg.det(camera.rotation), 1, atol=1e-5)
    above = np.asarray(camera.rotation) @ np.array([0.0, 1.0, 0.0])
    assert above[1] < 0  # y points down in the image


# ------------------------------------------------------------- derivatives
def _functional(method: str, seed: int, **options: Any) -> Any:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=s) for s in ((HEIGHT, WIDTH, 3), (HEIGHT, WIDTH), (HEIGHT, WIDTH))]

    def value(scene: Any, camera: Camera) -> Any:
        shown = _rendered(scene, camera, method=method, tile=8, background=np.array([0.1, 0.2, 0.3]), **options)
        return sum(jnp.sum(a * b) for a, b in zip(shown, parts, strict=True))

    return value


def _moved(tree: Any, step: Any, size: float) -> Any:
    return rlx.tree_util.tree_map(lambda a, d: a + size * d, tree, step)


def _check_derivatives(method: str, seed: int, harmonics: bool = False) -> None:
    """Along a random direction in all inputs and the camera. Near a threshold differences are wrong: two sizes of
    steps must agree first."""
    rng = np.random.default_rng(seed)
    scene, camera = drawn(8, seed, size=-1.2), camera_at(WIDTH, HEIGHT, angle=rng.uniform(0, 6))
    if harmonics:
        scene[4] = rng.normal(size=(8, 9, 3)) * 0.1
    value = _functional(method, seed, antialiased=method == "ewa")
    steps = [rng.normal(size=a.shape) for a in scene], Camera(*(rng.normal(size=np.shape(a)) for a in camera))

    def difference(size: float) -> float:
        ahead, behind = (value(_moved(scene, steps[0], s), _moved(camera, steps[1], s)) for s in (size, -size))
        return float(ahead - behind) / (2 * size)

    coarse, fine = difference(1e-6), difference(5e-7)
    if abs(coarse - fine) > 1e-6 * abs(fine):
        return
    slopes = rlx.grad(value, argnums=(0, 1))(scene, camera)
    found = sum(np.vdot(a, b) for a, b in zip([*slopes[0], *slopes[1]], [*steps[0], *steps[1]], strict=True))
    np.testing.assert_allclose(found, fine, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(rlx.jvp(value, (scene, camera), steps)[1], fine, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("method", ["ewa", "ray"])
@pytest.mark.selected(1)
def test_derivatives(method: str) -> None:
    _check_derivatives(method, 3)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["ewa", "ray"])
@pytest.mark.parametrize("block", range(4))
def test_derivatives_of_many_scenes(method: str, block: int) -> None:
    for seed in range(100 + 25 * block, 125 + 25 * block):
        _check_derivatives(method, seed, harmonics=seed % 2 == 0)


@pytest.mark.thorough
def test_second_derivatives() -> None:
    scene, camera = drawn(8, 3, size=-1.2), camera_at(WIDTH, HEIGHT)
    step = np.random.default_rng(1).normal(size=scene[0].shape)

    def slope(means: Any) -> Any:
        return rlx.grad(lambda m: jnp.sum(render(m, *scene[1:], camera, WIDTH, HEIGHT).rgb ** 2))(means)

    found = rlx.jvp(slope, (scene[0],), (step,))[1]
    ahead, behind = (np.asarray(slope(scene[0] + s * step)) for s in (1e-5, -1e-5))
    np.testing.assert_allclose(found, (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-6)


def test_gradient_of_the_offsets_of_means() -> None:
    scene, camera = drawn(8, 3), camera_at(WIDTH, HEIGHT)

    def value(offset: Any) -> Any:
        return jnp.sum(render(*scene, camera, WIDTH, HEIGHT, means2d_offset=offset).rgb[:, :5] ** 2)

    zero, step = np.zeros((8, 2)), np.random.default_rng(0).normal(size=(8, 2))
    expected = float(value(1e-6 * step) - value(-1e-6 * step)) / 2e-6
    np.testing.assert_allclose(np.vdot(rlx.grad(value)(zero), step), expected, rtol=1e-6)


# ------------------------------------------------------------- transforms
@pytest.mark.thorough
def test_vmap_over_cameras_is_a_loop() -> None:
    scene = drawn(30)

    def shown(angle: Any) -> Any:
        eye = (5 * jnp.sin(angle), 0.5, -5 * jnp.cos(angle))
        camera = Camera.look_at(eye, (0.0, 0.1, 0.0), width=WIDTH, height=HEIGHT, dtype="float64")
        return render(*scene, camera, WIDTH, HEIGHT, capacity=400, tile=8)

    angles = np.array([0.1, 0.2, 0.9])
    together = rlx.vmap(shown)(angles)
    slopes = rlx.vmap(rlx.grad(lambda a: jnp.sum(shown(a).rgb ** 2)))(angles)
    for n, angle in enumerate(angles):
        np.testing.assert_allclose(together.rgb[n], shown(angle).rgb, atol=1e-13)
        np.testing.assert_allclose(slopes[n], rlx.grad(lambda a: jnp.sum(shown(a).rgb ** 2))(angle), rtol=1e-10)


def test_jit_needs_a_capacity_and_counts_what_exceeds_it() -> None:
    scene, camera = drawn(30), camera_at(WIDTH, HEIGHT)
    count = intersections(*scene[:3], camera, WIDTH, HEIGHT)
    with pytest.raises(ConcretizationTypeError, match="capacity"):
        rlx.jit(lambda s: render(*s, camera, WIDTH, HEIGHT).rgb)(scene)

    def shown(scene: Any) -> Any:
        return render(*scene, camera, WIDTH, HEIGHT, capacity=count - 3)

    info = shown(scene).info
    assert (int(info.total), int(info.overflow)) == (count, 3)
    error, _ = checkify.checkify(shown)(scene)
    with pytest.raises(checkify.JaxRuntimeError, match="more intersections than its capacity"):
        error.throw()


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["ewa", "ray"])
def test_memory_is_of_splats_intersections_and_pixels(method: str) -> None:
    """No temporary of the gradient has pixels x splats elements."""
    scene, camera = [a.astype(np.float32) for a in drawn(4000, size=-4.0)], camera_at(256, 256)
    capacity = 20_000

    def loss(s: Any) -> Any:
        return jnp.sum(render(*s, camera, 256, 256, method=method, capacity=capacity).rgb ** 2)

    plan = rlx.inspect(rlx.grad(loss))(scene).plan
    assert plan.arena < 4 * (100 * (4000 + capacity) + 40 * 256 * 256)


# ------------------------------------------------------------- bad input
def _with(number: int, value: Any) -> list[Any]:
    scene = drawn(5)
    scene[number] = value
    return scene


MISTAKES = [
    (lambda: _with(0, np.zeros((5, 2))), {}, ShapeError, "means"),
    (lambda: _with(1, np.ones((4, 4))), {}, ShapeError, "quats"),
    (lambda: _with(3, np.ones((5, 1))), {}, ShapeError, "opacities"),
    (lambda: _with(4, np.ones((5, 5, 3))), {}, ShapeError, "1, 4, 9 or 16"),
    (lambda: _with(4, np.ones((4, 3))), {}, ShapeError, "colors"),
    (lambda: _with(1, np.zeros((5, 4))), {}, OptionError, "length 0"),
    (lambda: [a.astype(np.int32) for a in drawn(5)], {}, DtypeError, "float32"),
    (lambda: drawn(5), {"near": 2.0, "far": 1.0}, OptionError, "near"),
    (lambda: drawn(5), {"method": "exact"}, OptionError, "exact"),
    (lambda: drawn(5), {"tile": 0}, OptionError, "tile"),
    (lambda: drawn(5), {"capacity": -1}, OptionError, "capacity"),
    (lambda: drawn(5), {"method": "ray", "antialiased": True}, OptionError, "antialiased"),
    (lambda: drawn(5), {"background": np.zeros(4)}, ShapeError, "background"),
]


@pytest.mark.selected("all")
@pytest.mark.parametrize(("scene", "options", "error", "words"), MISTAKES)
def test_mistakes(scene: Any, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        render(*scene(), camera_at(8, 8), 8, 8, **options)


def test_mistakes_of_cameras() -> None:
    with pytest.raises(OptionError, match="fov_y"):
        Camera.look_at((0, 0, 1), (0, 0, 0), fov_y=180.0, width=8, height=8)
    with pytest.raises(OptionError, match="width"):
        render(*drawn(5), camera_at(8, 8), 0, 8)
    with pytest.raises(ShapeError, match="vmap"):
        render(*drawn(5), Camera(*(np.stack([x, x]) for x in camera_at(8, 8))), 8, 8)
    with pytest.raises(InputTypeError, match="Camera"):
        render(*drawn(5), None, 8, 8)


def test_hidden_splats_have_no_footprint() -> None:
    scene, camera = drawn(200, spread=4.0), camera_at(WIDTH, HEIGHT)
    seen = project(*(jnp.asarray(a) for a in scene[:3]), camera, WIDTH, HEIGHT, near=3.0, far=6.0)
    depths = (scene[0] @ camera.rotation.T + camera.translation)[:, 2]
    assert not np.any(np.asarray(seen.visible) & ((depths <= 3.0) | (depths >= 6.0)))
    assert 0 < np.sum(np.asarray(seen.visible)) < 200
