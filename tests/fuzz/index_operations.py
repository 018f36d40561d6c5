"""Operations that compute addresses: gathers, scatters, slices at computed places, in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .table import Draw, NoDraw, operation

__all__: list[str] = []

ANY = "bfiuc"
READ_MODES = ("clip", "wrap", "fill")


def _indices(g: Any, **options: Any) -> Any:
    """Computed integers, out of range and repeated ones among them."""
    return g.pick("iu", exact=True, **{"most": 3, **options})


def _taken(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1, most=3, where=lambda v: v.size > 0)
    return Draw((value, _indices(g)), {"axis": g.axis(value), "mode": g.choice(READ_MODES)})


# Reads out of range are clamped, and their derivatives in reverse are dropped, as in JAX: forward and reverse differ
# there. Numbers with derivatives are read inside.
WITHOUT_DERIVATIVE = "biu"
WIDE = ("int32", "int64", "uint32")  # what is computed from them lies inside


def _indexed(g: Any) -> Draw:
    return Draw((g.pick(WITHOUT_DERIVATIVE, ndim=1, where=lambda v: v.size > 0), _indices(g)))


def _indexed_twice(g: Any, kinds: str = WITHOUT_DERIVATIVE, **options: Any) -> Draw:
    value = g.pick(kinds, ndim=2, where=lambda v: v.size > 0)
    first = _indices(g, **options)
    second = g.partner(first, "iu", exact=True, **options)
    spelled = g.choice(["{0}, {1}", ":, {0}", "{0}, :, None", "{0}, ::-1", "..., {0}, {1}", "{0}[:, None], {0}"])
    return Draw((value, first, second), {"spelled_": spelled.format("I", "J")})


def _at_get(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1, where=lambda v: v.size > 0)
    return Draw((value, _indices(g)), {"mode": g.choice(("clip", "wrap", "fill"))})


def _along(g: Any) -> Draw:
    value = g.pick("fiu", ndim=1, where=lambda v: v.size > 0)
    axis = g.axis(value)

    def fits(v: Any) -> bool:
        if v.ndim != value.ndim:
            return False
        pairs = enumerate(zip(v.shape, value.shape, strict=True))
        return all(n == m for k, (n, m) in pairs if k != axis)

    return Draw((value, _indices(g, ndim=1, where=fits)), {"axis": axis, "mode": g.choice(("clip", "fill"))})


def _updated(kinds: str) -> Callable[[Any], Draw]:
    """A target, indices of its first axis, and updates that broadcast against the places."""

    def draw(g: Any) -> Draw:
        target = g.pick(kinds, ndim=1, most=3, where=lambda v: v.size > 0)
        index = _indices(g)
        places = (*index.shape, *target.shape[1:])
        return Draw(
            (target, index, _update(g, target, places)),
            {"method_": "add", "mode": g.choice(("drop", "clip", "wrap", None, None))},
        )

    return draw


def _update(g: Any, target: Any, places: tuple[int, ...]) -> Any:
    """A value of the target's kind that can be written to places of a shape."""

    def fits(v: Any) -> bool:
        pairs = zip(v.shape[::-1], places[::-1], strict=False)
        return v.ndim <= len(places) and v.kind == target.kind and all(n in (1, m) for n, m in pairs)

    return g.pick(target.kind, where=fits)


def _methods(kinds: str, methods: tuple[str, ...]) -> Callable[[Any], Draw]:
    def draw(g: Any) -> Draw:
        drawn = _updated(kinds)(g)
        return Draw(drawn.operands, {**drawn.parameters, "method_": g.choice(methods)})

    return draw


def _fresh(g: Any) -> Draw:
    index = _indices(g, ndim=1)
    return Draw((index,), {"length": g.integer(1, 6), "method_": g.choice(["add", "add", "multiply", "max", "min"])})


def _fresh_float(g: Any) -> Draw:
    index = _indices(g, ndim=1)
    update = g.pick("f", where=lambda v: v.ndim <= index.ndim and _fits(v.shape, index.shape))
    return Draw((index, update), {"length": g.integer(1, 6)})


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return all(n in (1, m) for n, m in zip(shape[::-1], target[::-1], strict=False))


def _two_places(g: Any) -> Draw:
    target = g.pick("fi", ndim=2, most=2, where=lambda v: v.size > 0)
    first = _indices(g)
    return Draw((target, first, g.partner(first, "iu", exact=True)), {"number": g.choice([1, 2])})


def _segments(g: Any) -> Draw:
    index = _indices(g, ndim=1)
    if index.ndim != 1:
        raise NoDraw
    data = g.pick("fi", ndim=1, where=lambda v: v.shape[0] == index.shape[0])
    return Draw((data, index), {"count": g.integer(1, 5)})


def _window(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1, most=3, where=lambda v: v.size > 0)
    sizes = tuple(g.integer(1, n) for n in value.shape)
    starts = [g.pick("i", exact=True, most=0, among=("int32", "int64")) for _ in range(1)]
    return Draw((value, *starts), {"sizes": sizes, "starts_": ", ".join(["S"] * value.ndim)})


def _window_update(g: Any) -> Draw:
    value = g.pick(ANY, ndim=1, most=3, where=lambda v: v.size > 0)

    def fits(v: Any) -> bool:
        if v.ndim != value.ndim or v.dtype != value.dtype:
            return False
        return all(n <= m for n, m in zip(v.shape, value.shape, strict=True))

    update = g.pick(ANY, ndim=value.ndim, where=fits)
    start = g.pick("i", exact=True, most=0, among=("int32", "int64"))
    return Draw((value, update, start), {"starts_": ", ".join(["S"] * value.ndim)})


def _rolled(g: Any) -> Draw:
    value = g.pick("fiu", ndim=1, where=lambda v: v.size > 0)
    return Draw((value, g.pick("i", exact=True, most=0)), {"axis": g.axis(value)})


def _counted(g: Any) -> Draw:
    return Draw((_indices(g, ndim=1),), {"length": g.integer(1, 6), "low_": g.choice(["jnp.abs({0})", "{0} % 3"])})


def _sorted_places(g: Any) -> Draw:
    return Draw(
        (g.pick("fi", exact=True, ndim=1, most=1), g.pick("fi", exact=True, most=2)),
        {"side": g.choice(["left", "right"])},
    )


def _found(g: Any) -> Draw:
    return Draw((g.pick("bfiu", exact=True, ndim=1, most=2),), {"size": g.integer(1, 5)})


operation("take", "jnp.take({0}, {1}, axis={axis}, mode={mode})", _taken, "exact", discrete=(1,), weight=2)
operation("index", "{0}[{1}]", _indexed, "exact", discrete=(1,), weight=3)
operation(
    "index_more", "(lambda x, I, J: x[{spelled_}])({0}, {1}, {2})", _indexed_twice, "exact", discrete=(1, 2), weight=2
)
operation("index_inside", "{0}[{1} % {0}.shape[0]]", lambda g: _wide_indexed(g), "exact", discrete=(1,), weight=3)
operation(
    "index_more_inside",
    "(lambda x, I, J: x[{spelled_}])({0}, {1} % min({0}.shape), {2} % min({0}.shape))",
    lambda g: _indexed_twice(g, ANY, among=WIDE),
    "exact",
    discrete=(1, 2),
    weight=2,
)
operation("at_get", "{0}.at[{1}].get(mode={mode}, fill_value=1)", _at_get, "exact", discrete=(1,), weight=1)
operation(
    "at_get_inside",
    "{0}.at[jnp.abs({1}) % {0}.shape[0]].get(mode='promise_in_bounds')",
    lambda g: _wide_indexed(g),
    "exact",
    discrete=(1,),
)
operation(
    "at_add_inside",
    "{0}.at[jnp.abs({1}) % {0}.shape[0]].add(0.25, mode='promise_in_bounds')",
    lambda g: _wide_indexed(g, "f"),
    discrete=(1,),
)
operation(
    "permuted",
    "{0}.at[jnp.argsort({1})].set({0} * 2, unique_indices=True)",
    lambda g: _permuted(g),
    "product",
    discrete=(1,),
)
SPREAD = (
    "jnp.repeat(I % 3, 2)",
    "jnp.repeat(jnp.abs(I) // 2, 3, -1)",
    "jnp.repeat(I, 3) // 2",
    "jnp.broadcast_to((I * I % 3)[..., None], (*I.shape, 4))",
    "jnp.tile(I % 4, 2)",
    "jnp.broadcast_to(I[..., None] % 3, (*I.shape, 2))",
    "I[..., None] + jnp.arange(2) // 2",
    "jnp.arange(2 * I.size) // 2 % 3",
    "jnp.stack([I % 2, I % 2], -1)",
)
operation(
    "spread_read",
    "(lambda x, I: x[({spread_}) % x.shape[0]])({0}, {1})",
    lambda g: _spread(
        g, (g.pick("fc", ndim=1, most=2, where=lambda v: v.size > 0), _indices(g, ndim=1, most=2, among=WIDE))
    ),
    "exact",
    discrete=(1,),
    weight=2,
)
operation(
    "spread_count",
    "(lambda I: jnp.full({length}, 2).at[{spread_}].{method_}(3))({0})",
    lambda g: _spread(g, (_indices(g, ndim=1, most=2),)),
    "exact",
    "flat",
    discrete=(0,),
    weight=3,
)
operation(
    "spread_add",
    "(lambda x, I: jnp.zeros({length}).at[{spread_}].add(x.astype('float32')))({0}, {1})",
    lambda g: _spread(g, (g.pick("f", most=0), _indices(g, ndim=1, most=2))),
    discrete=(1,),
    weight=2,
)
operation(
    "take_along", "jnp.take_along_axis({0}, {1}, {axis}, mode={mode})", _along, "exact", discrete=(1,), weight=1.5
)
operation("at_add", "{0}.at[{1}].add({2}.astype({0}.dtype), mode={mode})", _updated("fc"), discrete=(1,), weight=2.5)
operation("at_multiply", "{0}.at[{1}].multiply({2}.astype({0}.dtype), mode={mode})", _updated("f"), discrete=(1,))
operation(
    "at_reduce",
    "{0}.at[{1}].{method_}({2}.astype({0}.dtype), mode={mode})",
    _methods("fiu", ("min", "max")),
    "exact",
    "kinked",
    discrete=(1,),
)
operation(
    "at_integers",
    "{0}.at[{1}].{method_}({2}.astype({0}.dtype), mode={mode})",
    _methods("iu", ("add", "multiply", "subtract")),
    "exact",
    "flat",
    discrete=(1,),
    weight=2,
)
operation(
    "at_set_number",
    "{0}.at[{1}].set(2, mode={mode})",
    lambda g: _numbered(g),
    "exact",
    discrete=(1,),
)
operation("count_into", "jnp.full({length}, 2).at[{0}].{method_}(3)", _fresh, "exact", "flat", discrete=(0,), weight=2)
operation("add_into", "jnp.zeros({length}).at[{0}].add({1}.astype('float32'))", _fresh_float, discrete=(0,), weight=2)
operation("at_two", "{0}.at[{1}, {2}].add({number})", _two_places, "rounded", discrete=(1, 2), weight=1.5)
operation("segment_sum", "rlx.ops.segment_sum({0}, {1}, {count})", _segments, discrete=(1,), weight=1)
operation(
    "segment_max",
    "jnp.maximum(rlx.ops.segment_max({0}, {1}, {count}), -9)",
    _segments,
    "exact",
    "kinked",
    discrete=(1,),
    weight=0.5,
)
operation(
    "dynamic_slice", "(lambda S: lax.dynamic_slice({0}, ({starts_},), {sizes}))({1})", _window, "exact", discrete=(1,)
)
operation(
    "dynamic_update",
    "(lambda S: lax.dynamic_update_slice({0}, {1}, ({starts_},)))({2})",
    _window_update,
    "exact",
    discrete=(2,),
    weight=1.5,
)
operation("roll_by", "jnp.roll({0}, {1}, {axis})", _rolled, "exact", discrete=(1,))
operation("bincount", "jnp.bincount(jnp.abs({0}).ravel(), length={length})", _counted, "exact", "flat", discrete=(0,))
operation(
    "bincount_small", "jnp.bincount(({0} % 3).ravel(), length={length})", _counted, "exact", "flat", discrete=(0,)
)
operation(
    "searchsorted",
    "jnp.searchsorted(jnp.sort({0}), {1}, side={side})",
    _sorted_places,
    "exact",
    "flat",
    discrete=(0, 1),
)
operation("nonzero", "jnp.nonzero({0}, size={size}, fill_value=0)[-1]", _found, "exact", "flat", discrete=(0,))
operation(
    "one_hot", "rlx.nn.one_hot({0}, 4)", lambda g: Draw((_indices(g),)), "exact", "flat", discrete=(0,), weight=0.7
)
operation("last_places", "jnp.arange({0}.shape[-1]) * {0}", lambda g: Draw((_indices(g, ndim=1),)), "exact", "flat")


def _numbered(g: Any) -> Draw:
    drawn = _updated("fiu")(g)
    return Draw(drawn.operands[:2], {"mode": drawn.parameters["mode"]})


def _wide_indexed(g: Any, kinds: str = ANY) -> Draw:
    """Indices of a type that holds the size."""
    value = g.pick(kinds, ndim=1, where=lambda v: v.size > 0)
    return Draw((value, _indices(g, among=WIDE)))


def _permuted(g: Any) -> Draw:
    order = g.pick("fiu", exact=True, ndim=1, most=1)
    return Draw((g.pick("f", ndim=1, where=lambda v: v.shape[0] == order.shape[0]), order))


def _spread(g: Any, operands: tuple[Any, ...]) -> Draw:
    """Addresses computed from indices, each of them several times."""
    method = g.choice(["add", "add", "multiply", "max"])
    return Draw(operands, {"spread_": g.choice(SPREAD), "length": g.integer(2, 6), "method_": method})
