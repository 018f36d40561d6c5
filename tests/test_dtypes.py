"""Numbers beside arrays: the table of docs/dtypes.md, and that no digits are lost, over all functions."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax, tree
from rlx.backends import memory_named
from rlx.ir.types import TensorType

TEXT = (Path(__file__).parent.parent / "docs" / "dtypes.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(.+)` \| (\w+~?) \| (\w+~?) \|$", TEXT, re.MULTILINE)
D, N, Z = np.float64(0.1), np.int64(2), np.complex128(0.1j)
DTYPES = {"f2": "f2", "f4": "f4", "f8": "f8", "bf": "bfloat16", "i4": "i4", "i8": "i8", "u1": "u1", "b": "?"}
DTYPES |= {"c8": "c8", "c16": "c16"}


def arrays() -> dict[str, Any]:
    return {name: jnp.asarray(np.ones(3), dtype) for name, dtype in DTYPES.items()}


def shown(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    return f"{value.dtype.name}{'~' if value.weak_type else ''}"


@pytest.mark.parametrize(("expression", "plain", "wide"), ROWS)
def test_the_table(expression: str, plain: str, wide: str) -> None:
    """Eagerly, with the default dtypes and with those of 64 bits."""
    names: dict[str, Any] = {"np": np, "jnp": jnp, "rlx": rlx, "lax": lax, "d": D, "n": N, "z": Z}
    assert shown(eval(expression, {**names, **arrays()})) == plain
    with rlx.enable_x64():
        assert shown(eval(expression, {**names, **arrays()})) == wide


def test_the_table_is_found() -> None:
    assert len(ROWS) > 50


@pytest.mark.parametrize("number", [D, N, Z, np.float32(2), np.uint64(2)])
@pytest.mark.parametrize("operation", [jnp.add, jnp.multiply, jnp.subtract, jnp.not_equal, jnp.append])
@pytest.mark.parametrize("name", DTYPES)
def test_eager_traced_and_reversed_agree(name: str, operation: Callable[..., Any], number: Any) -> None:
    """One dtype, however the operands come together, and no 64-bit operand narrowed but by a float."""
    x = arrays()[name]
    if x.dtype == bool and operation is jnp.subtract:
        pytest.skip("bools are not subtracted")
    try:
        found = operation(x, number)
    except rlx.errors.TypePromotionError:
        pytest.skip("no implicit promotion")
    assert shown(operation(number, x)) == shown(found)
    assert shown(rlx.jit(lambda v: operation(v, number))(x)) == shown(found)
    assert shown(rlx.jit(lambda v: operation(number, v))(x)) == shown(found)
    if operation is not jnp.not_equal and x.dtype.name in ("float64", "complex128"):
        assert found.dtype.itemsize >= x.dtype.itemsize
        np.testing.assert_array_equal(found, getattr(np, operation.__name__)(np.asarray(x), number))


# ---------------------------------------------------------------------- every function
MODULES = "rlx.numpy rlx.lax rlx.nn rlx.scipy.special rlx.numpy.linalg".split()
# arguments that are dtypes, shapes or numbers of elements to a function, not numbers
OTHERS = set(
    "array asarray astype can_cast empty empty_like from_dlpack frombuffer fromfile fromiter fromstring iota isdtype"
    " load ones ones_like save savez set_printoptions zeros zeros_like identity indices diag_indices tri eye"
    " printoptions bitcast_convert_type convert_element_type".split()
)


def functions(module: str) -> Iterator[tuple[str, Any]]:
    found = importlib.import_module(module)
    for name in sorted(getattr(found, "__all__", dir(found))):
        function = getattr(found, name)
        if callable(function) and not isinstance(function, type) and name not in OTHERS:
            yield name, function


def results(function: Callable[..., Any], *args: Any) -> list[np.ndarray] | None:
    """The arrays that a call gives; None if it is refused."""
    try:
        found = [x for x in tree.leaves(function(*args)) if isinstance(x, rlx.Array)]
        return [np.array(x) for x in found]
    except Exception:
        return None


@pytest.mark.parametrize("module", MODULES)
def test_a_number_alone_is_an_array_without_axes(module: str) -> None:
    """np.float64 in, float64 out, wherever an array of it gives float64."""
    wrong, ran = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in functions(module):
            for number in (np.float64(0.3), np.int64(2), np.complex128(0.3 + 0.1j)):
                for given, arrays in (
                    ((number,), (np.asarray(number),)),
                    ((number, number), (np.asarray(number),) * 2),
                    ((number, number.item()), (np.asarray(number), number.item())),
                ):
                    found, expected = results(function, *given), results(function, *arrays)
                    if found is None or expected is None:
                        continue
                    ran += 1
                    if [(x.dtype, x.shape) for x in found] != [(x.dtype, x.shape) for x in expected]:
                        wrong.append(f"{name}{given}: {[x.dtype.name for x in found]}")
    assert not wrong and ran > 3, wrong


BESIDE: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "x, v": lambda x, v: (x, v),
    "x, x, v": lambda x, v: (x, x, v),
    "x, v, x": lambda x, v: (x, v, x),
    "x, v, v": lambda x, v: (x, v, v),
    "x, 0, v": lambda x, v: (x, 0, v),
    "x, 1, v": lambda x, v: (x, 1, v),
    "x, v, 0": lambda x, v: (x, v, 0),
    "x, [0], v": lambda x, v: (x, jnp.array([0]), v),
    "[x, v]": lambda x, v: ([x, v],),
    "x > 0, x, v": lambda x, v: (x.real > 0, x, v),
    "x, v, padding": lambda x, v: (x, v, ((1, 1, 0),) * x.ndim),
    "x, v, add, axes": lambda x, v: (x, v, lax.add, (0,)),
    "x, v, starts": lambda x, v: (x, v, (0,) * x.ndim),
    "'i,->i', x, v": lambda x, v: ("i,->i", x, v),
}

# each argument becomes an array alone
APART = {"atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "meshgrid"}
# the array is a condition, or the number a mask
MEANS_OTHERS = {"where": ("x, v, v", "x, v, 0"), "logmeanexp": ("x, 0, v", "x, 1, v", "x, [0], v")}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.selected(1)
def test_no_digit_is_lost_beside_64_bits(module: str) -> None:
    """A number beside a float64 array is what it is in float64, whether it is Python's or NumPy's."""
    wrong, ran = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in functions(module):
            for number in (0.3, np.float64(0.3), 0.3 + 0.1j, np.complex128(0.3 + 0.1j)):
                x = jnp.asarray([1.0, 2.0, 3.0], "f8" if isinstance(number, float) else "c16")
                for how, call in BESIDE.items():
                    if name in APART or how in MEANS_OTHERS.get(name, ()):
                        continue
                    found, expected = (
                        results(function, *call(x, number)),
                        results(function, *call(x, np.asarray(number))),
                    )
                    if found is None or expected is None or [a.shape for a in found] != [a.shape for a in expected]:
                        continue
                    ran += 1
                    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if b.dtype.itemsize >= 8 and a.ndim]
                    pairs = [(a, b) for a, b in pairs if a.dtype.kind in "fc"]
                    if not all(np.allclose(a, b, rtol=1e-12, atol=1e-14, equal_nan=True) for a, b in pairs):
                        wrong.append(f"{name}({how}) with {type(number).__name__}")
    assert not wrong and ran > 3, wrong


@pytest.mark.parametrize("number", [D, N, Z])
def test_functions_that_refuse_two_dtypes_take_numbers(number: Any) -> None:
    """rlx.lax does not promote arrays; a NumPy number beside one is no array."""
    kind = {"f": "f4", "i": "i4", "c": "c8"}[number.dtype.kind]
    x = jnp.asarray([1, 2, 3], kind)
    calls: list[Callable[[Any], Any]] = [
        lambda v: lax.add(x, v),
        lambda v: lax.sub(v, x),
        lambda v: lax.pad(x, v, [(1, 0, 0)]),
        lambda v: lax.reduce(x, v, lax.add, (0,)),
        lambda v: lax.reduce_window(x, v, lax.add, (2,), (1,), "VALID"),
        lambda v: lax.dynamic_update_index_in_dim(x, v, 1, 0),
        lambda v: lax.select(x != 2, x, lax.full_like(x, v)),
        lambda v: x.at[0].set(v),
        lambda v: x.at[0].add(v),
        lambda v: x.at[7].get(mode="fill", fill_value=v),
    ]
    for call in calls:
        found = call(number)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, call(number.item()))


def test_a_number_that_does_not_fit_is_refused() -> None:
    """As Python's, instead of wrapping around as NumPy's do."""
    x = jnp.zeros(2, "uint8")
    with pytest.raises(rlx.errors.DtypeOverflowError):
        x + np.int64(300)
    assert (jnp.zeros(2, bool) + np.int64(2**40)).dtype == np.int64


def test_types_of_numbers() -> None:
    """What transformed functions see."""
    assert repr(rlx.typeof(D)) == "float64[]" and repr(rlx.typeof(0.1)) == "weak float32[]"
    assert rlx.ShapeDtypeStruct.like(N).dtype == np.int64
    assert rlx.eval_shape(lambda x: x, Z).dtype == np.complex128
    assert rlx.value_and_grad(jnp.sin)(D)[0].dtype == np.float64
    assert float(rlx.jit(jnp.sin)(D)) == np.sin(D) and float(rlx.grad(jnp.sin)(D)) == np.cos(D)
    assert lax.convert_element_type(0.1, "float64").item() == 0.1
    assert jnp.percentile(jnp.arange(11.0), 10 / 3).dtype == np.float32
    assert jnp.quantile(jnp.arange(11), 0.3).item() == pytest.approx(3)


def test_scalar_types_are_found_among_numpys() -> None:
    assert np.int32 in {jnp.int32, jnp.int64} and jnp.float32 in {np.float32} and np.float64 not in {jnp.float32}


def test_scalar_types_are_classes() -> None:
    """As in JAX: libraries derive enumerations from them, and ask whether they are types."""

    class Step(jnp.int8):
        FIRST = jnp.int8(0)
        LAST = jnp.int8(2)

    assert isinstance(jnp.int8, type) and isinstance(Step, type) and issubclass(Step, jnp.int8)
    assert not issubclass(jnp.int8, int) and Step.dtype == np.int8
    assert Step(3).dtype == jnp.zeros(2, Step).dtype == Step.LAST.dtype == np.int8
    for kind in (jnp.float32, jnp.bfloat16, jnp.int_):
        assert pickle.loads(pickle.dumps(kind)) is kind and copy.deepcopy(kind) is kind and kind.__doc__


@pytest.mark.parametrize("way", [rlx.jit, rlx.vmap, lambda f: lambda x: rlx.jvp(f, (x,), (x,))[0]])
def test_scalar_types_take_lists_of_traced_values(way: Any) -> None:
    x = np.arange(1.0, 3.0, dtype="f4")
    found = way(lambda x: jnp.float16([x, (2 * x).astype("f8"), x * 0 + 1]))(x)
    assert found.dtype == np.float16 and sorted(set(np.asarray(found).ravel().tolist())) == [1.0, 2.0, 4.0]


def test_a_placed_type_is_one_object() -> None:
    """The same type in a memory is another type, and updating it leaves the memory."""
    memory, bare = memory_named("cpu"), TensorType((2,), "float32", True)
    placed = bare.placed(memory)
    assert placed is bare.placed(memory) and placed is not bare and placed.unplaced is bare
    assert bare.placed() is bare and placed.placed() is bare and placed.placed(sharding="rows").memory is None
    assert (placed.shape, placed.dtype, placed.weak, placed.memory) == ((2,), np.float32, True, memory)
    assert placed.update(shape=(3,)) is TensorType((3,), "float32", True)
    assert repr(placed) == "weak float32[2] on Device(cpu:0)"
