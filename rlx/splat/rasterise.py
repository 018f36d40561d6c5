"""Splats drawn into the tiles of an image, and the derivative: two blocks, whose meaning is in this file.

Tiles and pixels are axes of arrays, and a loop draws the next splat of every tile, until all lists end or all pixels
are opaque. A device may claim the blocks for kernels of its own. No array has pixels x splats elements.

A splat is a row of numbers: the mean x, y; the conic a, b, c; the opacity; the channels of its colour; and for exact
rays the perspective e, f, g, h, k (see projection.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.ir.splats import COLOUR, LARGEST_ALPHA, LEAST_ALPHA, LEAST_TRANSMITTANCE, PERSPECTIVE
from rlx.ops.linear_rule import pushed_by
from rlx.trace.replay import block
from rlx.transforms.custom import custom_jvp

__all__ = ["rasterise"]


def _folded(names: Sequence[str], values: Sequence[Any], batched: Sequence[bool], size: int) -> list[Any]:
    """A batch of images as one image with more tiles, and more splats."""
    given = {
        name: value if own else jnp.broadcast_to(value, (size, *value.shape))
        for name, value, own in zip(names, values, batched, strict=True)
    }
    splats, capacity = given["splats"].shape[1], given["order"].shape[1]
    for name, step in (("order", splats), ("starts", capacity), ("ends", capacity)):
        shifts = jnp.arange(size, dtype=np.int32) * step
        given[name] = given[name] + shifts[:, None]
    return [lax.reshape(x, (size * x.shape[1], *x.shape[2:])) for x in given.values()]


class _Drawn(NamedTuple):
    """The drawing of one splat in each tile: for all pixels, arrays (tiles, pixels) or numbers (tiles, 1).

    rows: (tiles, numbers). x, y: offsets from the means. density: exp(-exponent). exponent, density, alpha: 0 where
    nothing is drawn.
    """

    rows: Array
    x: Array
    y: Array
    divisor: Array | None
    exponent: Array
    density: Array
    alpha: Array
    clamped: Array

    def number(self, n: int) -> Array:
        return self.rows[:, n, None]

    def colours(self, channels: int) -> Array:
        return self.rows[:, None, COLOUR : COLOUR + channels]


def _draw(
    splats: Array, order: Array, places: Array, listed: Array, pixels: tuple[Array, Array], channels: int
) -> _Drawn:
    """The splat at a place of `order` for each tile; nothing in tiles that are not `listed`."""
    rows = splats[order[jnp.where(listed, places, 0)]]
    x, y = pixels[0] - rows[:, 0, None], pixels[1] - rows[:, 1, None]
    a, b, c, opacity = (rows[:, n, None] for n in range(2, COLOUR))
    exponent = 0.5 * (a * x * x + c * y * y) + b * x * y
    drawn = jnp.broadcast_to(listed[:, None], exponent.shape)
    divisor = None
    if rows.shape[1] > COLOUR + channels:
        e, f, g, h, k = (rows[:, COLOUR + channels + n, None] for n in range(PERSPECTIVE))
        linear = e * x + f * y
        divisor = 1 + 2 * linear + g * x * x + 2 * h * x * y + k * y * y
        exponent = exponent / divisor
        drawn = drawn & (linear > -1)  # else the closest point of the ray is behind the camera
    density = jnp.exp(-exponent)
    alpha = opacity * density
    drawn = drawn & (exponent >= 0) & (alpha >= LEAST_ALPHA)
    clamped = alpha > LARGEST_ALPHA
    alpha, exponent, density = (
        jnp.where(drawn, number, 0.0) for number in (jnp.minimum(alpha, LARGEST_ALPHA), exponent, density)
    )
    divisor = None if divisor is None else jnp.where(drawn, divisor, 1.0)
    return _Drawn(rows, x, y, divisor, exponent, density, alpha, clamped)


def _pixels(origins: Array, tile: int) -> tuple[Array, Array]:
    """The centres of the pixels of each tile: x and y, (tiles, pixels)."""
    y, x = np.divmod(np.arange(tile * tile), tile)
    centres = (jnp.asarray(p + 0.5, origins.dtype) for p in (x, y))
    first, second = (origins[:, n, None] + centre for n, centre in enumerate(centres))
    return first, second


@block(fold=_folded)
def splat_rasterise(
    splats: Array, order: Array, starts: Array, ends: Array, origins: Array, *, tile: int, channels: int
) -> tuple[Array, Array]:
    """The tiles of an image.

    Args:
      splats: (N, numbers); order: int32 (capacity,); starts, ends: int32 (tiles,), each tile's part of `order`.
      origins: (tiles, 2), the first corner of each tile; tile: its side; channels: of colours.

    Returns: (tiles, tile * tile, channels + 1), the sum of colours, and the light that is left; int32 (tiles,
      tile * tile), the end of the part of `order` that was drawn in each pixel.
    """
    pixels = _pixels(origins, tile)

    def wanted(state: tuple[Array, ...]) -> Array:
        step, open_, *_ = state
        return jnp.any((starts + step < ends)[:, None] & open_)

    def next_splat(state: tuple[Array, ...]) -> tuple[Array, ...]:
        step, open_, colour, light, last = state
        places = starts + step
        drawn = _draw(splats, order, places, places < ends, pixels, channels)
        less = light * (1 - drawn.alpha)
        stopped = (drawn.alpha > 0) & (less <= LEAST_TRANSMITTANCE)
        open_ = open_ & ~stopped
        shown = open_ & (drawn.alpha > 0)
        weight = jnp.where(shown, light * drawn.alpha, 0.0)
        return (
            step + 1,
            open_,
            colour + weight[:, :, None] * drawn.colours(channels),
            jnp.where(shown, less, light),
            jnp.where(shown, places[:, None] + 1, last),
        )

    shape = (len(origins), tile * tile)
    dtype = splats.dtype
    last = jnp.broadcast_to(starts[:, None], shape)
    state = (jnp.int32(0), jnp.ones(shape, bool), jnp.zeros((*shape, channels), dtype), jnp.ones(shape, dtype), last)
    _, _, colour, light, last = lax.while_loop(wanted, next_splat, state)
    return jnp.concatenate([colour, light[:, :, None]], -1), last


@block(fold=_folded)
def splat_rasterise_gradient(
    splats: Array,
    order: Array,
    starts: Array,
    ends: Array,
    origins: Array,
    image: Array,
    last: Array,
    cotangent: Array,
    *,
    tile: int,
    channels: int,
) -> Array:
    """The cotangent of each listed splat's row, (capacity, numbers): sums over the pixels of one tile.

    Each list is walked from back to front. The light before a splat is the light behind it, divided by 1 - alpha.
    """
    pixels = _pixels(origins, tile)
    colour_bar = cotangent[:, :, :channels]
    found = jnp.zeros((len(order), splats.shape[1]), splats.dtype)
    longest = jnp.max(ends - starts, initial=0)

    def previous_splat(state: tuple[Array, ...]) -> tuple[Array, ...]:
        step, light, behind, found = state
        places = starts + step
        listed = places < ends
        drawn = _draw(splats, order, places, listed, pixels, channels)
        shown = (drawn.alpha > 0) & (places[:, None] < last)
        alpha = jnp.where(shown, drawn.alpha, 0.0)
        passed = 1 / (1 - alpha)
        light = light * passed
        towards = jnp.sum(drawn.colours(channels) * colour_bar, -1)
        alpha_bar = jnp.where(shown & ~drawn.clamped, light * towards - behind * passed, 0.0)
        weight = light * alpha
        behind = behind + weight * towards
        rows = jnp.concatenate(
            [_geometry_bar(drawn, alpha_bar, channels), jnp.sum(weight[:, :, None] * colour_bar, 1),
             _perspective_bar(drawn, alpha_bar, channels)], -1
        )  # fmt: skip
        return step - 1, light, behind, found.at[jnp.where(listed, places, len(order))].set(rows, mode="drop")

    light = image[:, :, channels]
    state = (longest.astype(np.int32) - 1, light, light * cotangent[:, :, channels], found)
    return lax.while_loop(lambda state: state[0] >= 0, previous_splat, state)[-1]


def _exponent_bar(drawn: _Drawn, alpha_bar: Array) -> Array:
    return -alpha_bar * drawn.number(COLOUR - 1) * drawn.density


def _geometry_bar(drawn: _Drawn, alpha_bar: Array, channels: int) -> Array:
    """The cotangents of mean, conic and opacity, (tiles, 6)."""
    x, y = drawn.x, drawn.y
    a, b, c = (drawn.number(n) for n in range(2, 5))
    bar = _exponent_bar(drawn, alpha_bar)
    over = bar if drawn.divisor is None else bar / drawn.divisor
    slope_x, slope_y = a * x + b * y, b * x + c * y
    if drawn.divisor is not None:
        e, f, g, h, k = (drawn.number(COLOUR + channels + n) for n in range(PERSPECTIVE))
        slope_x -= drawn.exponent * 2 * (e + g * x + h * y)
        slope_y -= drawn.exponent * 2 * (f + h * x + k * y)
    terms = [-over * slope_x, -over * slope_y, 0.5 * over * x * x, over * x * y, 0.5 * over * y * y]
    return jnp.sum(jnp.stack([*terms, alpha_bar * drawn.density], -1), 1)


def _perspective_bar(drawn: _Drawn, alpha_bar: Array, channels: int) -> Array:
    """The cotangents of the perspective, (tiles, 5) or (tiles, 0)."""
    if drawn.divisor is None:
        return drawn.rows[:, COLOUR + channels :]
    x, y = drawn.x, drawn.y
    bar = -_exponent_bar(drawn, alpha_bar) * drawn.exponent / drawn.divisor
    return jnp.sum(jnp.stack([2 * bar * x, 2 * bar * y, bar * x * x, 2 * bar * x * y, bar * y * y], -1), 1)


def _tangent(
    splats: Array, moving: Array, order: Array, starts: Array, origins: Array, last: Array, tile: int, channels: int
) -> Array:
    """The tangent of the image: the loop again, of values and their tangents, up to the last splat of each pixel."""
    pixels = _pixels(origins, tile)
    ends = jnp.max(last, axis=1, initial=0)

    def next_splat(state: tuple[Array, ...]) -> tuple[Array, ...]:
        step, light, colour_dot, light_dot = state
        places = starts + step
        listed = places < ends
        drawn = _draw(splats, order, places, listed, pixels, channels)
        shown = (drawn.alpha > 0) & (places[:, None] < last)
        alpha = jnp.where(shown, drawn.alpha, 0.0)
        rows_dot = moving[order[jnp.where(listed, places, 0)]]
        alpha_dot = jnp.where(shown & ~drawn.clamped, _alpha_dot(drawn, rows_dot, channels), 0.0)
        weight, weight_dot = light * alpha, light_dot * alpha + light * alpha_dot
        colours_dot = rows_dot[:, None, COLOUR : COLOUR + channels]
        moved = weight_dot[:, :, None] * drawn.colours(channels) + weight[:, :, None] * colours_dot
        return step + 1, light - weight, colour_dot + moved, light_dot - weight_dot

    shape = (len(origins), tile * tile)
    dtype = splats.dtype
    state = (jnp.int32(0), jnp.ones(shape, dtype), jnp.zeros((*shape, channels), dtype), jnp.zeros(shape, dtype))
    state = lax.while_loop(lambda state: jnp.any(starts + state[0] < ends), next_splat, state)
    return jnp.concatenate([state[2], state[3][:, :, None]], -1)


def _alpha_dot(drawn: _Drawn, rows_dot: Array, channels: int) -> Array:
    """The tangent of alpha: the adjoint of the cotangents of a row."""
    x, y = drawn.x, drawn.y
    a, b, c, opacity = (drawn.number(n) for n in range(2, COLOUR))
    moved = [rows_dot[:, n, None] for n in range(rows_dot.shape[1])]
    form_dot = 0.5 * (moved[2] * x * x + moved[4] * y * y) + moved[3] * x * y
    form_dot -= moved[0] * (a * x + b * y) + moved[1] * (b * x + c * y)
    if drawn.divisor is not None:
        e, f, g, h, k = (drawn.number(COLOUR + channels + n) for n in range(PERSPECTIVE))
        e_dot, f_dot, g_dot, h_dot, k_dot = moved[COLOUR + channels :]
        divisor_dot = 2 * (e_dot * x + f_dot * y) + g_dot * x * x + 2 * h_dot * x * y + k_dot * y * y
        divisor_dot -= 2 * (moved[0] * (e + g * x + h * y) + moved[1] * (f + h * x + k * y))
        form_dot = (form_dot - drawn.exponent * divisor_dot) / drawn.divisor
    return drawn.density * (moved[COLOUR - 1] - opacity * form_dot)


def rasterise(
    splats: Array, order: Array, starts: Array, ends: Array, origins: Array, *, tile: int, channels: int
) -> Array:
    """The first result of splat_rasterise, differentiable in the splats: forward, reverse, and forward over reverse.

    The derivative is that of a fixed order: where two splats exchange their places there is none.
    """

    @custom_jvp
    def image_of(rows: Array) -> Array:
        return splat_rasterise(rows, order, starts, ends, origins, tile=tile, channels=channels)[0]

    @image_of.defjvp
    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Array, Array]:
        image, last = splat_rasterise(primals[0], order, starts, ends, origins, tile=tile, channels=channels)

        def reverse(rows: Array, image: Array, cotangent: Array) -> tuple[Array]:
            listed = splat_rasterise_gradient(
                rows, order, starts, ends, origins, image, last, cotangent, tile=tile, channels=channels
            )
            used = jnp.arange(len(order)) < ends[-1]
            numbers = jnp.where(used, order, len(rows))
            return (jnp.zeros_like(rows).at[numbers].add(listed, mode="drop"),)

        def forward(rows: Array, moving: Array) -> Array:
            return _tangent(rows, moving, order, starts, origins, last, tile, channels)

        return image, pushed_by(primals, image, tangents, reverse, forward)

    return image_of(splats)
