"""The renderer under its names in the first design: one call on flat arrays, and its packed gradients.

Images are drawn by the method "ray" with gamma 2.2. Every gradient is exact, unlike in that design.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.splats import LEAST_ALPHA, LEAST_TRANSMITTANCE
from rlx.splat.camera import Camera
from rlx.splat.rendering import PreparedSplats, draw, prepare
from rlx.transforms.reverse import vjp

__all__ = [
    "GaussianSplatInputs",
    "RenderParams",
    "gaussian_splat_prepare",
    "gaussian_splat_rasterize",
    "gaussian_splat_render",
    "gaussian_splat_render_backward",
    "make_parity_scene",
    "register",
    "unpack_gaussian_splat_packed_grads",
]

_GAMMA = 2.2
_META = 23


class GaussianSplatInputs(NamedTuple):
    """positions (N, 3), scales (N, 3) (logarithms), rotations (N, 4), opacities (N,), colors (N, 3), sh_coeffs
    (N, 16, 3), which replace the colours unless they are None; meta (23,): see RenderParams.meta.

    >>> from rlx.splat import make_parity_scene
    >>> make_parity_scene().meta.shape
    (23,)
    """

    positions: Any
    scales: Any
    rotations: Any
    opacities: Any
    colors: Any
    sh_coeffs: Any
    meta: Any


class RenderParams(NamedTuple):
    """A camera and options, as numbers.

    >>> from rlx.splat import RenderParams
    >>> RenderParams(position=(0.0, 0.0, -4.0), width=64, height=48).meta.shape
    (23,)
    """

    position: Any = (0.0, 0.0, -4.0)
    target: Any = (0.0, 0.0, 0.0)
    up: Any = (0.0, 1.0, 0.0)
    fov_y: float = 60.0
    near: float = 0.01
    far: float = 1e10
    background: Any = (0.0, 0.0, 0.0)
    width: int = 256
    height: int = 256
    tile_size: int = 16
    radius_scale: float = 1.0
    alpha_cutoff: float = LEAST_ALPHA
    max_splat_steps: int = 0
    transmittance_threshold: float = LEAST_TRANSMITTANCE
    max_list_entries: int = 0

    @property
    def meta(self) -> np.ndarray:
        """The numbers in one array, float64 (23,). A limit of 0 is no limit."""
        return np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in self])

    @classmethod
    def from_meta(cls, meta: Any) -> RenderParams:
        """The parameters in such an array. Raises ShapeError for another length."""
        numbers = np.asarray(meta, np.float64)
        if numbers.shape != (_META,):
            raise ShapeError(f"meta has shape {numbers.shape}, not ({_META},).", "RenderParams(...).meta makes it.")
        fov_y, near, far = map(float, numbers[9:12])
        width, height, tile, steps, entries = (int(numbers[n]) for n in (15, 16, 17, 20, 22))
        radius, cutoff, threshold = (float(numbers[n]) for n in (18, 19, 21))
        made = cls(
            numbers[:3], numbers[3:6], numbers[6:9], fov_y, near, far, numbers[12:15], width, height, tile, radius,
            cutoff, steps, threshold, entries,
        )  # fmt: skip
        fixed = (made.alpha_cutoff, LEAST_ALPHA), (made.transmittance_threshold, LEAST_TRANSMITTANCE)
        if not all(np.isclose(given, only, rtol=1e-5) for given, only in fixed) or made.max_splat_steps:
            raise UnsupportedError(
                f"gaussian_splat_render got alpha_cutoff={made.alpha_cutoff}, max_splat_steps={made.max_splat_steps} "
                f"and transmittance_threshold={made.transmittance_threshold}.",
                f"They are {LEAST_ALPHA:.6f}, 0 (no limit) and {LEAST_TRANSMITTANCE}.",
            )
        return made

    @property
    def camera(self) -> Camera:
        """The camera of these numbers."""
        return Camera.look_at(
            self.position, self.target, self.up, fov_y=self.fov_y, width=self.width, height=self.height
        )


def register() -> None:
    """Does nothing: the renderer is there from the start.

    >>> from rlx.splat import register
    >>> register()
    """


def gaussian_splat_render(inputs: GaussianSplatInputs) -> Array:
    """The image as a flat array of width * height * 4 numbers: colours and alpha.

    Use `rlx.splat.render` for a linear image and for derivatives with respect to the camera. `meta` is not traced.

    >>> from rlx.splat import gaussian_splat_render, make_parity_scene
    >>> gaussian_splat_render(make_parity_scene(width=16, height=8)).shape
    (512,)
    """
    return gaussian_splat_rasterize(*gaussian_splat_prepare(inputs))


def gaussian_splat_prepare(inputs: GaussianSplatInputs) -> tuple[PreparedSplats, np.ndarray]:
    """The first half of gaussian_splat_render: projected splats and the lists of tiles, and `meta`.

    >>> from rlx.splat import gaussian_splat_prepare, make_parity_scene
    >>> prepared, meta = gaussian_splat_prepare(make_parity_scene(width=16, height=8))
    >>> prepared.rows.shape
    (18, 14)
    """
    params = RenderParams.from_meta(inputs.meta)
    scales = jnp.asarray(inputs.scales) + np.float32(np.log(params.radius_scale))
    prepared = prepare(
        inputs.positions, inputs.rotations, scales, inputs.opacities,
        inputs.colors if inputs.sh_coeffs is None else inputs.sh_coeffs, params.camera, params.width, params.height,
        method="ray", tile=params.tile_size, near=params.near, far=params.far, capacity=params.max_list_entries or None,
    )  # fmt: skip
    return prepared, params.meta


def gaussian_splat_rasterize(prepared: PreparedSplats, meta: np.ndarray) -> Array:
    """The second half of gaussian_splat_render: the flat image. It is differentiable in the prepared rows.

    >>> from rlx.splat import gaussian_splat_prepare, gaussian_splat_rasterize, make_parity_scene
    >>> gaussian_splat_rasterize(*gaussian_splat_prepare(make_parity_scene(width=16, height=8))).shape
    (512,)
    """
    params = RenderParams.from_meta(meta)
    shown = draw(prepared, params.width, params.height, params.tile_size, params.background, _GAMMA, False)
    return jnp.concatenate([shown.rgb, shown.alpha[:, :, None]], -1).ravel()


def gaussian_splat_render_backward(
    inputs: GaussianSplatInputs, gradient: Any, *, loss_grad_clip: float | None = None
) -> Array:
    """The gradients of positions, scales, rotations, opacities, colors and sh_coeffs, flat and one after another.

    Args: gradient: of the loss with respect to the flat image. loss_grad_clip: its largest magnitude, if given.

    >>> import numpy as np
    >>> from rlx.splat import gaussian_splat_render_backward, make_parity_scene
    >>> scene = make_parity_scene(width=16, height=8)
    >>> gaussian_splat_render_backward(scene, np.ones(512, np.float32)).shape
    (1116,)
    """
    bar = jnp.asarray(gradient)
    if loss_grad_clip is not None:
        bar = jnp.clip(bar, -loss_grad_clip, loss_grad_clip)
    arrays = [jnp.asarray(a) for a in inputs[:6] if a is not None]
    missing = (None,) * (6 - len(arrays))
    _, pull = vjp(lambda *given: gaussian_splat_render(GaussianSplatInputs(*given, *missing, inputs.meta)), *arrays)
    return jnp.concatenate([jnp.ravel(x) for x in pull(bar)])


def unpack_gaussian_splat_packed_grads(packed: Any, count: int) -> GaussianSplatInputs:
    """Packed gradients of `count` splats as arrays; meta has none. Raises ShapeError for another size.

    >>> import numpy as np
    >>> from rlx.splat import unpack_gaussian_splat_packed_grads
    >>> unpack_gaussian_splat_packed_grads(np.zeros(2 * 62), 2).sh_coeffs.shape
    (2, 16, 3)
    """
    numbers = jnp.asarray(packed)
    shapes: list[tuple[int, ...]] = [(count, 3), (count, 3), (count, 4), (count,), (count, 3), (count, 16, 3)]
    sizes = [int(np.prod(s)) for s in shapes]
    if numbers.shape == (sum(sizes[:5]),):
        shapes, sizes = shapes[:5], sizes[:5]
    elif numbers.shape != (sum(sizes),):
        raise ShapeError(f"Packed gradients of {count} splats have shape {numbers.shape}, not ({sum(sizes)},).")
    ends = np.cumsum(sizes)
    parts = [numbers[end - size : end].reshape(s) for end, size, s in zip(ends, sizes, shapes, strict=True)]
    return GaussianSplatInputs(*parts, *(None,) * (7 - len(parts)))


def make_parity_scene(width: int = 64, height: int = 64) -> GaussianSplatInputs:
    """18 splats on a helix, with harmonics, and a camera that sees them.

    >>> from rlx.splat import make_parity_scene
    >>> make_parity_scene().positions.shape
    (18, 3)
    """
    turn = np.arange(18) / 18
    angle = 4 * np.pi * turn
    positions = np.stack([np.cos(angle), 2 * turn - 1, np.sin(angle)], -1)
    rotations = np.stack([np.cos(angle / 2), np.sin(angle / 2), 0.3 * np.ones(18), np.zeros(18)], -1)
    harmonics = np.zeros((18, 16, 3))
    harmonics[:, 0] = np.stack([np.cos(angle), np.sin(angle), 1 - 2 * turn], -1)
    harmonics[:, 1:] = 0.05 * np.sin(np.arange(18 * 45)).reshape(18, 15, 3)
    arrays = (
        positions, np.log(0.15 + 0.1 * positions**2), rotations, 0.4 + 0.5 * turn, 0.5 + 0.4 * positions, harmonics,
    )  # fmt: skip
    meta = RenderParams(position=(0.0, 0.5, -4.0), width=width, height=height).meta
    return GaussianSplatInputs(*(a.astype(np.float32) for a in arrays), meta)
