"""Images of Gaussian splats, differentiable in every input and in the camera."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import ConcretizationTypeError, DtypeError, InputTypeError, OptionError, ShapeError
from rlx.ir.splats import COLOUR, LEAST_ALPHA
from rlx.numpy.promotion import promote
from rlx.ops.check import report
from rlx.splat.camera import Camera, camera_arrays, check_size
from rlx.splat.harmonics import harmonic_degree, spherical_harmonics
from rlx.splat.projection import Footprints, project, representable
from rlx.splat.rasterise import rasterise
from rlx.splat.tiles import TileLists, count_intersections, tile_grid, tile_lists
from rlx.trace.flat import as_array

__all__ = ["PreparedSplats", "RenderInfo", "Rendered", "draw", "intersections", "prepare", "render"]

_MOST = np.iinfo(np.int32).max
_METHODS = ("ewa", "ray")


class RenderInfo(NamedTuple):
    """means2d: (N, 2), projected. radii: (N, 2), half of the bounds in pixels, 0 if not visible. visible: bools (N,).
    total: intersections of splats and tiles. overflow: those that exceeded the capacity and were not drawn. dropped:
    splats with a NaN, an infinity, or a place or scale whose fourth power overflows.

    >>> import numpy as np
    >>> from rlx.splat import Camera, init_from_points
    >>> scene = init_from_points(np.eye(3), np.ones((3, 3)))
    >>> camera = Camera.look_at((0.0, 0.0, -4.0), (0.0, 0.0, 0.0), width=32, height=32)
    >>> scene.render(camera, 32, 32).info.visible.tolist()
    [True, True, True]
    """

    means2d: Array
    radii: Array
    visible: Array
    total: Array
    overflow: Array
    dropped: Array


class Rendered(NamedTuple):
    """rgb: (height, width, channels), linear and not clipped. alpha: (height, width). depth: (height, width), the sum
    of depths with the weights of the colours, or None. info: RenderInfo.

    >>> import numpy as np
    >>> from rlx.splat import Camera, init_from_points
    >>> scene = init_from_points(np.eye(3), np.ones((3, 3)))
    >>> camera = Camera.look_at((0.0, 0.0, -4.0), (0.0, 0.0, 0.0), width=32, height=32)
    >>> scene.render(camera, 32, 32, depth=True).depth.shape
    (32, 32)
    """

    rgb: Array
    alpha: Array
    depth: Array | None
    info: RenderInfo


def render(
    means: Any,
    quats: Any,
    log_scales: Any,
    opacities: Any,
    colors: Any,
    camera: Camera,
    width: int,
    height: int,
    *,
    background: Any = 0.0,
    method: str = "ewa",
    tile: int = 16,
    near: float = 0.01,
    far: float = 1e10,
    eps2d: float = 0.3,
    antialiased: bool = False,
    gamma: float | None = None,
    depth: bool = False,
    capacity: int | None = None,
    means2d_offset: Any = None,
) -> Rendered:
    """The image of N Gaussians, blended from front to back.

    Args:
      means: (N, 3). quats: (N, 4), w x y z of any length but 0. log_scales: (N, 3), logarithms of standard deviations.
      opacities: (N,), from 0 to 1.
      colors: (N, channels), or spherical harmonics (N, 1 | 4 | 9 | 16, channels).
      camera: a Camera; width, height: of the image in pixels.
      background: a number or (channels,).
      method: "ewa", the affine approximation of each splat's projection; "ray", the largest density on each ray.
      tile: side of the tiles in pixels.
      near, far: splats at other depths are not drawn.
      eps2d: added to the variances in the image ("ewa").
      antialiased: whether small splats become fainter in return for eps2d ("ewa").
      gamma: if given, rgb ** gamma, of colours that are not negative.
      depth: whether to return an image of depths: z for "ewa", distance for "ray".
      capacity: the number of intersections of splats and tiles to have room for; it must be given where the inputs
        have no values, as in jit (see `intersections`). By default they are counted.
      means2d_offset: (N, 2), added to the projected means; its gradient says which splats to split.

    Returns: Rendered, in the floating dtype of the inputs. It is differentiable in the six arrays and the camera, in
      forward and reverse mode; vmap maps it over cameras. Sums have one order: results are equal from run to run;
      gradients on GPUs with rlx.scoped(deterministic=True).

    Raises: ShapeError, DtypeError, OptionError, ConcretizationTypeError (a capacity is needed).
      rlx.experimental.checkify reports intersections over the capacity.

    Sources: Zwicker, Pfister, van Baar, Gross: EWA Splatting (2002). Kerbl, Kopanas, Leimkuehler, Drettakis: 3D
      Gaussian Splatting for Real-Time Radiance Field Rendering (2023).

    >>> import numpy as np
    >>> from rlx.splat import Camera, render
    >>> camera = Camera.look_at((0.0, 0.0, -4.0), (0.0, 0.0, 0.0), width=32, height=32)
    >>> one = np.ones((1, 3), np.float32)
    >>> image = render(0 * one, np.array([[1.0, 0, 0, 0]], np.float32), 0 * one, one[:, 0], one, camera, 32, 32)
    >>> image.rgb.shape, round(float(image.alpha.max()), 2)
    ((32, 32, 3), 0.99)
    """
    prepared = prepare(
        means, quats, log_scales, opacities, colors, camera, width, height, method=method, tile=tile, near=near,
        far=far, eps2d=eps2d, antialiased=antialiased, depth=depth, capacity=capacity, means2d_offset=means2d_offset,
    )  # fmt: skip
    return draw(prepared, width, height, tile, background, gamma, depth)


class PreparedSplats(NamedTuple):
    """Splats in the tiles of an image: rows (N, numbers) of footprints, opacities and channels, and the tiles' lists.

    seen: the footprints. dropped: see RenderInfo.

    >>> from rlx.splat import gaussian_splat_prepare, make_parity_scene
    >>> prepared, _ = gaussian_splat_prepare(make_parity_scene(width=16, height=8))
    >>> prepared.lists.starts.shape
    (1,)
    """

    rows: Array
    lists: TileLists
    seen: Footprints
    dropped: Array


def prepare(
    means: Any, quats: Any, log_scales: Any, opacities: Any, colors: Any, camera: Camera, width: int, height: int, *,
    method: str, tile: int, near: float, far: float, eps2d: float = 0.3, antialiased: bool = False, depth: bool = False,
    capacity: int | None = None, means2d_offset: Any = None,
) -> PreparedSplats:  # fmt: skip
    """The first half of `render`: splats are projected and sorted into tiles."""
    _check_options(width, height, method, tile, near, far, eps2d, antialiased, capacity)
    arrays, camera, harmonics = _checked(means, quats, log_scales, opacities, colors, camera)
    means, quats, log_scales, opacities, colors = arrays
    if harmonics:
        colors = _seen_colours(means, colors, camera)
    usable = _usable(opacities, colors)
    opacities = jnp.where(usable, opacities, 0.0)
    colors = jnp.where(usable[:, None], colors, 0.0)
    seen = project(means, quats, log_scales, camera, width, height, method=method, near=near, far=far, eps2d=eps2d)
    # a splat that is fainter than the least alpha is drawn nowhere
    seen = seen._replace(visible=seen.visible & usable & (lax.stop_gradient(opacities) >= LEAST_ALPHA))
    if means2d_offset is not None:
        seen = seen._replace(means=seen.means + as_array(means2d_offset).astype(means.dtype))
    if antialiased:
        opacities = opacities * seen.opacity_factors
    room = _room(seen, width, height, tile) if capacity is None else capacity
    channels = [colors, seen.depths[:, None]] if depth else [colors]
    rows = jnp.concatenate([seen.means, seen.conics, opacities[:, None], *channels, seen.perspective], -1)
    finite = usable & representable(means, quats, log_scales)
    lists = tile_lists(seen, width, height, tile, room)
    return PreparedSplats(rows, lists, seen, len(means) - jnp.sum(finite))


def draw(
    prepared: PreparedSplats, width: int, height: int, tile: int, background: Any, gamma: float | None, depth: bool
) -> Rendered:
    """The second half of `render`: the tiles are drawn."""
    rows, lists, seen, dropped = prepared
    count = rows.shape[1] - COLOUR - seen.perspective.shape[1]
    info = _info(seen, lists.total, len(lists.order), dropped)
    if 0 in (len(rows), len(lists.order)):
        image = jnp.zeros((height, width, count + 1), rows.dtype).at[:, :, count].set(1.0)
    else:
        tiles = rasterise(rows, lists.order, lists.starts, lists.ends, lists.origins, tile=tile, channels=count)
        columns, lines = tile_grid(width, height, tile)
        image = lax.reshape(tiles, (lines, columns, tile, tile, count + 1))
        image = lax.reshape(jnp.swapaxes(image, 1, 2), (lines * tile, columns * tile, count + 1))[:height, :width]
    return _composed(image, count - depth, background, gamma, depth, info)


def intersections(
    means: Any,
    quats: Any,
    log_scales: Any,
    camera: Camera,
    width: int,
    height: int,
    *,
    method: str = "ewa",
    tile: int = 16,
    near: float = 0.01,
    far: float = 1e10,
    eps2d: float = 0.3,
) -> int:
    """The number of intersections of splats and tiles: a capacity for `render` of these arrays, which have values.

    >>> import numpy as np
    >>> from rlx.splat import Camera, intersections
    >>> camera = Camera.look_at((0.0, 0.0, -4.0), (0.0, 0.0, 0.0), width=32, height=32)
    >>> intersections(np.zeros((1, 3)), np.array([[1.0, 0.0, 0.0, 0.0]]), np.full((1, 3), -3.0), camera, 32, 32)
    4
    """
    _check_options(width, height, method, tile, near, far, eps2d, False, None)
    unused = np.zeros(len(as_array(means)), np.float32)
    arrays, camera, _ = _checked(means, quats, log_scales, unused, unused[:, None], camera)
    seen = project(*arrays[:3], camera, width, height, method=method, near=near, far=far, eps2d=eps2d)
    return _counted(seen, width, height, tile)


# ------------------------------------------------------------- checks
def _check_options(
    width: int,
    height: int,
    method: str,
    tile: int,
    near: float,
    far: float,
    eps2d: float,
    antialiased: bool,
    capacity: int | None,
) -> None:
    check_size(width, height)
    if method not in _METHODS:
        raise OptionError(f"splat.render has no method {method!r}.", 'Use "ewa" or "ray".')
    if not isinstance(tile, int) or not 1 <= tile <= 64:
        raise OptionError(f"splat.render got tile={tile!r}.", "It is a number of pixels from 1 to 64.")
    if not 0 <= near < far:
        raise OptionError(f"splat.render got near={near} and far={far}.", "0 <= near < far.")
    if eps2d < 0:
        raise OptionError(f"splat.render got eps2d={eps2d}.", "A variance is not negative.")
    if antialiased and method != "ewa":
        raise OptionError(f"splat.render got antialiased=True with method={method!r}.", 'Only "ewa" blurs splats.')
    if capacity is not None and (not isinstance(capacity, int) or not 0 <= capacity <= _MOST):
        raise OptionError(f"splat.render got capacity={capacity!r}.", "It is an integer from 0 to 2**31 - 1.")


def _checked(
    means: Any, quats: Any, log_scales: Any, opacities: Any, colors: Any, camera: Camera
) -> tuple[list[Array], Camera, bool]:
    """The arrays in one floating dtype, and whether the colours are spherical harmonics."""
    if not isinstance(camera, Camera):
        raise InputTypeError(f"splat.render got {type(camera).__name__} for the camera.", "Use rlx.splat.Camera.")
    given = promote("splat.render", *map(as_array, (means, quats, log_scales, opacities, colors)))
    if given[0].dtype not in (np.float32, np.float64):
        raise DtypeError(f"splat.render got arrays of {given[0].dtype.name}.", "Use float32 or float64.")
    count = given[0].shape[:1]
    shapes = ((*count, 3), (*count, 4), (*count, 3), count)
    for name, array, shape in zip(("means", "quats", "log_scales", "opacities"), given, shapes, strict=False):
        if array.shape != shape or array.ndim == 0:
            raise ShapeError(
                f"splat.render got {name} of shape {array.shape}.",
                "N splats have means (N, 3), quats (N, 4), log_scales (N, 3) and opacities (N,).",
            )
    shape = given[4].shape
    if len(shape) not in (2, 3) or shape[:1] != count or shape[-1] == 0:
        raise ShapeError(
            f"splat.render got colors of shape {shape} for {count[0]} splats.",
            "Colours are (N, channels), or spherical harmonics (N, 1 | 4 | 9 | 16, channels).",
        )
    if len(shape) == 3:
        harmonic_degree(shape)
    _check_quaternions(given[1])
    return list(given), camera_arrays(camera, given[0].dtype), len(shape) == 3


def _check_quaternions(quats: Array) -> None:
    """Raises OptionError for a zero quaternion, if the values are known; checkify reports it elsewhere."""
    zero = jnp.any(jnp.all(lax.stop_gradient(quats) == 0, -1))
    found = _known(zero)
    if found is None:
        report(~zero, "a quaternion of splat.render is 0")
    elif found:
        raise OptionError("splat.render got a quaternion of length 0, which is not a rotation.", "Use (1, 0, 0, 0).")


def _known(flag: Array) -> bool | None:
    """A flag's value; None for a traced one."""
    try:
        return bool(flag)
    except ConcretizationTypeError:
        return None


# ------------------------------------------------------------- parts
def _seen_colours(means: Array, coefficients: Array, camera: Camera) -> Array:
    """Harmonics in the directions from the camera to the splats."""
    away = means - camera.position
    square = jnp.sum(away * away, -1, keepdims=True)
    usable = square > 0
    directions = jnp.where(usable, away, 0.0) / jnp.sqrt(jnp.where(usable, square, 1.0))
    return spherical_harmonics(coefficients, directions)


def _usable(opacities: Array, colors: Array) -> Array:
    return jnp.isfinite(opacities) & jnp.all(jnp.isfinite(colors), -1)


def _counted(seen: Footprints, width: int, height: int, tile: int) -> int:
    counts = lax.stop_gradient(count_intersections(seen, width, height, tile))
    total = int(jnp.sum(counts.astype(np.int64)))
    if total > _MOST:
        raise OptionError(f"splat.render has {total} intersections of splats and tiles.", "Use larger tiles.")
    return total


def _room(seen: Footprints, width: int, height: int, tile: int) -> int:
    """The intersections, rounded up to a power of 1.5: few programs are compiled for scenes that change."""
    try:
        total = _counted(seen, width, height, tile)
    except ConcretizationTypeError as error:
        raise ConcretizationTypeError(
            "splat.render needs a capacity where its inputs have no values.",
            "Pass capacity=rlx.splat.intersections(...), of values that are typical, with a margin.",
        ) from error
    room = 64
    while room < total:
        room += room // 2
    return min(room, _MOST)


def _info(seen: Footprints, total: Array, room: int, dropped: Array) -> RenderInfo:
    overflow = jnp.maximum(total - room, 0)
    report(overflow == 0, f"splat.render has more intersections than its capacity of {room}")
    radii = jnp.where(seen.visible[:, None], lax.stop_gradient(seen.highs - seen.lows) / 2, 0.0)
    return RenderInfo(seen.means, radii, seen.visible, total, overflow, dropped)


def _composed(
    image: Array, channels: int, background: Any, gamma: float | None, depth: bool, info: RenderInfo
) -> Rendered:
    behind = jnp.asarray(background, image.dtype)
    if behind.shape not in ((), (1,), (channels,)):
        raise ShapeError(
            f"splat.render got a background of shape {behind.shape}.", f"It is a number or has shape ({channels},)."
        )
    light = image[:, :, -1]
    rgb = image[:, :, :channels] + light[:, :, None] * behind
    if gamma is not None:
        rgb = jnp.maximum(rgb, 0.0) ** gamma
    return Rendered(rgb, 1 - light, image[:, :, channels] if depth else None, info)
