"""Arrays with unreduced and reduced axes on four CPU devices: what rlx makes of them, and what jax does.

Tests start this file with RLX_NUM_CPU_DEVICES=4 and the libraries to run, "rlx" or "rlx jax"; it prints what went wrong
with each case. With jax both make the same parts, specs and types; alone, rlx agrees with NumPy.
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx
import rlx.compat

LIBRARIES = sys.argv[1:] or ["rlx"]
CASES: dict[str, Callable[[Any], Any]] = {}  # takes a library, rlx or jax; the results are compared
CHECKS: dict[str, Callable[[], None]] = {}  # of rlx alone
V = np.linspace(-1.0, 2.0, 8, dtype=np.float32)
M = np.linspace(-2.0, 2.0, 32, dtype=np.float32).reshape(8, 4)
W = np.linspace(0.5, 1.5, 12, dtype=np.float32).reshape(4, 3)


def case(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A program of a library, or several: a tree of arrays, texts and functions that give one."""
    CASES[function.__name__] = function
    return function


def check(function: Callable[[], None]) -> Callable[[], None]:
    """A test of rlx alone."""
    CHECKS[function.__name__] = function
    return function


# ------------------------------------------------------------- what is compared
def seen(x: Any) -> Any:
    """What devices have of an array, and how it says that it lies."""
    if callable(x):
        try:
            x = x()
        except Exception as error:
            if type(error).__module__.startswith("rlx") and not isinstance(error, rlx.errors.RlxError):
                raise
            return "refused"
    if isinstance(x, str):
        return x
    spec = getattr(x.sharding, "spec", None)
    entries = "" if spec is None else repr(spec.update((*spec.partitions, *[None] * (x.ndim - len(spec)))))
    stacked = spec is not None and (spec.unreduced or spec.reduced)
    parts = [(s.device.id, np.asarray(s.data)) for s in x.addressable_shards] if stacked else [(0, np.asarray(x))]
    return str(x.dtype), tuple(x.shape), entries if stacked else "", parts


def same(ours: Any, theirs: Any) -> None:
    """Raises AssertionError unless both are alike."""
    if isinstance(ours, (str, int)):
        assert ours == theirs, (ours, theirs)
    elif isinstance(ours, np.ndarray):
        np.testing.assert_allclose(np.asarray(ours, complex), np.asarray(theirs, complex), rtol=2e-5, atol=2e-5)
    elif ours is not None:
        assert not isinstance(theirs, str) and len(ours) == len(theirs), (ours, theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)


def run(name: str) -> str:
    """What went wrong with a case, or nothing."""
    try:
        if name in CHECKS:
            CHECKS[name]()
            return ""
        found = [
            {key: seen(x) for key, x in CASES[name](importlib.import_module(library)).items()} for library in LIBRARIES
        ]
        for key in found[0]:
            try:
                same(found[0][key], found[-1][key])
            except AssertionError as error:
                raise AssertionError(f"{key}: {error}") from None
    except Exception:
        return traceback.format_exc()
    return ""


class Setting:
    """A mesh of a library, and arrays on it."""

    def __init__(self, lib: Any, **sizes: int) -> None:
        self.lib, self.P, self.jnp = lib, lib.sharding.PartitionSpec, importlib.import_module(f"{lib.__name__}.numpy")
        types = (lib.sharding.AxisType.Explicit,) * len(sizes)
        self.mesh = lib.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=types)
        lib.set_mesh(self.mesh)

    def put(self, x: Any, *entries: Any, **kinds: Any) -> Any:
        """An array that lies so; parts of a sum are those of its sum with zeros."""
        return self.lib.sharding.reshard(self.jnp.asarray(x), self.P(*entries, **kinds))

    def mapped(self, out: Any, into: Any = None, **options: Any) -> Any:
        """shard_map under jit, as a decorator."""
        given = {} if into is None else {"in_specs": into}
        return lambda f: self.lib.jit(self.lib.shard_map(f, out_specs=out, **given, **options))

    def parts(self, x: Any) -> Any:
        """An array over an axis x whose parts of a sum differ: the rows of x."""
        cast = self.mapped(self.P(unreduced={"x"}), self.P("x"))(lambda a: self.lib.lax.pcast(a, "x", to="unreduced"))
        return cast(self.put(x, "x"))


def kind(x: Any) -> str:
    """What the type of a value in a body says of axes."""
    found = rlx.compat.typeof(x).mat if isinstance(x, rlx.Array) else x.aval.mat
    return "; ".join(",".join(sorted(axes)) for axes in (found.varying, found.unreduced, found.reduced))


# ------------------------------------------------------------- cases
@case
def specs(lib: Any) -> dict[str, Any]:
    P = lib.sharding.PartitionSpec
    both = P("a", None, unreduced={"x"}, reduced={"y"})
    equal = both == P("a", None, unreduced=frozenset({"x"}), reduced={"y"}), hash(both) == hash(both.update())
    found: dict[str, Any] = {
        "texts": f"{both} {P(unreduced={'x'})} {P('a', reduced={'y'})} {P(None, unreduced={'x'})}",
        "equal": f"{equal} {both == P('a', None)} {both.update(unreduced=set())} {both.update((None,))}",
        "sums": f"{P('a', unreduced={'x'}) + P('b', reduced={'y'})}",
    }
    for name, kinds in {
        "none": {"unreduced": {None}},
        "both": {"unreduced": {"x"}, "reduced": {"x"}},
        "entry": {"unreduced": {"a"}},
        "reduced entry": {"reduced": {"a"}},
        "list": {"reduced": ["x"]},
    }.items():
        found[name] = lambda kinds=kinds: str(P("a", **kinds))
    mesh = lib.make_mesh((2, 2), ("x", "y"), axis_types=(lib.sharding.AxisType.Explicit, lib.sharding.AxisType.Auto))
    found["sharding"] = str(lib.sharding.NamedSharding(mesh, P(unreduced={"x"})).is_fully_replicated)
    found["auto"] = lambda: str(lib.sharding.NamedSharding(mesh, P(unreduced={"y"})))
    found["unknown"] = lambda: str(lib.sharding.NamedSharding(mesh, P(reduced={"z"})))
    return found


@case
def casts(lib: Any) -> dict[str, Any]:
    s, lax = Setting(lib, x=2, y=2), lib.lax
    P = s.P
    texts: dict[str, Any] = {}

    def note(name: str, x: Any) -> Any:
        texts[name] = kind(x)
        return x

    @s.mapped(P("y", unreduced={"x"}))
    def unreduced(a):
        return note("unreduced", lax.pcast(a, "x", to="unreduced"))

    @s.mapped(P(("x", "y")), P("y", unreduced={"x"}))
    def scattered(a):
        return note("scattered", lax.psum_scatter(note("given", a), "x", tiled=True))

    @s.mapped(P("y", reduced={"x"}))
    def reduced(a):
        return note("reduced", lax.all_gather(a, "x", tiled=True, to="reduced"))

    @s.mapped(P(("x", "y")))
    def varying(a):
        return note("varying", lax.pcast(note("copies", a), "x", to="varying"))

    @s.mapped(P("y"))
    def total(a):
        return note("total", lax.psum(a, "x"))

    @s.mapped(P("y", reduced={"x"}))
    def copies(a):
        return note("made", lax.pcast(a, "x", to="reduced"))

    x = s.put(np.arange(16.0, dtype=np.float32), ("x", "y"))
    parts, whole = unreduced(x), reduced(x)
    plain = total(parts)
    loss = lambda f: lambda a: lib.sharding.reshard(f(a), P()).sum()  # noqa: E731
    return texts | {
        "unreduced": parts, "scattered": scattered(parts), "reduced": whole, "varying": varying(whole), "total": plain,
        "copies": copies(plain), "of unreduced": lib.jit(lib.grad(loss(unreduced)))(x),
        "of scattered": lib.jit(lib.grad(loss(scattered)))(parts), "of reduced": lib.jit(lib.grad(loss(reduced)))(x),
        "of varying": lib.jit(lib.grad(loss(varying)))(whole), "of total": lib.jit(lib.grad(loss(total)))(parts),
        "of copies": lib.jit(lib.grad(loss(copies)))(plain),
        "squares": lib.jit(lib.grad(lambda a: (lib.sharding.reshard(copies(a), P()) ** 2).sum()))(plain),
    }  # fmt: skip


@case
def refusals(lib: Any) -> dict[str, Any]:
    s, lax = Setting(lib, x=2), lib.lax
    P = s.P
    given = {
        "u": s.put(V, unreduced={"x"}), "r": s.put(V, reduced={"x"}), "v": s.put(V, "x"),
    }  # fmt: skip
    out = {"varying": P("x"), "reduced": P(reduced={"x"}), "unreduced": P(unreduced={"x"})}
    found: dict[str, Any] = {}
    for name, x in given.items():
        for to, spec in out.items():
            if (name, to) != ("v", "varying"):  # rlx lets it pass
                found[f"pcast {name} {to}"] = lambda x=x, to=to, spec=spec: s.mapped(spec)(
                    lambda a: lax.pcast(a, "x", to=to)
                )(x)
        for collective in (lax.pmax, lax.all_gather, lax.psum):
            if name != "v":
                f = lambda a, c=collective: c(a, "x")  # noqa: E731
                spec = P("x") if collective is lax.all_gather else P()
                found[f"{collective.__name__} {name}"] = lambda x=x, f=f, spec=spec: s.mapped(spec)(f)(x)
        for spec in (P(), P("x"), P(unreduced={"x"}), P(reduced={"x"})):
            found[f"out {name} {spec}"] = lambda x=x, spec=spec: s.mapped(spec)(lambda a: a)(x)
    found |= {
        "in": lambda: s.mapped(P(reduced={"x"}), P(reduced={"x"}))(lambda a: a)(given["v"]),
        "in unreduced": lambda: s.mapped(P("x"), P("x"))(lambda a: a)(given["u"]),
        "equal out": lambda: s.mapped(P(unreduced={"x"}), P())(lambda a: a)(s.put(V)),
        "sin": lambda: s.mapped(P(unreduced={"x"}))(s.jnp.sin)(given["u"]),
        "product": lambda: s.mapped(P(unreduced={"x"}))(lambda a: a * a)(given["u"]),
        "add one": lambda: s.mapped(P(unreduced={"x"}))(lambda a: a + 1.0)(given["u"]),
        "with varying": lambda: s.mapped(P(unreduced={"x"}))(lambda a, b: a * b[0])(given["u"], given["v"]),
        "loss": lambda: s.mapped(P(unreduced={"x"}))(lib.grad(lambda a: a.sum()))(given["r"]),
        "numpy": lambda: str(np.asarray(given["u"])), "top sin": lambda: s.jnp.sin(given["u"]),
        "top add": lambda: given["u"] + 1.0, "top product": lambda: given["u"] * given["u"],
        "top dot": lambda: given["u"] @ given["r"], "top copies": lambda: given["r"] * s.jnp.ones(8),
        "some axes": lambda: Setting(lib, x=2, y=2).mapped(P(), P(unreduced={"x"}), axis_names={"x"})(lambda a: a)(V),
    }  # fmt: skip
    return found


@case
def operations(lib: Any) -> dict[str, Any]:
    s = Setting(lib, x=2)
    jnp, P = s.jnp, s.P
    u, r = s.parts(M), s.put(M[:4], reduced={"x"})
    functions: dict[str, Callable[..., Any]] = {
        "add": lambda u, r: u + u,
        "mul": lambda u, r: u * r,
        "sum": lambda u, r: u.sum(),
        "sum rows": lambda u, r: u.sum(0),
        "reshape": lambda u, r: u.reshape(2, 8),
        "transpose": lambda u, r: u.T,
        "concatenate": lambda u, r: jnp.concatenate([u, u]),
        "convert": lambda u, r: u.astype(jnp.bfloat16),
        "copies": lambda u, r: jnp.sin(r) * r + r,
        "number": lambda u, r: r.sum(),
        "where": lambda u, r: jnp.where(r > 0, r, 2 * r),
        "jit": lambda u, r: lib.jit(lambda a: a + a)(u),
        "grad": lambda u, r: lib.grad(lambda a: (a * a).sum())(r),
        "carry": lambda u, r: lib.lax.scan(lambda c, row: (c * row, c + row), r.sum(0), r)[0],
        "rows": lambda u, r: lib.lax.scan(lambda c, row: (c * row, c + row), r.sum(0), r)[1],
        "repeated": lambda u, r: lib.lax.fori_loop(0, 3, lambda _, a: a + a, u),
    }
    found: dict[str, Any] = {}
    for name, f in functions.items():
        found[name], found[f"{name} in jit"] = f(u, r), lib.jit(f)(u, r)
    outs = lib.jvp(lambda a: a * a, (r,), (r,))
    pulled = lib.vjp(lambda a: a * a, r)[1](u)[0]
    for spec in (P(), P("x"), P(None, "x"), P(unreduced={"x"}), P(reduced={"x"})):
        for name, x in {"u": u, "r": r, "v": s.put(M, "x")}.items():
            found[f"{name} to {spec}"] = lib.sharding.reshard(x, spec)
            found[f"{name} to {spec} in jit"] = lib.jit(lib.sharding.reshard, static_argnums=1)(x, spec)
    few = s.put(V[:2], reduced={"x"})
    return found | {"jvp": outs[1], "vjp": pulled, "printed": repr(u), "in text": f"{u}", "printed copies": repr(few)}


@case
def sums(lib: Any) -> dict[str, Any]:
    s = Setting(lib, x=2, y=2)
    P = s.P
    a = s.put(M, "x", "y")
    u = lib.jit(lambda a, b: s.jnp.dot(a, b, out_sharding=P("x", unreduced={"y"})))(a, s.put(W, "y"))
    cases = {
        "parts": (a, (0,), P(None, unreduced={"x"})),
        "both": (a, (0, 1), P(unreduced={"x", "y"})),
        "one of both": (a, (0, 1), P(unreduced={"y"})),
        "not divided": (a, (0,), P(None, unreduced={"y"})),
        "of parts": (u, (0,), P(None, unreduced={"x", "y"})),
        "kept": (u, (1,), P(None, unreduced={"y"})),
    }
    return {
        name: lambda x=x, axes=axes, out=out: lib.jit(lambda x: lib.lax.reduce_sum(x, axes, out_sharding=out))(x)
        for name, (x, axes, out) in cases.items()
    }


@case
def products(lib: Any) -> dict[str, Any]:
    s = Setting(lib, x=2, y=2)
    jnp, P = s.jnp, s.P
    a, b, c = s.put(M, None, "x"), s.put(W, "x"), s.put(np.stack([W, 2 * W]), "y", "x")
    out = {"out_sharding": P(None, None, unreduced={"x"})}
    numbers = (((1,), (0,)), ((), ()))
    functions = {
        "einsum": lambda a, b: jnp.einsum("ij,jk->ik", a, b, **out),
        "turned": lambda a, b: jnp.einsum("ij,jk->ki", a, b, **out),
        "dot": lambda a, b: jnp.dot(a, b, **out),
        "dot_general": lambda a, b: lib.lax.dot_general(a, b, numbers, **out),
        "matmul": lambda a, b: jnp.matmul(a, b, **out),
        "tensordot": lambda a, b: jnp.tensordot(a, b, 1, **out),
    }
    found: dict[str, Any] = {}
    for name, f in functions.items():
        found[name] = lib.jit(f)(a, b)
    both = {"out_sharding": P(None, None, unreduced={"x", "y"})}
    batch = s.put(np.stack([M, -M]), "y", None, "x")
    return found | {
        "two axes": lib.jit(lambda a, c: jnp.einsum("bij,bjk->ik", a, c, **both))(batch, c),
        "other axis": lambda: jnp.einsum("ij,jk->ik", a, b, out_sharding=P(None, None, unreduced={"y"})),
        "otherwise divided": lambda: jnp.einsum("ij,jk->ik", s.put(M, None, "y"), b, **out),
    }


@case
def bodies(lib: Any) -> dict[str, Any]:
    s, lax = Setting(lib, x=2, y=2), lib.lax
    P, jnp = s.P, s.jnp
    batch, w = s.put(M, "x"), s.put(W, reduced={"x"})
    texts: dict[str, Any] = {}

    def gradient(a, w):
        found = lib.grad(lambda w: (jnp.tanh(a @ w) ** 2).sum())(w)
        texts["gradient"] = kind(found)
        return found

    def summed(a, w):
        return lax.psum(gradient(a, w), "x")

    def twice(a, w):
        return lax.fori_loop(0, 2, lambda _, v: v * w, w)

    def mapped(a, w):
        return lib.vmap(lambda row, w: row @ w, (0, None))(a, w)

    def called(a, w):
        found = lib.jit(lambda w: w * w)(w)
        texts["called"] = kind(found)
        return found

    @lib.custom_vjp
    def rule(w):
        return w * w

    rule.defvjp(lambda w: (w * w, w), lambda w, ct: (w * ct + w * ct,))
    unreduced, reduced = P(unreduced={"x"}), P(reduced={"x"})
    loss = lambda f, spec: lambda w: lib.sharding.reshard(s.mapped(spec)(f)(batch, w), P()).sum()  # noqa: E731
    found = {
        "gradient": s.mapped(unreduced)(gradient)(batch, w),
        "summed": s.mapped(P())(summed)(batch, w),
        "twice": s.mapped(reduced)(twice)(batch, w),
        "mapped": s.mapped(P("x"))(mapped)(batch, w),
        "called": s.mapped(reduced)(called)(batch, w),
        "rule": s.mapped(reduced)(lambda a, w: rule(w))(batch, w),
        "of mapped": lib.jit(lib.grad(loss(mapped, P("x"))))(w),
        "of called": lib.jit(lib.grad(loss(called, reduced)))(w),
        "of rule": lib.jit(lib.grad(loss(lambda a, w: rule(w), reduced)))(w),
    }
    return found | {f"kind of {name}": text for name, text in texts.items()}


@case
def unchecked(lib: Any) -> dict[str, Any]:
    s = Setting(lib, x=2)
    P, loose = s.P, {"check_vma": False}
    x, u = s.put(V), s.parts(V)
    to = s.mapped(P(unreduced={"x"}), P(), **loose)(lambda a: a)
    back = s.mapped(P("x"), P(unreduced={"x"}), **loose)(lambda a: a)
    scattered = s.mapped(P("x"), P(unreduced={"x"}), **loose)(lambda a: lib.lax.psum_scatter(a, "x", tiled=True))
    return {"to": to(x), "back": back(u), "scattered": scattered(u)}


@case
def dtypes_and_sizes(lib: Any) -> dict[str, Any]:
    s, lax = Setting(lib, x=2), lib.lax
    P = s.P
    total = s.mapped(P())(lambda a: lax.psum(a, "x"))
    found: dict[str, Any] = {}
    for dtype in ("int8", "int32", "uint32", "float16", "bfloat16", "float32", "complex64"):
        parts = s.parts(s.jnp.arange(8).astype(dtype))
        found[dtype], found[f"{dtype} total"] = parts, total(parts)
        found[f"{dtype} whole"] = lib.sharding.reshard(parts, P())
    scalar = s.put(np.float32(3.0), unreduced={"x"})
    empty = s.put(np.zeros((0, 4), np.float32), unreduced={"x"})
    special = s.parts(np.array([np.nan, np.inf, -0.0, 1.0, 1.0, -np.inf, -0.0, 0.0], np.float32))
    return found | {
        "scalar": scalar, "scalar whole": lib.sharding.reshard(scalar, P()), "empty": empty,
        "empty whole": lib.sharding.reshard(empty, P()), "special": lib.sharding.reshard(special, P()),
    }  # fmt: skip


# ------------------------------------------------------------- rlx alone
@check
def parts_are_what_devices_have() -> None:
    """Put together of arrays on devices, and taken apart again."""
    s = Setting(rlx, x=2, y=2)
    sharding = rlx.NamedSharding(s.mesh, s.P("y", unreduced={"x"}))
    given = [rlx.device_put(V[2 * i : 2 * i + 2], device) for i, device in enumerate(sharding.devices)]
    x = rlx.make_array_from_single_device_arrays((4,), sharding, given)
    for part, shard in zip(given, x.addressable_shards, strict=True):
        assert part.tolist() == shard.data.tolist() and shard.data.shape == (2,)
    np.testing.assert_array_equal(rlx.reshard(x, s.P()), V[:4] + V[4:])
    reduced = rlx.NamedSharding(s.mesh, s.P(reduced={"x"}))
    copies = rlx.make_array_from_callback((4,), reduced, lambda index: V[:4][index])
    np.testing.assert_array_equal(copies, V[:4])
    assert len(copies.addressable_shards) == 4 and copies.tolist() == V[:4].tolist()
    assert x.is_fully_addressable and not x.is_fully_replicated and x.committed


@check
def derivatives_agree_with_finite_differences() -> None:
    """Of a program with a cast of each kind; by the array that they divide, and by the copies."""
    s, lax, jnp = Setting(rlx, x=2, y=2), rlx.lax, rlx.numpy
    a, w = M.astype(np.float64), W.astype(np.float64)

    @s.mapped(s.P(), (s.P("x", "y"), s.P("y", reduced={"x"})))
    def loss(a, w):
        total = lax.psum(lax.pcast(jnp.tanh(a @ w), "y", to="unreduced"), "y")
        return lax.psum((total**2).sum(), "x")

    def at(w: Any) -> float:
        return float(loss(s.put(a, "x", "y"), s.put(w, "y", reduced={"x"})))

    np.testing.assert_allclose(at(w), (sum(np.tanh(a[:, i : i + 2] @ w[i : i + 2]) for i in (0, 2)) ** 2).sum())
    gradient = rlx.grad(loss, 1)(s.put(a, "x", "y"), s.put(w, "y", reduced={"x"}))
    assert gradient.sharding.spec == s.P("y", None, unreduced={"x"})
    found = rlx.reshard(gradient, s.P())
    for index in np.ndindex(*w.shape):
        step = np.zeros_like(w)
        step[index] = 1e-6
        np.testing.assert_allclose(float(found[index]), (at(w + step) - at(w - step)) / 2e-6, rtol=1e-6, atol=1e-8)


@check
def what_differs_from_jax() -> None:
    """Negatives, differences, quotients, and products with numbers commute with sums; `pcast` of what varies stays."""
    s = Setting(rlx, x=2)
    u = s.parts(V)
    for f in (lambda x: -x, lambda x: x - x / 4, lambda x: 3 * x, lambda x: x[1:3], lambda x: rlx.numpy.cumsum(x)):
        for run in (f, rlx.jit(f), s.mapped(s.P(unreduced={"x"}))(f)):
            assert run(u).sharding.spec.unreduced == {"x"}
            np.testing.assert_allclose(rlx.reshard(run(u), s.P()), f(V[:4] + V[4:]) if f(V).ndim else 0, rtol=1e-6)
    copies = s.put(M, reduced={"x"})
    for run in (lambda f: f, rlx.jit):
        np.testing.assert_array_equal(run(rlx.vmap(lambda x: 2 * x, 1, -1))(copies), 2 * M)
        found = run(rlx.vmap(lambda x, y: x * y, (None, 0)))(copies, copies[:3, 0])
        np.testing.assert_array_equal(found[2], M * M[2, 0])
    chosen = rlx.numpy.where(np.arange(8)[:, None] > 3, copies, -copies)
    assert chosen.sharding.spec == s.P(None, None, reduced={"x"}) and f"{copies[0, 0]:.1f}" == "-2.0"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(copies)), M)
    assert "reshard" in str(seen_error(lambda: pickle.dumps(u))) and f"{u:.1f}" == repr(u)
    batch = s.put(np.stack([M, -M]), None, None, "x")
    product = rlx.numpy.matmul(batch, s.put(W, "x"), out_sharding=s.P(unreduced={"x"}))
    np.testing.assert_allclose(rlx.reshard(product, s.P()), np.stack([M, -M]) @ W, rtol=1e-5, atol=1e-5)
    each = rlx.vmap(rlx.grad(lambda w, x: ((rlx.reshard(w, s.P()) @ x) ** 2).sum()), (None, 0))
    gradients = rlx.jit(each)(s.put(W, reduced={"x"}), s.put(V[:3][None] * np.ones((2, 1), np.float32)))
    assert gradients.sharding.spec == s.P(None, None, None, unreduced={"x"})
    expected = np.stack([2 * np.outer(W @ V[:3], V[:3])] * 2)
    np.testing.assert_allclose(rlx.reshard(gradients, s.P()), expected, rtol=1e-5)
    assert "unreduced" in str(seen_error(lambda: rlx.lax.fori_loop(0, 2, lambda _, x: rlx.reshard(x, s.P()), u)))
    words = str(seen_error(lambda: rlx.numpy.sin(u)))
    assert "sin" in words and "unreduced over 'x'" in words and "reshard" in words


def seen_error(f: Callable[[], Any]) -> Exception:
    """What a function raises."""
    try:
        f()
    except rlx.errors.RlxError as error:
        return error
    raise AssertionError("nothing was refused")


if __name__ == "__main__":
    names = [*CHECKS] if len(LIBRARIES) == 1 else [*CASES]
    print(json.dumps({name: run(name) for name in names}))
