"""Keys of caches: for each field of a key there are calls that differ in this field alone, and that need it.

A row is a pair of calls, or two runs of a compiler, whose results must differ. Every row passes; with one field of a
key ignored, at least one row of its cache must fail. A new field therefore needs a row.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCupy, installed

import rlx
import rlx.numpy as jnp
from rlx.backends.c import compile as c_compile
from rlx.backends.cpu.emit import kernel_code
from rlx.backends.cpu.runtime import store
from rlx.call import cache
from rlx.call import key as call_keys
from rlx.config import config
from rlx.export.native import _plan_name
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.passes import pipeline
from rlx.passes.pipeline import Context, ExecutableCache
from rlx.sharding import AxisType
from rlx.trace import once, replay

Row = Callable[[], None]
X = np.arange(4.0)


def ignoring(patch: pytest.MonkeyPatch, key: type, field: str) -> None:
    """Make keys equal that differ in this field alone."""
    position = key._fields.index(field)  # ty: ignore[unresolved-attribute]

    def rest(found: Any) -> tuple[Any, ...]:
        return (*found[:position], *found[position + 1 :])

    patch.setattr(key, "__hash__", lambda self: hash(rest(self)))
    patch.setattr(key, "__eq__", lambda self, other: type(other) is type(self) and rest(self) == rest(other))
    patch.setattr(key, "__ne__", lambda self, other: not self == other)


def fails(row: Row) -> bool:
    """Whether a row fails, in whichever way: programs of other arguments may be refused or give other values."""
    try:
        row()
    except (AssertionError, rlx.errors.RlxError, LookupError, ValueError, TypeError):
        return True
    return False


def mapped_sizes(f: Any) -> None:
    for size in (2, 3):
        found = rlx.vmap(f, axis_name="i")(np.ones(size))
        np.testing.assert_array_equal(found, np.full(size, size))


# ------------------------------------------------------------------ jit
def jit_in_tree() -> None:
    f = rlx.jit(lambda tree: tree["a"] * 1 if "a" in tree else -tree["b"])
    assert [float(f({name: 2.0})) for name in "ab"] == [2.0, -2.0]


def dict_keys(transform: Callable[..., Any]) -> None:
    """1 and True are equal, and may select different code."""
    seen: list[type] = []
    f = transform(lambda tree: (seen.append(type(next(iter(tree)))), tree[1])[1] * 1)
    f({1: 2.0}), f({True: 2.0})
    assert seen == [int, bool]


def jit_dict_keys() -> None:
    dict_keys(rlx.jit)


def jit_types() -> None:
    f = rlx.jit(lambda x: x * x.shape[0])
    assert f(np.ones(2)).tolist() == [2, 2] and f(np.ones(3)).tolist() == [3, 3, 3]
    assert f(np.ones(2, np.int32)).dtype == np.int32


def jit_token() -> None:
    f = rlx.jit(lambda: jnp.ones(2))
    narrow = f().dtype
    with rlx.enable_x64():
        assert (narrow, f().dtype) == (np.float32, np.float64)


def jit_static_values() -> None:
    f = rlx.jit(lambda x, n: x * 2 if n is True else x * n, static_argnums=1)
    assert [float(f(1.0, n)) for n in (3, 1, True)] == [3.0, 1.0, 2.0]


def jit_static_names() -> None:
    f = rlx.jit(lambda x, a=0, b=0: x + a - b, static_argnames=("a", "b"))
    assert [float(f(1.0, a=1)), float(f(1.0, b=1))] == [2.0, 0.0]


def jit_axes() -> None:
    mapped_sizes(rlx.jit(lambda x: x * rlx.lax.axis_size("i")))


def jit_where() -> None:
    """The memory of the arguments, here with a driver that is none."""
    f = rlx.jit(lambda x: x + 1)
    with pytest.MonkeyPatch.context() as patch:
        for _ in installed(patch, FakeCupy()):
            assert [f(rlx.device_put(X, device)).device for device in ("cpu", "cuda")] == ["cpu", "cuda"]


def meshes(kind: AxisType) -> list[Any]:
    mesh = rlx.make_mesh((2,), ("x",), axis_types=(kind,))
    return [rlx.NamedSharding(mesh, rlx.P(*spec)) for spec in ((), ("x",))]


def jit_places() -> None:
    """What the function is told of an argument in a program that is being traced."""
    seen: list[str] = []
    f = rlx.jit(lambda x: (seen.append(str(rlx.compat.typeof(x).sharding.spec)), x)[1])
    for sharding in meshes(AxisType.Explicit):
        rlx.jit(lambda x: f(x))(rlx.device_put(X, sharding))
    assert len(set(seen)) == 2, seen


def jit_divisions() -> None:
    f = rlx.jit(lambda x: x + 1)
    shardings = meshes(AxisType.Auto)
    assert [f(rlx.device_put(X, s)).sharding.spec for s in shardings] == [s.spec for s in shardings]


# ------------------------------------------------------------------ functions of transforms
def traces_in_tree() -> None:
    f = rlx.checkpoint(lambda tree: tree["a"] if "a" in tree else -tree["b"])
    assert [float(f({name: 2.0})) for name in "ab"] == [2.0, -2.0]


def traces_dict_keys() -> None:
    dict_keys(rlx.checkpoint)


def traces_types() -> None:
    f = rlx.checkpoint(lambda x: x * x.shape[0])
    assert f(np.ones(2)).tolist() == [2, 2] and f(np.ones(3)).tolist() == [3, 3, 3]


def traces_token() -> None:
    f = rlx.checkpoint(lambda: jnp.ones(2))
    narrow = f().dtype
    with rlx.enable_x64():
        assert (narrow, f().dtype) == (np.float32, np.float64)


def traces_axes() -> None:
    mapped_sizes(rlx.checkpoint(lambda x: x * rlx.lax.axis_size("i")))


def traces_static() -> None:
    f = rlx.checkpoint(lambda x, n: x * 2 if n is True else x * n, static_argnums=1)
    assert [float(f(1.0, n)) for n in (3, 1, True)] == [3.0, 1.0, 2.0]


# ------------------------------------------------------------------ executables
class Device:
    """A device as the cache of executables sees it."""

    name = "cpu"
    takes_programs = False

    def __init__(self, **changes: Any) -> None:
        cpu = rlx.backends.backend_named("cpu")
        self.lowering, self.claims = cpu.lowering, cpu.claims
        self.compiled = 0
        self.__dict__.update(changes)

    def compile(self, plan: Any) -> Any:
        self.compiled += 1
        return SimpleNamespace(plan=plan, number=self.compiled, device=self)


def one_program(f: Any = lambda x: x + 1) -> Program:
    return rlx.make_program(f)(X)


def told_apart(first: Callable[[ExecutableCache], Any], second: Callable[[ExecutableCache], Any]) -> None:
    cache = ExecutableCache()
    assert first(cache) is first(cache)
    assert first(cache) is not second(cache)


def executables_backend() -> None:
    devices, program = (Device(), Device()), one_program()
    told_apart(*[lambda cache, d=d: cache.get(program, d) for d in devices])


def executables_changed(name: str, **changes: Any) -> None:
    device, program = Device(), one_program()
    other = dataclasses.replace(getattr(device, name), **changes)

    def second(cache: ExecutableCache) -> Any:
        setattr(device, name, other)
        return cache.get(program, device)

    told_apart(lambda cache: cache.get(program, device), second)


def executables_options() -> None:
    executables_changed("lowering", alignment=128)


def executables_claims() -> None:
    executables_changed("claims", routines=frozenset())


def executables_memory_limit() -> None:
    device, program = Device(), one_program()
    told_apart(lambda cache: cache.get(program, device), lambda cache: cache.get(program, device, 1 << 30))


def executables_program() -> None:
    device, programs = Device(), (one_program(), one_program(lambda x: x + 2))
    told_apart(*[lambda cache, p=p: cache.get(p, device) for p in programs])


def executables_given() -> None:
    device, program = Device(), one_program()
    told_apart(lambda cache: cache.get(program, device), lambda cache: cache.get(program, device, given=(True,)))


Table = dict[tuple[type, str], list[Row]]
TABLES: Table = {
    (call_keys.Signature, "in_tree"): [jit_in_tree],
    (call_keys.Signature, "dict_keys"): [jit_dict_keys],
    (call_keys.Signature, "types"): [jit_types],
    (call_keys.Signature, "token"): [jit_token],
    (call_keys.Signature, "static"): [jit_static_values, jit_static_names],
    (call_keys.Signature, "axes"): [jit_axes],
    (call_keys.Signature, "where"): [jit_where],
    (call_keys.Key, "signature"): [jit_types],
    (once.TraceKey, "in_tree"): [traces_in_tree],
    (once.TraceKey, "dict_keys"): [traces_dict_keys],
    (once.TraceKey, "types"): [traces_types],
    (once.TraceKey, "token"): [traces_token],
    (once.TraceKey, "axes"): [traces_axes],
    (once.TraceKey, "static"): [traces_static],
    (pipeline.ExecutableKey, "backend"): [executables_backend],
    (pipeline.ExecutableKey, "options"): [executables_options],
    (pipeline.ExecutableKey, "claims"): [executables_claims],
    (pipeline.ExecutableKey, "memory_limit"): [executables_memory_limit],
    (pipeline.ExecutableKey, "program"): [executables_program],
    (pipeline.ExecutableKey, "given"): [executables_given],
}
DIVIDED: Table = {
    (call_keys.Signature, "places"): [jit_places],
    (call_keys.Key, "divisions"): [jit_divisions],
}
KEYS = (call_keys.Signature, call_keys.Key, once.TraceKey, pipeline.ExecutableKey)


def check_rows(patch: pytest.MonkeyPatch, table: Table, key: type, field: str) -> None:
    """The rows of a field pass, and none does without the field."""
    for row in table[key, field]:
        row()
    with patch.context() as patched:
        patched.setattr(cache.SignatureTraces, "__init__", _without_shorter_way(cache.SignatureTraces.__init__))
        ignoring(patched, key, field)
        assert all(map(fails, table[key, field]))


def _without_shorter_way(make: Any) -> Any:
    """Plain calls of a jitted function have keys without names, which are tested below."""

    def made(self: Any) -> None:
        make(self)
        self.ready = Forgetful()

    return made


class Forgetful(dict[Any, Any]):
    """A cache that keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def test_every_field_has_a_row() -> None:
    assert {(key, field) for key in KEYS for field in key._fields} == {*TABLES, *DIVIDED}


@pytest.mark.selected(1000)
@pytest.mark.parametrize("key, field", TABLES, ids=str)
def test_calls_that_differ_in_one_field(monkeypatch: pytest.MonkeyPatch, key: type, field: str) -> None:
    check_rows(monkeypatch, TABLES, key, field)


def test_calls_on_several_devices_that_differ_in_one_field() -> None:
    """In a process with two devices."""
    environment = os.environ | {"RLX_NUM_CPU_DEVICES": "2", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------ plain calls of jit, whose keys have no names
def part_of(part: Any) -> str:
    """The sort of a part of such a key: types, the token of the switches, or the structure of the arguments."""
    if isinstance(part, TensorType):
        return "types"
    return "token" if part == config.token else "structure"


PLAIN = {"types": jit_types, "token": jit_token, "structure": jit_in_tree}


class Ignoring(dict[Any, Any]):
    """A cache whose keys lack some parts."""

    def __init__(self, ignored: str) -> None:
        self.ignored = ignored

    def rest(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(part for part in key if part_of(part) != self.ignored)

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self.rest(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(self.rest(key), value)


@pytest.mark.selected(1000)
@pytest.mark.parametrize("ignored", PLAIN)
def test_plain_calls_that_differ_in_one_part(monkeypatch: pytest.MonkeyPatch, ignored: str) -> None:
    row, make = PLAIN[ignored], cache.SignatureTraces.__init__
    row()

    def made(self: Any) -> None:
        make(self)
        self.ready = Ignoring(ignored)

    monkeypatch.setattr(cache.SignatureTraces, "__init__", made)
    assert fails(row)


# ------------------------------------------------------------------ functions that are replayed
REPLAYED = {
    "type of a number": (((1,), {}), ((True,), {}), ((1.0,), {})),
    "zeros": (((0.0,), {}), ((-0.0,), {}), ((0,), {})),
    "number": (((1,), {}), ((2,), {})),
    "text": ((("a",), {}), (("b",), {})),
    "structure": ((((1, 2), 3), {}), ((1, (2, 3)), {}), (([1, 2], 3), {}), (((1, 2, 3),), {}), ((1, 2, 3), {})),
    "slice": (((slice(0, 1),), {}), ((slice(1, 1),), {}), ((slice(0, 2),), {}), ((slice(0, 1, 2),), {})),
    "name": (((), {"a": 1}), ((), {"b": 1}), ((1,), {})),
    "type of an array": (((jnp.ones(2),), {}), ((jnp.ones(3),), {}), ((jnp.ones(2, jnp.int32),), {})),
    "place of an array": (((jnp.ones(2), 1), {}), ((1, jnp.ones(2)), {})),
    "dtype": (((np.dtype("f4"),), {}), ((np.dtype("f8"),), {})),
}


@pytest.mark.selected(1000)
@pytest.mark.parametrize("calls", REPLAYED.values(), ids=REPLAYED)
def test_keys_of_replayed_functions(calls: Any) -> None:
    keys = [replay._key(args, kwargs, []) for args, kwargs in calls]
    assert None not in keys and len(set(keys)) == len(keys)


def test_keys_of_replayed_functions_have_the_switches() -> None:
    key = replay._key((1,), {}, [])
    with rlx.enable_x64():
        assert replay._key((1,), {}, []) != key


# ------------------------------------------------------------------ native code on disk
def test_every_part_of_the_toolchain_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is found again where it belongs, and changes the digest."""
    import llvmlite

    changes = {
        "sources": lambda patch: patch.setattr(store, "_sources", b"other"),
        "llvm": lambda patch: patch.setattr(llvmlite, "__version__", "0"),
        "platform": lambda patch: patch.setattr(sys, "platform", "other"),
        "processor": lambda patch: patch.setattr(store, "processor", lambda: ("other", features)),
        "features": lambda patch: patch.setattr(store, "processor", lambda: (name, {**features, "other": True})),
    }
    name, features = store.processor()
    own = store._toolchain()
    assert tuple(changes) == store.Toolchain._fields
    for field, change in changes.items():
        with monkeypatch.context() as patch:
            change(patch)
            found = store._toolchain()
            assert [f for f in own._fields if getattr(own, f) != getattr(found, f)] == [field]
            assert store.fingerprint.__wrapped__() == store.digest_of(found) != store.digest_of(own)


def test_features_that_a_processor_lacks_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    name, features = store.processor()
    own = store._toolchain()
    monkeypatch.setattr(store, "processor", lambda: (name, {**features, "other": False}))
    assert store._toolchain() == own


def test_every_part_of_a_c_compiler_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler of another version tells other macros under the same name."""
    says = {"macros": "#define __VERSION__ 1"}

    def run(self: Any, *arguments: str, folder: str | None = None) -> Any:
        return SimpleNamespace(returncode=0, stdout=says["macros"], stderr="")

    monkeypatch.setattr(c_compile.Compiler, "_run", run)
    changes = {
        "command": lambda patch: None,
        "flags": lambda patch: patch.setattr(c_compile, "FLAGS", ("-O0",)),
        "platform": lambda patch: patch.setattr(sys, "platform", "other"),
        "macros": lambda patch: patch.setitem(says, "macros", "#define __VERSION__ 2"),
    }
    own = c_compile.Compiler(["cc"])
    assert own.fingerprint() == store.digest_of(own.identity)
    assert tuple(changes) == c_compile.Identity._fields
    for field, change in changes.items():
        with monkeypatch.context() as patch:
            change(patch)
            other = c_compile.Compiler(["other" if field == "command" else "cc"])
        assert [f for f in changes if getattr(own.identity, f) != getattr(other.identity, f)] == [field]
        assert other.fingerprint() != own.fingerprint()


def test_every_part_of_a_kernels_key_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def code(family: str = "loops", signature: object = (1,)) -> kernel_code.KernelCode:
        return kernel_code.kernel_code(family, signature, (), lambda symbol: symbol)

    found = [code(), code(family="sort"), code(signature=(2,)), code(signature=(1.0,)), code(signature=("1",))]
    monkeypatch.setattr(kernel_code, "_VERSION", "other")
    found.append(code())
    assert len({c.key for c in found}) == len({c.symbol for c in found}) == len(found)


# ------------------------------------------------------------------ plans in exported files
def test_every_part_of_the_name_of_an_exported_plan_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Context()
    claims, options = own.claims, own.options
    kinds = frozenset(list(claims.kinds)[1:])
    other_claims: dict[str, Any] = {
        "kinds": kinds, "routines": frozenset(), "loops_up_to": (("lu", 3),), "dtypes": frozenset(),
        "blocks": frozenset({"softmax"}), "fits": fails,
    }  # fmt: skip
    assert {*other_claims} == {f.name for f in dataclasses.fields(claims)}
    others = [dataclasses.replace(own, claims=dataclasses.replace(claims, **{k: v})) for k, v in other_claims.items()]
    others += [dataclasses.replace(own, options=dataclasses.replace(options, alignment=4 * options.alignment))]
    others += [dataclasses.replace(own, device="c"), dataclasses.replace(own, loop=(0, 1))]
    others += [dataclasses.replace(own, plans=False)]
    assert {f.name for f in dataclasses.fields(own)} == {"claims", "options", "device", "loop", "plans"}
    names = [_plan_name(0, own), _plan_name(1, own), *(_plan_name(0, other) for other in others)]
    for constant in ("__version__", "FORM"):
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, constant, "other")
            names.append(_plan_name(0, own))
    assert len(set(names)) == len(names)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        for key, field in DIVIDED:
            check_rows(patch, DIVIDED, key, field)
