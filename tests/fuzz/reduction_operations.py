"""Reductions, cumulations, sorts, windows, convolutions, products of matrices, transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .table import Draw, NoDraw, operation

__all__: list[str] = []


def _axes(g: Any, value: Any) -> Any:
    """An axis, several, all, or the last one."""
    if not value.ndim or g.coin(0.2):
        return None
    if value.ndim > 1 and g.coin(0.25):
        return tuple(sorted(g.random.sample(range(value.ndim), 2)))
    return g.axis(value)


def _reduced(kinds: str, exact: bool = False, empty: bool = True, one: bool = False) -> Callable[[Any], Draw]:
    def draw(g: Any) -> Draw:
        value = g.pick(kinds, exact=exact, ndim=int(one), where=lambda v: empty or v.size > 0)
        axis = g.axis(value) if one else _axes(g, value)
        return Draw((value,), {"axis": axis, "keepdims": g.coin()})

    return draw


def _along(kinds: str, exact: bool = False) -> Callable[[Any], Draw]:
    def draw(g: Any) -> Draw:
        value = g.pick(kinds, exact=exact, ndim=1, where=lambda v: v.size > 0)
        return Draw((value,), {"axis": g.axis(value), "reverse": g.coin()})

    return draw


REDUCED = "jnp.{name}({{0}}, {{axis}}, keepdims={{keepdims}})"
for name, kinds, traits, weight in (
    ("sum", "fc", ("rounded", "smooth"), 3),
    ("mean", "f", ("rounded", "smooth"), 2),
    ("var", "f", ("rounded", "smooth"), 0.7),
    ("prod", "f", ("rounded", "smooth"), 0.4),
    ("max", "fiu", ("exact", "kinked"), 1.5),
    ("min", "fiu", ("exact", "kinked"), 1),
    ("any", "b", ("exact", "flat"), 0.5),
    ("all", "b", ("exact", "flat"), 0.5),
    ("count_nonzero", "iub", ("exact", "flat"), 0.4),
):
    drawn = _reduced(kinds, empty=name not in ("max", "min", "mean", "var"))
    operation(name, REDUCED.format(name=name), drawn, *traits, weight=weight)
operation("int_sum", REDUCED.format(name="sum"), _reduced("iub"), "exact", "flat", weight=1.5)
operation("int_prod", REDUCED.format(name="prod"), _reduced("iu"), "exact", "flat", weight=0.4)
operation("bool_xor", "jnp.bitwise_xor.reduce({0}, {axis})", _reduced("iub", one=True), "exact", "flat", weight=0.3)
for name in ("argmax", "argmin"):
    drawn = _reduced("fiu", exact=True, empty=False, one=True)
    operation(name, REDUCED.format(name=name), drawn, "exact", "flat", discrete=(0,), weight=0.7)
operation("logsumexp", "rlx.nn.logsumexp({0}, {axis}, keepdims={keepdims})", _reduced("f", empty=False), weight=0.5)
operation("softmax", "rlx.nn.softmax({0}, {axis})", _reduced("f", empty=False, one=True), weight=1)
operation("norm", "jnp.sqrt(jnp.sum({0} * {0}, {axis}, keepdims={keepdims}) + 1)", _reduced("f"), weight=1)
operation(
    "normalise",
    "({0} - {0}.mean({axis}, keepdims=True)) / jnp.sqrt({0}.var({axis}, keepdims=True) + 0.1)",
    _reduced("f", empty=False),
    weight=1.5,
)
operation("masked_sum", "jnp.sum({0}, {axis}, where={1})", lambda g: _masked(g), discrete=(1,), weight=0.7)

CUMULATED = "lax.{name}({{0}}, axis={{axis}}, reverse={{reverse}})"
operation("cumsum", CUMULATED.format(name="cumsum"), _along("fc"), weight=1.5)
operation("cumprod", "lax.cumprod({0} * 0.7, axis={axis}, reverse={reverse})", _along("f"), weight=0.4)
operation("cumlogsumexp", CUMULATED.format(name="cumlogsumexp"), _along("f"), weight=0.4)
operation("cummax", CUMULATED.format(name="cummax"), _along("fiu"), "exact", "kinked", weight=0.7)
operation("cummin", CUMULATED.format(name="cummin"), _along("fiu"), "exact", "kinked", weight=0.4)
operation("int_cumsum", CUMULATED.format(name="cumsum"), _along("iu"), "exact", "flat", weight=1)
operation("scan_of_sums", "lax.associative_scan(jnp.add, {0}, axis={axis}, reverse={reverse})", _along("f"), weight=0.5)
operation(
    "scan_of_minima", "lax.associative_scan(jnp.minimum, {0}, axis={axis})", _along("fi"), "exact", "kinked", weight=0.3
)

operation("sort", "jnp.sort({0}, {axis})", _along("fiu"), "exact", "kinked", weight=1)
operation("sort_down", "jnp.sort({0}, {axis}, descending=True)", _along("fi"), "exact", "kinked", weight=0.4)
operation("argsort", "jnp.argsort({0}, {axis})", _along("fiu", exact=True), "exact", "flat", discrete=(0,), weight=1)
operation("median", "jnp.median({0}, {axis})", _along("f"), "rounded", "kinked", weight=0.3)
operation("top", "lax.top_k({0}, {count})[0]", lambda g: _top(g, False), "exact", "kinked", weight=0.5)
operation(
    "top_places", "lax.top_k({0}, {count})[1]", lambda g: _top(g, True), "exact", "flat", discrete=(0,), weight=0.5
)
operation(
    "sort_pairs",
    "lax.sort(({0}, {1}), dimension={axis}, num_keys=1)[1]",
    lambda g: _pairs(g),
    "exact",
    discrete=(0,),
    weight=0.7,
)
operation(
    "unique", "jnp.unique({0}, size=4, fill_value=0)", lambda g: _few(g), "exact", "flat", discrete=(0,), weight=0.4
)


def _masked(g: Any) -> Draw:
    value = g.pick("f", ndim=1)
    return Draw((value, g.pick("b", exact=True, where=lambda v: v.shape == value.shape)), {"axis": g.axis(value)})


def _top(g: Any, exact: bool) -> Draw:
    value = g.pick("fi", exact=exact, ndim=1, where=lambda v: v.size > 0)
    return Draw((value,), {"count": g.integer(1, min(3, value.shape[-1]))})


def _pairs(g: Any) -> Draw:
    keys = g.pick("fi", exact=True, ndim=1, where=lambda v: v.size > 0)
    return Draw((keys, g.pick("fi", where=lambda v: v.shape == keys.shape)), {"axis": g.axis(keys)})


def _few(g: Any) -> Draw:
    return Draw((g.pick("iu", exact=True, ndim=1, where=lambda v: v.size > 0),))


def _windowed(kinds: str) -> Callable[[Any], Draw]:
    def draw(g: Any) -> Draw:
        value = g.pick(kinds, ndim=1, most=3, where=lambda v: v.size > 0)
        window = tuple(g.integer(1, min(3, n)) for n in value.shape)
        return Draw(
            (value,),
            {
                "window": window,
                "strides": tuple(g.choice([1, 1, 2]) for _ in window),
                "padding": g.choice(["SAME", "VALID"]),
            },
        )

    return draw


operation(
    "window_sum",
    "lax.reduce_window({0}, jnp.zeros((), {0}.dtype), lax.add, {window}, {strides}, {padding})",
    _windowed("f"),
    weight=0.6,
)
operation(
    "pool",
    "lax.reduce_window({0}, jnp.asarray(-9, {0}.dtype), lax.max, {window}, {strides}, {padding})",
    _windowed("f"),
    "exact",
    "kinked",
    weight=0.5,
)


def _convolved(g: Any) -> Draw:
    first = g.pick("f", ndim=1, most=1, where=lambda v: v.size > 0)
    second = g.pick("f", ndim=1, most=1, where=lambda v: 0 < v.size <= 40)
    return Draw((first, second), {"mode": g.choice(["same", "valid", "full"])})


def _layer(g: Any) -> Draw:
    """Channels by positions, and a kernel of the same channels."""
    value = g.pick("f", ndim=2, most=3, where=lambda v: v.size > 0 and v.shape[-2] <= 40)
    kernel = g.pick(
        "f", ndim=2, most=3, where=lambda v: v.size > 0 and v.shape[-2] == value.shape[-2] and v.dtype == value.dtype
    )
    parameters = {
        "stride": (g.choice([1, 2]),),
        "padding": g.choice(["SAME", "VALID", [(1, 2)]]),
        "dilation": (g.choice([1, 1, 2]),),
    }
    return Draw((value, kernel), parameters)


operation("convolve", "jnp.convolve({0}, {1}, {mode})", _convolved, weight=0.7)
operation(
    "convolution",
    "lax.conv_general_dilated({0}.reshape(-1, *{0}.shape[-2:]), {1}.reshape(-1, *{1}.shape[-2:])[:, :, :3],"
    " {stride}, {padding}, rhs_dilation={dilation})",
    _layer,
    weight=1,
)
operation(
    "fourier",
    "jnp.fft.fft({0}.astype('float64')).real * 0.3",
    lambda g: Draw((g.pick("f", ndim=1, where=lambda v: v.size > 0),)),
    weight=0.3,
)


def _matrices(g: Any) -> Draw:
    first = g.pick("fc", ndim=1, most=4)
    second = g.pick("fc", ndim=1, where=lambda v: v.shape[-min(v.ndim, 2)] == first.shape[-1] and v.kind == first.kind)
    return Draw((first, second))


def _squares(g: Any, kinds: str = "f") -> Any:
    return g.pick(kinds, ndim=2, where=lambda v: v.shape[-1] == v.shape[-2] and v.size > 0)


def _two_squares(g: Any) -> Draw:
    first = _squares(g)
    second = g.pick("f", ndim=2, where=lambda v: v.shape[-2:] == first.shape[-2:] and _meet(v.shape, first.shape))
    return Draw((first, second))


def _meet(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return all(n == m or 1 in (n, m) for n, m in zip(first[::-1], second[::-1], strict=False))


def _one_square(g: Any) -> Draw:
    return Draw((_squares(g),))


def _contracted(g: Any) -> Draw:
    first = g.pick("fi", ndim=1, most=3)
    second = g.pick("fi", ndim=1, most=3, where=lambda v: v.kind == first.kind and v.dtype == first.dtype)
    pairs = [(i, j) for i, n in enumerate(first.shape) for j, m in enumerate(second.shape) if n == m]
    if not pairs:
        raise NoDraw
    axes = g.choice(pairs)
    return Draw((first, second), {"axes": axes})


def _einsum(g: Any) -> Draw:
    first = g.pick("f", ndim=2, most=2)
    second = g.pick("f", ndim=2, most=2, where=lambda v: v.shape == first.shape)
    return Draw(
        (first, second), {"rule": g.choice(["ij,ij->i", "ij,ij->j", "ij,kj->ik", "ij,ij->", "ij,kj->ki", "ij,ik->jk"])}
    )


operation("matmul", "{0} @ {1}", _matrices, weight=2)
operation("square_product", "{0} @ {1}", _two_squares, weight=2)
operation("own_product", "{0} @ {0}", _one_square, weight=1)
operation("transposed_product", "jnp.swapaxes({0} @ {1}, -1, -2)", _two_squares, weight=1.5)
operation("product_with_transposed", "{0} @ jnp.swapaxes({1}, -1, -2)", _two_squares, weight=1)
operation("tensordot", "jnp.tensordot({0}, {1}, {axes})", _contracted, weight=1)
operation("einsum", "jnp.einsum({rule!s}, {0}, {1})".replace("{rule!s}", "{rule}"), _einsum, weight=1)
operation(
    "outer_sum",
    "jnp.sum({0}[..., :, None] * {0}[..., None, :], -1)",
    lambda g: Draw((g.pick("f", ndim=1),)),
    weight=0.8,
)
operation(
    "inverse",
    "jnp.linalg.inv({0} @ {0}.mT * 0.1 + 2 * jnp.eye({0}.shape[-1], dtype={0}.dtype))",
    lambda g: _wide(g),
    finite=True,
    weight=0.4,
)
operation(
    "solve",
    "jnp.linalg.solve({0} * 0.1 + 4 * jnp.eye({0}.shape[-1], dtype={0}.dtype), {0})",
    lambda g: _wide(g),
    finite=True,
    weight=0.4,
)
operation(
    "cholesky",
    "jnp.linalg.cholesky({0} @ {0}.mT * 0.1 + 2 * jnp.eye({0}.shape[-1], dtype={0}.dtype))",
    lambda g: _wide(g),
    finite=True,
    weight=0.3,
)
operation(
    "determinant",
    "jnp.linalg.det({0} * 0.1 + 2 * jnp.eye({0}.shape[-1], dtype={0}.dtype)) * 0.01",
    lambda g: _wide(g),
    finite=True,
    weight=0.3,
)
operation(
    "pseudo_inverse",
    "jnp.linalg.pinv({0} * 0.1 + 4 * jnp.eye({0}.shape[-1], dtype={0}.dtype))",
    lambda g: _wide(g),
    finite=True,
    weight=0.2,
)


def _wide(g: Any) -> Draw:
    """Square matrices of a dtype that LAPACK knows."""
    where = g.pick(
        "f", ndim=2, among=("float32", "float64"), where=lambda v: v.shape[-1] == v.shape[-2] and 0 < v.shape[-1] <= 9
    )
    return Draw((where,))


operation(
    "random_bits",
    "rlx.random.bits(rlx.random.key({seed}), {shape}, 'uint8')",
    lambda g: _random(g),
    "exact",
    "flat",
    weight=0.4,
)
operation("uniform", "rlx.random.uniform(rlx.random.key({seed}), {shape}, {dtype})", lambda g: _random(g), weight=0.4)
operation(
    "folded_key",
    "rlx.random.uniform(rlx.random.fold_in(rlx.random.key(1), {0}), {shape})",
    lambda g: _folded(g),
    discrete=(0,),
    weight=0.3,
)


def _random(g: Any) -> Draw:
    return Draw(
        (), {"seed": g.integer(0, 99), "shape": g.choice(g.shapes()), "dtype": g.choice(["float32", "float64"])}
    )


def _folded(g: Any) -> Draw:
    return Draw(
        (g.pick("iu", exact=True, most=0, among=("int32", "uint32", "uint8")),), {"shape": g.choice(g.shapes())}
    )
