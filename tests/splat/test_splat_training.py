"""Losses, training steps, and splats that are copied, divided and removed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from splat_scenes import camera_at

import rlx
from rlx.errors import OptionError, ShapeError
from rlx.splat import Densification, Splats, View, fit, image_loss, init_from_points, psnr, ssim

SIZE = 24


def pictures() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(20, 31, 3))
    return x, np.clip(x + 0.1 * rng.normal(size=x.shape), 0, 1)


def test_similarity_is_that_of_its_definition() -> None:
    x, y = pictures()

    def blurred(z: np.ndarray) -> np.ndarray:
        return gaussian_filter(z, (1.5, 1.5, 0), mode="constant", truncate=5 / 1.5)

    mx, my = blurred(x), blurred(y)
    vx, vy, vxy = blurred(x * x) - mx * mx, blurred(y * y) - my * my, blurred(x * y) - mx * my
    expected = (2 * mx * my + 1e-4) * (2 * vxy + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))
    np.testing.assert_allclose(ssim(x, y), expected.mean(), rtol=1e-12)
    np.testing.assert_allclose(image_loss(x, y), 0.8 * np.abs(x - y).mean() + 0.2 * (1 - expected.mean()), rtol=1e-12)
    np.testing.assert_allclose(psnr(x, y), -10 * np.log10(np.mean((x - y) ** 2)), rtol=1e-12)
    rlx.testing.check_grads(lambda a: ssim(a, y), (x,), order=1, modes=("rev",))
    with pytest.raises(ShapeError, match="height"):
        ssim(x, y[:-1])


def scene(count: int = 12) -> Splats:
    rng = np.random.default_rng(0)
    return init_from_points(rng.normal(size=(count, 3)) * 0.7, rng.uniform(size=(count, 3)), degree=1)


def views(of: Splats) -> list[View]:
    cameras = [camera_at(SIZE, SIZE, angle=a, distance=4.0, dtype="float32") for a in (0.0, 2.0, 4.0)]
    return [View(c, np.asarray(of.render(c, SIZE, SIZE).rgb)) for c in cameras]


@pytest.mark.thorough
def test_losses_fall_and_results_repeat() -> None:
    truth = scene()
    start = truth._replace(harmonics=truth.harmonics * 0, means=truth.means + np.float32(0.05))
    calls = []
    found = [
        fit(start, views(truth), 30, rlx.optim.adam(0.02), progress=lambda *told: calls.append(told)) for _ in range(2)
    ]
    assert found[0].losses[-3:].mean() < 0.6 * found[0].losses[:3].mean()
    assert calls[0][0] == 1 and calls[29][::2] == (30, 12) and len(calls) == 60
    for a, b in zip(found[0].splats, found[1].splats, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(found[0].splats.means) == 12


@pytest.mark.thorough
def test_splats_are_divided_copied_and_removed() -> None:
    truth = scene()
    start = truth._replace(logits=np.where(np.arange(12) < 3, -8.0, truth.logits).astype(np.float32))
    for small, most in ((1e9, 1e6), (0.0, 1e6), (0.0, 14)):
        counts: list[int] = []
        rules = Densification(every=4, start=4, stop=4, gradient=0.0, small=small, most=int(most))
        told = lambda step, loss, count, seen=counts: seen.append(count)  # noqa: E731
        ended = fit(start, views(truth), 6, densification=rules, progress=told)
        # three faint ones are removed, and each of the nine others becomes two, while there is room
        assert counts == [12] * 3 + [18 if most > 14 else 11] * 3 and len(ended.splats.means) == counts[-1]
        scales = np.exp(ended.splats.log_scales).max(1)
        assert (np.median(scales) < 0.8 * np.exp(start.log_scales[3:]).mean()) == (small == 0.0 and most > 14)


@pytest.mark.thorough
def test_opacities_are_reset() -> None:
    truth = scene()
    rules = Densification(every=100, start=1, stop=10, reset=2)
    ended = fit(truth, views(truth), 2, densification=rules)
    np.testing.assert_allclose(ended.splats.opacities, 0.01, rtol=1e-3)


def test_mistakes() -> None:
    with pytest.raises(OptionError, match="0 views"):
        fit(scene(), [], 3)
    with pytest.raises(ShapeError, match="height"):
        fit(scene(), [View(camera_at(4, 4), np.zeros((4, 4)))], 3)
    with pytest.raises(ShapeError, match="logits"):
        fit(scene()._replace(logits=np.zeros(3)), views(scene()), 3)
