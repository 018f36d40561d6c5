"""What can be in a saved function: constants of every kind, keys, rlx's own nodes; and what is refused on loading."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lm, optim, quant
from rlx.errors import FileFormatError, ShapeError, UnsupportedError
from rlx.ir.types import supported_dtypes

SIZE = rlx.export.symbolic_shape("b")


def raw(leaf: Any) -> bytes:
    """The bytes of an array, or of the words of keys."""
    keys = jnp.issubdtype(leaf.dtype, rlx.dtypes.prng_key)
    return np.asarray(rlx.random.key_data(leaf) if keys else leaf).tobytes()


def assert_kept(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """The exported function and the loaded one give the same bytes as jit."""
    expected = rlx.jit(function)(*arguments)
    exported = rlx.export(function)(*arguments)
    for found in (exported(*arguments), rlx.export.deserialize(exported.serialize(**options))(*arguments)):
        assert rlx.tree.structure(found) == rlx.tree.structure(expected)
        assert list(map(raw, rlx.tree.leaves(found))) == list(map(raw, rlx.tree.leaves(expected)))


NUMBERS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45]
COMPLEX = [complex(a, b) for a in (0.0, -0.0, 1.5, np.nan, np.inf) for b in (1.0, -0.0, -np.inf, np.nan)]


def constants() -> dict[str, Any]:
    """Small arrays, which are in the text, of every dtype; with special numbers, and without elements."""
    ordered = sorted(supported_dtypes, key=lambda dtype: dtype.name)
    found: dict[str, Any] = {d.name: np.asarray([1, 0, 1]).astype(d) for d in ordered}
    floats = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
    found |= {f"special {np.dtype(d).name}": np.array(NUMBERS).astype(d) for d in floats}
    found |= {f"special {np.dtype(d).name}": np.array(COMPLEX[:16], d) for d in (np.complex64, np.complex128)}
    found |= {f"{c} in complex64": np.array(c, np.complex64) for c in COMPLEX}
    shapes = [(0,), (0, 3), (3, 0), (2, 0, 4)]
    found |= {f"{s} {d}": np.zeros(s, d) for s in shapes for d in ("float32", "int8", "complex64")}
    found["payload"] = np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    return found


@pytest.mark.parametrize("name", constants())
def test_constants_in_the_text(name: str) -> None:
    """Bit for bit, behind a file."""
    constant = constants()[name]
    assert_kept(lambda x: (jnp.asarray(constant), x + 1), np.ones(2, np.float32))


KEYED: dict[str, Callable[[Any, Any], Any]] = {
    "one": lambda x, k: x + rlx.random.normal(k, x.shape),
    "some": lambda x, k: x + rlx.random.normal(rlx.random.split(k, 3)[1], x.shape),
    "result": lambda x, k: (x, k, rlx.random.split(k, 2)),
    "scan": lambda x, k: rlx.lax.scan(lambda c, t: (c + rlx.random.normal(k, ()) * t, c), x[0], x)[0],
}


@pytest.mark.parametrize("implementation", ["threefry2x32", "philox4x32", "rbg"])
@pytest.mark.parametrize("name", KEYED)
@pytest.mark.selected(1)
def test_captured_keys(name: str, implementation: str) -> None:
    """One key, or enough of them to be stored beside the text; with object code for one generator."""
    x, held = np.ones(3, np.float32), rlx.random.key(7, impl=implementation)
    object_code = implementation == "philox4x32"
    assert_kept(lambda x: KEYED[name](x, held), x, object_code=object_code)
    many = rlx.random.split(held, 20)
    assert_kept(lambda x: (KEYED[name](x, many[4]), many), x, object_code=object_code)


def test_captured_keys_for_all_sizes() -> None:
    """A file for any size draws the function's numbers."""
    held = rlx.random.key(3)

    def function(x: Any) -> Any:
        return x + rlx.random.normal(held, x.shape)

    loaded = rlx.export.deserialize(rlx.export(function)(rlx.ShapeDtypeStruct(SIZE, "float32")).serialize(1))
    for size in (1, 4, 200):
        np.testing.assert_array_equal(loaded(jnp.zeros(size)), function(jnp.zeros(size)))


OPTIMIZERS = ["sgd", "adam", "adamw", "rmsprop", "lion", "adagrad", "lbfgs"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step(name: str) -> None:
    """Optimiser states are arguments and results of files."""
    rule: Any = getattr(optim, name)(1e-2)
    parameters = {"w": np.arange(3.0, dtype=np.float32)}

    def step(parameters: Any, state: Any) -> Any:
        loss, gradient = rlx.value_and_grad(lambda p: ((p["w"] - 1) ** 2).sum())(parameters)
        more = {"value": loss, "grad": gradient, "value_fn": lambda p: ((p["w"] - 1) ** 2).sum()}
        updates, state = rule.update(gradient, state, parameters, **(more if name == "lbfgs" else {}))
        return optim.apply_updates(parameters, updates), state

    state = rule.init(parameters)
    loaded = rlx.export.deserialize(rlx.export(step)(parameters, state).serialize())
    for _ in range(3):
        parameters, state = expected = step(parameters, state)
        found = loaded(*(parameters, state))
        assert rlx.tree.structure(found) == rlx.tree.structure(expected)


@pytest.mark.parametrize("scheme", ["int4/32", "int8a/32", "nf4/64", "nvfp4", "gguf_q4_0"])
def test_packed_weights_and_caches(scheme: str) -> None:
    """Quantised arrays and caches are arguments and results of files."""
    weight = quant.quantize(np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32), scheme)
    assert_kept(lambda w: (w, quant.dequantize(w)), weight)
    x = np.ones((2, 64), np.float32)
    product = rlx.export.deserialize(rlx.export(quant.dequant_matmul)(x, weight).serialize())
    np.testing.assert_allclose(product(x, weight), quant.dequant_matmul(x, weight), rtol=1e-5, atol=1e-5)
    if scheme == "nf4/64":
        doubled = quant.double_quantize(quant.quantize(np.eye(512, dtype=np.float32), scheme))
        assert_kept(lambda w: quant.dequantize(w), doubled)
    config = lm.DecoderConfig(vocabulary=9, width=64, layers=2, heads=2, key_heads=1, inner=8)
    cache = lm.new_cache(config, 1, 8, "q8_0")
    loaded = rlx.export.deserialize(rlx.export(lambda c: c._replace(lengths=c.lengths + 1))(cache).serialize())
    assert int(loaded(cache).lengths[0]) == 1


# ------------------------------------------------------------------ sizes
LIMITED: dict[str, tuple[Callable[[Any], Any], int, int]] = {  # function, a size that is refused, one that is not
    "a threshold": (lambda x: x if x.shape[0] < 200 else x * 2, 200, 199),
    "a slice": (lambda x: x[:5000], 5001, 5000),
    "an equation": (lambda x: x * 2 if x.shape[0] == 100 else x, 100, 99),
    "one": (lambda x: x * jnp.linspace(0, 1, x.shape[0]), 1, 2),
    "an assertion": (lambda x: x if x.shape[0] <= 3000 else x["none"], 3001, 3000),
}


@pytest.mark.parametrize("name", LIMITED)
def test_sizes_with_other_programs_are_refused(name: str) -> None:
    """The file has a constraint that excludes them."""
    function, bad, good = LIMITED[name]
    exported = rlx.export(function)(rlx.ShapeDtypeStruct(SIZE, "float32"))
    for found in (exported, rlx.export.deserialize(exported.serialize(1))):
        with pytest.raises(ShapeError, match=r"was exported for sizes with b [<>]= \d+, and got b = "):
            found(jnp.ones(bad))
        np.testing.assert_allclose(found(jnp.ones(good)), function(jnp.ones(good)), rtol=1e-6)


UNLIMITED: dict[str, Callable[[Any], Any]] = {
    "first": lambda x: x[0] + x[-1],
    "reversed": lambda x: x[::-1] * 2,
    "standardised": lambda x: (x - x.mean()) / (x.std() + 1),
    "another algorithm": lambda x: rlx.nn.dot_product_attention(*[x[None, :, None, None]] * 3),
    "half the precision": lambda x: x.astype(jnp.bfloat16).mean(),
}


@pytest.mark.parametrize("name", UNLIMITED)
def test_other_programs_with_the_same_results_are_accepted(name: str) -> None:
    """A function may choose another algorithm for some sizes."""
    function = UNLIMITED[name]
    exported = rlx.export(function)(rlx.ShapeDtypeStruct(SIZE, "float32"))
    for size in (1, 2, 700):
        x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
        np.testing.assert_allclose(
            np.asarray(exported(x), np.float32), np.asarray(function(jnp.asarray(x)), np.float32), rtol=1e-2, atol=1e-5
        )


# ------------------------------------------------------------------ refusals
def changed(data: bytes, member: str, change: Callable[[bytes], bytes]) -> bytes:
    """A file with another member, and its checksum made anew: what a stranger could send."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    parts[member] = change(parts[member])
    if member != "manifest.json":
        manifest = json.loads(parts["manifest.json"])
        digest = hashlib.blake2b(parts[member], digest_size=32).hexdigest()
        manifest["members"][member] = {"bytes": len(parts[member]), "blake2b": digest}
        parts["manifest.json"] = json.dumps(manifest).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, body in parts.items():
            archive.writestr(name, body)
    return file.getvalue()


def with_avals(key: str, change: Callable[[dict[str, Any]], Any], order: int = 0) -> Callable[[bytes], bytes]:
    """A change of the first type of a function's signature."""

    def edit(manifest: bytes) -> bytes:
        found = json.loads(manifest)
        change(found["functions"][order][key][0])
        return json.dumps(found).encode()

    return edit


HOSTILE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "no program": ("0.mir", lambda b: b"garbage("),
    "no derivative": ("1.mir", lambda b: b"garbage("),
    "deep": ("0.mir", lambda b: b"x = " + b"(" * 50_000),
    "unknown operation": ("0.mir", lambda b: b.replace(b"ops.sin", b"ops.sinn")),
    "another operation": ("0.mir", lambda b: b.replace(b"ops.sin", b"ops.reshape")),
    "smaller argument": ("manifest.json", with_avals("in_avals", lambda t: t.update(shape=[2]))),
    "other argument": ("manifest.json", with_avals("in_avals", lambda t: t.update(dtype="float64"))),
    "other result": ("manifest.json", with_avals("out_avals", lambda t: t.update(shape=[3001]))),
    "derivative's argument": ("manifest.json", with_avals("in_avals", lambda t: t.update(dtype="int8"), 1)),
    "derivative's result": ("manifest.json", with_avals("out_avals", lambda t: t.update(shape=[1]), 1)),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("size", [(3000,), SIZE], ids=["fixed", "any"])
def test_wrong_programs_are_refused_on_loading(name: str, size: Any) -> None:
    """Kernels rely on the types in the manifest, so it has to agree with the program."""
    saved = bytes(rlx.export(lambda x: jnp.sin(x) * 2)(rlx.ShapeDtypeStruct(size, "float32")).serialize(1))
    member, change = HOSTILE[name]
    with pytest.raises(FileFormatError, match="is not an exported function"):
        rlx.export.deserialize(changed(saved, member, change))


def renamed_node(name: str, manifest: bytes) -> bytes:
    """The manifest with another name for a state's class."""
    return manifest.replace(b"rlx.optim.ScaleByAdamState", name.encode())


def test_nodes_of_strangers_are_refused() -> None:
    """Only classes of rlx's public packages have names without registration."""
    saved = bytes(rlx.export(lambda s: s.count)(optim.scale_by_adam().init(np.ones(2, np.float32))).serialize())
    for name in ("os.path", "rlx.cli.Main", "rlx.optim.adam", "rlx.optim.GradientTransformation.x", "rlx.lm.load"):
        with pytest.raises(FileFormatError, match="class is not registered"):
            renamed = changed(saved, "manifest.json", partial(renamed_node, name))
            rlx.export.deserialize(renamed)


def test_what_would_not_be_read_back_is_not_saved() -> None:
    """Saving reads the text again."""
    exported = rlx.export(lambda x: jnp.sin(x))(np.ones(3, np.float32))
    text = exported.as_text()
    object.__setattr__(exported._functions[0], "text", text.replace("ops.sin", "ops.cos"))
    with pytest.raises(UnsupportedError, match="would not be read back"):
        exported.serialize()
