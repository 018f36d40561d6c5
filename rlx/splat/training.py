"""Scenes trained from views: gradient steps, and splats that are copied, divided and removed on the way.

Source: Kerbl, Kopanas, Leimkuehler, Drettakis: 3D Gaussian Splatting for Real-Time Radiance Field Rendering (2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import optim
from rlx.call.jit import jit
from rlx.errors import OptionError, ShapeError
from rlx.optim.transformation import stateless
from rlx.splat.camera import Camera
from rlx.splat.losses import image_loss
from rlx.splat.projection import rotation_matrices
from rlx.splat.rendering import intersections
from rlx.splat.scene import Splats, View, check_splats
from rlx.transforms.reverse import value_and_grad
from rlx.trees import tree

__all__ = ["Densification", "Fitted", "fit", "training_optimizer"]

_HIDDEN = -30.0  # the logit of rows that fill arrays up
_GROWTH = 1.5
_REST_OF_HARMONICS = 1 / 20  # their learning rate, as a part of that of the first one
_SHRINKING = 1.6  # of the scales of a splat that is divided
_RESET_OPACITY = 0.01


class Densification(NamedTuple):
    """When splats are copied, divided and removed.

    every: so many steps, from `start` to `stop`. gradient: the least mean length of the gradient of a projected mean,
    for an image with sides from -1 to 1. small: splats up to this part of the scene's extent are copied, others are
    divided. opacity: fainter splats are removed. reset: all opacities become faint after so many steps. most: the
    largest number of splats.

    >>> from rlx.splat import Densification
    >>> Densification(stop=5000).every
    100
    """

    every: int = 100
    start: int = 500
    stop: int = 15_000
    gradient: float = 2e-4
    small: float = 0.01
    opacity: float = 0.005
    reset: int = 3000
    most: int = 1_000_000


class Fitted(NamedTuple):
    """splats: the trained scene. losses: of every step, float32 NumPy.

    >>> import numpy as np
    >>> from rlx.splat import Fitted, init_from_points
    >>> Fitted(init_from_points(np.eye(3), np.ones((3, 3))), np.zeros(5, np.float32)).losses.shape
    (5,)
    """

    splats: Splats
    losses: np.ndarray


class _State(NamedTuple):
    """splats: arrays that are filled up. optimiser: its state. slopes, seen: for each splat, sums over steps."""

    splats: Splats
    optimiser: Any
    slopes: Any
    seen: Any


def training_optimizer(extent: float, steps: int, rate: float = 1.0) -> Any:
    """Adam with the learning rates of the paper: means move by 1.6e-4 of the extent, and by 1/100 of this at the end.

    Args: extent: of the scene, a distance. steps: of the training. rate: a factor of all learning rates.

    >>> from rlx.splat import training_optimizer
    >>> optimizer = training_optimizer(1.0, 500)
    """
    places = optim.exponential_decay(1.6e-4 * extent * rate, steps, 0.01)
    rates = {"means": places, "quats": 1e-3 * rate, "log_scales": 5e-3 * rate, "logits": 5e-2 * rate}
    rules: dict[Hashable, Any] = {name: optim.adam(number, eps=1e-15) for name, number in rates.items()}

    def damped(updates: Any, _: Any) -> Any:
        return tree.map(lambda u: jnp.concatenate([u[:, :1], u[:, 1:] * _REST_OF_HARMONICS], 1), updates)

    rules["harmonics"] = optim.chain(optim.adam(2.5e-3 * rate, eps=1e-15), stateless(damped))
    return optim.partition(rules, Splats(*Splats._fields))


def fit(
    splats: Splats,
    views: Sequence[View],
    steps: int,
    optimizer: Any = None,
    *,
    structure: float = 0.2,
    densification: Densification | None = None,
    background: Any = 0.0,
    seed: int = 0,
    progress: Callable[[int, float, int], Any] | None = None,
    **options: Any,
) -> Fitted:
    """Train a scene until its images are those of the views.

    Args:
      splats: the scene to start with, for instance of `init_from_points`.
      views: images with their cameras; a step takes one of them, all in a random order again and again.
      steps: their number.
      optimizer: a gradient transformation of rlx.optim; by default `training_optimizer` for the cameras' extent.
      structure: the weight of structural similarity in the loss (see `image_loss`).
      densification: when splats are copied, divided and removed; by default, never.
      background: a number or (3,). seed: of the order of the views, and of divided splats.
      progress: progress(step, loss, number of splats) is called after each step.
      options: of `render`; "capacity" is found as needed.

    Returns: Fitted. Raises OptionError, ShapeError, and the errors of `render`.

    >>> import numpy as np
    >>> from rlx.splat import Camera, View, fit, init_from_points
    >>> camera = Camera.look_at((0.0, 0.0, -4.0), (0.0, 0.0, 0.0), width=16, height=16)
    >>> view = View(camera, np.full((16, 16, 3), 0.5, np.float32))
    >>> fit(init_from_points(np.eye(3), np.ones((3, 3)), degree=0), [view], 2).losses.shape
    (2,)
    """
    count = check_splats(splats)
    if not views or steps < 0 or count == 0:
        raise OptionError(f"splat.fit got {count} splats, {len(views)} views and steps={steps}.", "It needs some.")
    for view in views:
        if np.ndim(view.image) != 3 or np.shape(view.image)[2] != 3:
            shape = np.shape(view.image)
            raise ShapeError(f"A view {view.name!r} has an image of shape {shape}.", "It is (height, width, 3).")
    trainer = _Trainer(views, optimizer, steps, structure, background, densification, seed, options)
    state = trainer.filled(Splats(*(np.asarray(a, np.float32) for a in splats)))
    losses = np.zeros(steps, np.float32)
    order = np.empty(0, np.int64)
    for step in range(steps):
        if not len(order):
            order = trainer.random.permutation(len(views))
        number, order = order[0], order[1:]
        state, losses[step] = trainer.step(state, views[number])
        state, count = trainer.densified(state, count, step + 1)
        if progress is not None:
            progress(step + 1, float(losses[step]), count)
    return Fitted(Splats(*(np.asarray(a)[:count] for a in state.splats)), losses)


class _Trainer:
    """The parts of a training that do not change."""

    def __init__(
        self,
        views: Sequence[View],
        optimizer: Any,
        steps: int,
        structure: float,
        background: Any,
        densification: Densification | None,
        seed: int,
        options: dict[str, Any],
    ) -> None:
        places = np.stack([np.asarray(view.camera.position) for view in views])
        self.extent = 1.1 * float(np.linalg.norm(places - places.mean(0), axis=1).max()) or 1.0
        self.optimizer = training_optimizer(self.extent, max(steps, 1)) if optimizer is None else optimizer
        self.rules = densification
        self.random = np.random.default_rng(seed)
        self.capacity = options.pop("capacity", 0)
        self.options = options

        def loss(splats: Splats, offset: Any, camera: Camera, image: Any, capacity: int) -> Any:
            height, width, _ = image.shape
            shown = splats.render(
                camera, width, height, capacity=capacity, background=background, means2d_offset=offset, **options
            )
            return image_loss(shown.rgb, image, structure), shown.info

        def step(state: _State, camera: Camera, image: Any, capacity: int) -> Any:
            offset = jnp.zeros((len(state.slopes), 2), np.float32)
            (value, info), (slopes, moved) = value_and_grad(loss, argnums=(0, 1), has_aux=True)(
                state.splats, offset, camera, image, capacity
            )
            updates, optimiser = self.optimizer.update(slopes, state.optimiser, state.splats)
            sides = jnp.array([image.shape[1] / 2, image.shape[0] / 2], np.float32)
            lengths = jnp.sqrt(jnp.sum((moved * sides) ** 2, -1))
            splats = optim.apply_updates(state.splats, updates)
            new = _State(splats, optimiser, state.slopes + lengths, state.seen + info.visible)
            return new, value, info.overflow

        self._step = jit(step, static_argnums=3)

    # --------------------------------------------------------- steps
    def filled(self, splats: Splats, optimiser: Any = None) -> _State:
        """The state of splats, with arrays of one of few sizes: few programs are compiled."""
        count, size = len(splats.means), 64
        while size < count:
            size += size // 2
        filled = Splats(*(_filled(a, size) for a in splats))
        filled.logits[count:] = _HIDDEN
        filled.quats[count:, 0] = 1.0
        zeros = np.zeros(size, np.float32)
        state = self.optimizer.init(filled) if optimiser is None else optimiser
        return _State(filled, state, zeros, zeros)

    def step(self, state: _State, view: View) -> tuple[_State, float]:
        """A step, again with more room if there are more intersections than expected."""
        image = np.asarray(view.image, np.float32)
        while True:
            if self.capacity:
                new, loss, overflow = self._step(state, view.camera, image, self.capacity)
                if not int(overflow):
                    return new, float(loss)
            self.capacity = max(64, int(_GROWTH * max(self.capacity, self._needed(state.splats, view))))

    def _needed(self, splats: Splats, view: View) -> int:
        height, width, _ = np.shape(view.image)
        known = {k: v for k, v in self.options.items() if k in ("method", "tile", "near", "far", "eps2d")}
        return intersections(*splats[:3], view.camera, width, height, **known)

    # --------------------------------------------------------- splats that are copied, divided and removed
    def densified(self, state: _State, count: int, step: int) -> tuple[_State, int]:
        """The state after the densification that is due at a step, and the number of splats."""
        rules = self.rules
        if rules is None or not rules.start <= step <= rules.stop:
            return state, count
        if step % rules.every == 0:
            state, count = self._changed(state, count, rules)
        if step % rules.reset == 0:
            splats = Splats(*(np.array(a) for a in state.splats))
            most = math.log(_RESET_OPACITY / (1 - _RESET_OPACITY))
            state = state._replace(splats=splats._replace(logits=np.minimum(splats.logits, np.float32(most))))
        return state, count

    def _changed(self, state: _State, count: int, rules: Densification) -> tuple[_State, int]:
        splats = Splats(*(np.asarray(a)[:count] for a in state.splats))
        mean = np.asarray(state.slopes)[:count] / np.maximum(np.asarray(state.seen)[:count], 1)
        opacity = 1 / (1 + np.exp(-splats.logits.astype(np.float64)))
        steep = (mean >= rules.gradient) & (opacity >= rules.opacity)
        steep &= np.cumsum(steep) <= rules.most - count
        small = np.exp(splats.log_scales).max(1) <= rules.small * self.extent
        kept = (opacity >= rules.opacity) & ~(steep & ~small)
        if not (steep.any() or kept.any()):
            return state, count
        parts = [_rows(splats, kept), _rows(splats, steep & small), *self._halves(_rows(splats, steep & ~small))]
        joined = Splats(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        fresh = self.filled(joined)
        old, size = len(state.slopes), len(fresh.slopes)
        # moments of splats that stay are kept; new ones begin with zeros
        moments = tree.map(
            lambda x: _filled(np.asarray(x)[:count][kept], size) if np.shape(x)[:1] == (old,) else x, state.optimiser
        )
        return fresh._replace(optimiser=moments), len(joined.means)

    def _halves(self, splats: Splats) -> list[Splats]:
        """Two smaller splats at random places of each."""
        rotations = np.asarray(rotation_matrices(splats.quats))
        found = []
        for _ in range(2):
            drawn = self.random.normal(size=splats.means.shape).astype(np.float32) * np.exp(splats.log_scales)
            means = splats.means + np.einsum("nij,nj->ni", rotations, drawn)
            found.append(splats._replace(means=means, log_scales=splats.log_scales - np.float32(math.log(_SHRINKING))))
        return found


def _rows(splats: Splats, chosen: np.ndarray) -> Splats:
    return Splats(*(a[chosen] for a in splats))


def _filled(array: np.ndarray, size: int) -> np.ndarray:
    """The array with zeros behind its rows."""
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])
