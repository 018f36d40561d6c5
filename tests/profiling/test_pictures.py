"""Profiles as pictures: what is drawn is what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.profiling import pictures
from rlx.profiling.profile import Profile

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def layer(x: Any) -> Any:
    return jnp.sort(jnp.tanh(x @ x), axis=1).sum()


@pytest.fixture(scope="module")
def found() -> Profile:
    return rlx.profile(layer, runs=2)(np.ones((64, 64), np.float32))


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.mark.thorough
def test_a_timeline_has_a_bar_for_each_run_of_a_kernel(found: Profile) -> None:
    axes = found.timeline()
    assert len(axes.collections) == len(found.median_run.events)
    assert len(axes.get_yticklabels()) == len(found.kernels)
    ends = [bar.get_paths()[0].vertices[:, 0].max() for bar in axes.collections]
    assert ends == sorted(ends) and ends[-1] > 0


def test_a_roofline_has_a_point_for_each_kernel_with_work(found: Profile) -> None:
    axes = found.roofline()
    points = [tuple(point.get_offsets()[0]) for point in axes.collections]
    expected = [(k.work.intensity, k.gigaflops) for k in found.kernels if k.gigaflops]
    np.testing.assert_allclose(points, expected)
    assert axes.get_xscale() == axes.get_yscale() == "log" and len(axes.lines) == 2


def test_two_profiles_stand_beside_each_other(found: Profile) -> None:
    other = rlx.profile(lambda x: jnp.tanh(x @ x).sum(), runs=2)(np.ones((64, 64), np.float32))
    figure, given = plt.subplots()
    axes = other.beside(found, given)
    assert axes is given
    before, after = ([bar.get_width() for bar in bars] for bars in axes.containers)
    assert before[0] == pytest.approx(1e6 * found.seconds) and after[0] == pytest.approx(1e6 * other.seconds)
    names = [label.get_text() for label in axes.get_yticklabels()]
    (line,) = [name for name in names if "jnp.sort" in name]  # in the first profile only
    assert after[names.index(line)] == 0.0 < before[names.index(line)]


def test_without_matplotlib_it_says_what_to_install(found: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(pictures.importlib, "import_module", missing)
    with pytest.raises(rlx.errors.UnsupportedError, match="pip install matplotlib"):
        found.timeline()
