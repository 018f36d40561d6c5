"""Key arrays: leaves of trees with a dtype of their own, moved about as numbers are, refused by arithmetic."""

from __future__ import annotations

import copy
import pickle
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax, random
from rlx.errors import DtypeError
from rlx.ir.extended import KEY_DTYPES
from rlx.ir.types import TensorType, is_key
from rlx.ops.random_bits import philox2x32, philox4x32, threefry4x32
from rlx.trace.primitive import registry


@pytest.fixture(autouse=True)
def _default_dtypes() -> Any:
    """jax with the 32-bit defaults that rlx has."""
    with jax.enable_x64(False):
        yield


KEY = random.key(3)
KEYS = random.split(KEY, (2, 3))
WORDS = np.asarray(random.key_data(KEYS))
GENERATORS = sorted(KEY_DTYPES)


def words(keys: Any) -> np.ndarray:
    """The words of keys of rlx."""
    return np.asarray(random.key_data(keys))


# ------------------------------------------------------------- what a key array is
def test_a_key_array_is_a_leaf_and_an_array() -> None:
    assert rlx.tree.leaves({"a": KEYS, "b": KEY})[0] is KEYS
    assert rlx.tree.map(lambda x: x.shape, [KEYS, KEY]) == [(2, 3), ()]
    assert isinstance(KEYS, rlx.Array)
    assert (KEYS.shape, KEYS.ndim, KEYS.size, KEYS.itemsize, KEYS.nbytes) == ((2, 3), 2, 6, 8, 48)
    assert str(KEYS.dtype) == KEYS.dtype.name == "key<fry>" and KEYS.dtype is KEY.dtype
    for category in (rlx.dtypes.prng_key, rlx.dtypes.extended, np.generic, KEY.dtype):
        assert jnp.issubdtype(KEYS.dtype, category)
    for category in (np.integer, np.number, jnp.float32):
        assert not jnp.issubdtype(KEYS.dtype, category)
    assert not jnp.isdtype(KEYS.dtype, "numeric")
    assert KEYS.device == rlx.default_backend() and KEYS.is_fully_addressable and KEYS.block_until_ready() is KEYS
    assert jnp.shape(KEYS) == (2, 3) and jnp.ndim(KEYS) == 2 and jnp.size(KEYS) == 6 and len(KEYS) == 2
    with pytest.raises(TypeError):
        len(KEY)
    with pytest.raises(TypeError):
        hash(KEY)


@pytest.mark.parametrize("generator", GENERATORS)
def test_keys_of_every_generator_are_shown_copied_and_pickled(generator: str) -> None:
    keys = random.split(random.key(5, impl=generator), 3)
    dtype = KEY_DTYPES[generator]
    assert random.key_impl(keys) == generator and keys.dtype is dtype is random.key_dtype(generator)
    assert repr(keys) == f"Array((3,), dtype={dtype.name}) overlaying:\n{words(keys)}" == str(keys) == f"{keys}"
    for other in (pickle.loads(pickle.dumps(keys)), copy.copy(keys), copy.deepcopy(keys), keys.copy()):
        assert other.dtype is dtype and (words(other) == words(keys)).all()
    assert pickle.loads(pickle.dumps(dtype)) is dtype and copy.deepcopy(dtype) is dtype
    assert rlx.device_get(keys) is keys and rlx.device_put(keys).dtype is dtype
    again = random.wrap_key_data(random.key_data(keys), impl=generator)
    assert bool((again == keys).all())


def test_no_number_is_made_of_a_key() -> None:
    for convert in (bool, int, float, complex, np.asarray, np.array, lambda k: k.item(), lambda k: k.tolist()):
        with pytest.raises(TypeError):
            convert(KEY)
        with pytest.raises(TypeError):
            rlx.jit(lambda k, c=convert: c(k))(KEY)


# ------------------------------------------------------------- moving keys about
MOVES: list[Any] = [
    lambda x, np_: x.T,
    lambda x, np_: x.reshape(3, -1),
    lambda x, np_: x.ravel(),
    lambda x, np_: x.flatten(),
    lambda x, np_: x[None].squeeze(),
    lambda x, np_: x.transpose(1, 0),
    lambda x, np_: x.swapaxes(0, 1),
    lambda x, np_: x[1],
    lambda x, np_: x[0, 1:],
    lambda x, np_: x[..., None, 2],
    lambda x, np_: x[::-1, ::2],
    lambda x, np_: x[np_.array([1, 0, 1])],
    lambda x, np_: x[np_.array([0, 0, 1]), np_.array([0, 2, 2])],
    lambda x, np_: np_.stack([x, x], 1),
    lambda x, np_: np_.concatenate([x, x[:1]]),
    lambda x, np_: np_.broadcast_to(x[0], (4, 3)),
    lambda x, np_: np_.expand_dims(x, 1),
    lambda x, np_: np_.where(np_.array([True, False, True]), x, x[:1]),
    lambda x, np_: np_.take(x, np_.array([2, 0]), axis=1),
    lambda x, np_: np_.append(x, x),
    lambda x, np_: np_.flip(x, 1),
    lambda x, np_: np_.roll(x, 2),
    lambda x, np_: np_.moveaxis(x, 0, 1),
    lambda x, np_: np_.tile(x, 2),
    lambda x, np_: np_.repeat(x, 2, axis=1),
    lambda x, np_: np_.split(x, 3, 1)[1],
    lambda x, np_: np_.hstack([x, x]),
    lambda x, np_: np_.take_along_axis(x, np_.array([[0, 2], [1, 1]]), axis=1),
    lambda x, np_: np_.rot90(x),
    lambda x, np_: np_.atleast_3d(x),
    lambda x, np_: np_.insert(x, 1, x[0, 0], axis=0),
    lambda x, np_: np_.diagonal(x),
    lambda x, np_: np_.resize(x, (4,)),
]


@pytest.mark.parametrize("number", range(len(MOVES)))
def test_moves_are_those_of_their_numbers(number: int) -> None:
    """Keys go where NumPy moves their places to."""
    move = MOVES[number]
    places = np.arange(6).reshape(2, 3)
    expected = WORDS.reshape(6, 2)[move(places, np)]
    for found in (move(KEYS, jnp), rlx.jit(lambda x: move(x, jnp))(KEYS)):
        assert isinstance(found, rlx.Array) and found.dtype is KEYS.dtype
        np.testing.assert_array_equal(words(found), expected)


LAX_MOVES: list[Any] = [
    lambda j, lx, k: lx.select(j.array([[True, False, True], [False, False, True]]), k, k[::-1]),
    lambda j, lx, k: lx.dynamic_slice(k, (np.int32(1), np.int32(7)), (1, 2)),
    lambda j, lx, k: lx.dynamic_index_in_dim(k, np.int16(1), 1, keepdims=False),
    lambda j, lx, k: lx.dynamic_update_slice(k, k[:1, 1:], (np.int32(1), np.int32(0))),
    lambda j, lx, k: lx.rev(k, (0, 1)),
    lambda j, lx, k: lx.concatenate([k, k], 1),
    lambda j, lx, k: lx.broadcast(k, (2,)),
    lambda j, lx, k: lx.slice_in_dim(k, 0, 2, axis=1),
    lambda j, lx, k: lx.full((2,), k[0, 1]),
    lambda j, lx, k: lx.full_like(k, 0),
    lambda j, lx, k: lx.stop_gradient(k),
    lambda j, lx, k: lx.optimization_barrier(k),
    lambda j, lx, k: lx.convert_element_type(k, k.dtype),
    lambda j, lx, k: k.at[0].set(k[1]),
    lambda j, lx, k: k.at[j.array([1, 0]), j.array([2, 2])].set(k[0, :2]),
    lambda j, lx, k: k.at[:, j.array([0, 9])].get(mode="fill"),
    lambda j, lx, k: k.at[9].get(mode="fill"),
    lambda j, lx, k: j.zeros_like(k),
    lambda j, lx, k: j.full((3,), 7, k.dtype),
    lambda j, lx, k: j.ones(2, k.dtype),
    lambda j, lx, k: j.tril(k),
    lambda j, lx, k: k == k[0, 1],
    lambda j, lx, k: k != k[::-1],
    lambda j, lx, k: j.array_equal(k, k),
]


@pytest.mark.parametrize("number", range(len(LAX_MOVES)))
@pytest.mark.parametrize("generator", ["threefry2x32", "rbg"])
def test_operations_on_keys_are_those_of_jax(number: int, generator: str) -> None:
    theirs = jax.random.split(jax.random.key(3, impl=generator), (2, 3))
    ours = random.wrap_key_data(np.asarray(jax.random.key_data(theirs)), impl=generator)
    expected = LAX_MOVES[number](jax.numpy, jax.lax, theirs)
    is_keys = jax.numpy.issubdtype(expected.dtype, jax.dtypes.prng_key)
    expected = np.asarray(jax.random.key_data(expected) if is_keys else expected)

    def move(keys: Any) -> Any:
        return LAX_MOVES[number](jnp, lax, keys)

    for found in (move(ours), rlx.jit(move)(ours), rlx.vmap(move)(jnp.stack([ours, ours[::-1]]))[0]):
        np.testing.assert_array_equal(words(found) if is_keys else np.asarray(found), expected)


MOVING = (
    "broadcast_in_dim reshape transpose reverse slice pad concatenate gather scatter dynamic_slice dynamic_update_slice"
    " select stop_gradient windows optimization_barrier checkpoint_name copy equal not_equal"
).split()


def with_keys(value: Any) -> Any:
    """An operand of numbers as keys; indices and predicates as they are."""
    array = np.asarray(value)
    if array.dtype != np.float64:
        return array
    flat = np.arange(max(array.size, 1), dtype=np.uint32)
    pairs = np.stack([flat, flat * 7 + array.ndim], -1)[: array.size].reshape(*array.shape, 2)
    return random.wrap_key_data(pairs)


@pytest.mark.parametrize("name", MOVING)
def test_primitives_that_move_keys_compute_their_reference(name: str) -> None:
    primitive, tried = registry[name], 0
    for sample in primitive.samples():
        operands = [with_keys(a) for a in sample.args]
        if not any(isinstance(x, rlx.Array) for x in operands):
            continue
        tried += 1

        def run(*args: Any, params: Any = sample.params) -> Any:
            return primitive(*args, **params)

        expected, found = run(*operands), rlx.jit(run)(*operands)
        for a, b in zip(*((x,) if not primitive.multiple else x for x in (expected, found)), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert (words(a) == words(b)).all() if is_key(a.dtype) else (np.asarray(a) == np.asarray(b)).all()
    assert tried


def computing() -> list[str]:
    """Primitives with a sample of float64 that do not move keys."""
    return sorted(
        name
        for name, primitive in registry.items()
        if name not in MOVING and any(np.asarray(a).dtype == np.float64 for s in primitive.samples() for a in s.args)
    )


@pytest.mark.parametrize("name", computing())
def test_primitives_that_compute_refuse_keys(name: str) -> None:
    primitive = registry[name]
    sample = next(s for s in primitive.samples() if any(np.asarray(a).dtype == np.float64 for a in s.args))
    arrays = [np.asarray(a) for a in sample.args]
    types = [TensorType(a.shape, KEY.dtype if a.dtype == np.float64 else a.dtype) for a in arrays]
    with pytest.raises((TypeError, DtypeError)):
        primitive.type(*types, **sample.params)


REFUSED = ["k + 1", "k * k", "-k", "k < k", "k == 1", "k & k", "jnp.sin(k)", "jnp.sum(k)", "jnp.sort(k)", "k.any()",
           "jnp.cumsum(k)", "jnp.argmax(k)", "k.astype('uint32')", "k.view('uint32')", "jnp.where(True, k, 0)",
           "jnp.dot(k, k)", "lax.lt(k, k)", "lax.convert_element_type(1, k.dtype)", "lax.iota(k.dtype, 3)",
           "lax.bitcast_convert_type(k, 'uint32')", "k.at[0].add(k[0])", "jnp.count_nonzero(k)",
           "jnp.nonzero(k)", "jnp.concatenate([k, 1])",
           "lax.top_k(k, 1)", "k.at[0].set(1)"]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_arithmetic_of_keys_is_a_type_error(text: str) -> None:
    def run(k: Any) -> Any:
        return eval(text, {"k": k, "jnp": jnp, "lax": lax})

    for function in (run, rlx.jit(run)):
        with pytest.raises(TypeError):
            function(KEYS[0])


# ------------------------------------------------------------- transformations
def draw(key: Any) -> Any:
    """A number that tells keys apart."""
    return random.bits(key).astype("float32")


DRAWN = np.array([[draw(k) for k in row] for row in KEYS])


def test_jit_takes_gives_and_closes_over_keys() -> None:
    jitted = rlx.jit(lambda tree: {"drawn": draw(tree["key"]), "next": random.split(tree["key"]), "same": KEYS})
    for _ in range(2):
        found = jitted({"key": KEYS[1, 2]})
        assert found["drawn"] == DRAWN[1, 2] and bool((found["same"] == KEYS).all())
        assert bool((found["next"] == random.split(KEYS[1, 2])).all()) and found["next"].dtype is KEY.dtype
    assert jitted.cache_info().misses == 1

    seen = []
    rlx.jit(lambda k: seen.append((isinstance(k, rlx.Array), k.dtype, k.shape, k.T.shape, list(k[0])[1].shape)))(KEYS)
    assert seen == [(True, KEY.dtype, (2, 3), (3, 2), ())]
    compiled = rlx.jit(random.split).lower(KEY).compile()
    assert bool((compiled(KEY) == random.split(KEY)).all())
    assert "key<fry>[2,3]" in str(rlx.make_program(lambda k: k)(KEYS))


def test_shapes_without_keys() -> None:
    struct = rlx.ShapeDtypeStruct((4,), KEY.dtype)
    assert repr(struct) == "ShapeDtypeStruct(shape=(4,), dtype=key<fry>)" and rlx.typeof(KEYS).dtype is KEY.dtype
    found = rlx.eval_shape(lambda k: (k, random.split(k[0], 5), random.normal(k[1])), struct)
    assert [(t.shape, str(t.dtype)) for t in found] == [((4,), "key<fry>"), ((5,), "key<fry>"), ((), "float32")]


def test_vmap_over_keys() -> None:
    np.testing.assert_array_equal(rlx.vmap(rlx.vmap(draw))(KEYS), DRAWN)
    np.testing.assert_array_equal(rlx.vmap(lambda ks: rlx.vmap(draw)(ks), in_axes=1)(KEYS), DRAWN.T)
    out = rlx.vmap(lambda k, x: (random.split(k), x), in_axes=(0, None), out_axes=(1, None))(KEYS[0], KEYS[1])
    assert out[0].shape == (2, 3) and bool((out[1] == KEYS[1]).all())
    gathered = rlx.vmap(lambda k: lax.all_gather(k, "i"), axis_name="i")(KEYS[0])
    assert bool((gathered == KEYS[0][None, :]).all())
    shifted = rlx.vmap(lambda k: lax.ppermute(k, "i", [(0, 1), (1, 2), (2, 0)]), axis_name="i")(KEYS[0])
    assert bool((shifted == jnp.roll(KEYS[0], 1)).all())
    split = rlx.vmap(random.split)(KEYS[0])
    assert bool((split == jnp.stack([random.split(k) for k in KEYS[0]])).all())


@pytest.mark.parametrize("wrap", [lambda f: f, rlx.jit], ids=["eager", "jit"])
def test_keys_through_loops_and_branches(wrap: Any) -> None:
    def walk(key: Any, keys: Any) -> Any:
        def step(carry: Any, own: Any) -> Any:
            carry, used = random.split(carry)
            return carry, (draw(used) + draw(own), used)

        return lax.scan(step, key, keys)

    last, (drawn, used) = wrap(walk)(KEY, KEYS[0])
    key, expected = KEY, []
    for own in KEYS[0]:
        key, now = random.split(key)
        expected.append((draw(now) + draw(own), now))
    assert bool(last == key) and used.shape == (3,)
    np.testing.assert_array_equal(drawn, [e[0] for e in expected])
    assert all(bool(a == e[1]) for a, e in zip(used, expected, strict=True))

    def until(key: Any) -> Any:
        return lax.while_loop(lambda s: s[1] < 3, lambda s: (random.split(s[0])[0], s[1] + 1), (key, 0))[0]

    expected_key = random.split(random.split(random.split(KEY)[0])[0])[0]
    assert bool(wrap(until)(KEY) == expected_key)
    assert bool((wrap(rlx.vmap(until))(KEYS[0])[1:] == jnp.stack([until(k) for k in KEYS[0]])[1:]).all())

    def choose(p: Any, keys: Any) -> Any:
        return lax.cond(p, lambda ks: ks[0], lambda ks: ks[1], keys), lax.switch(2, [lambda k: k[0]] * 3, keys)

    for p in (True, False):
        assert bool((wrap(choose)(p, KEYS)[0] == KEYS[0 if p else 1]).all())
    mapped = wrap(rlx.vmap(choose, in_axes=(0, None)))(np.array([True, False]), KEYS)[0]
    assert bool((mapped == KEYS).all())
    assert lax.map(draw, KEYS[0]).tolist() == DRAWN[0].tolist()
    assert bool(lax.fori_loop(0, 3, lambda i, k: random.fold_in(k, i), KEY) != KEY)


def noisy(x: Any, key: Any) -> Any:
    """A function of a number and a key."""
    return jnp.sin(x) * random.normal(key)


@pytest.mark.thorough
def test_derivatives_beside_keys() -> None:
    slope = float(np.cos(0.5) * random.normal(KEY))
    for transform in (lambda f: f, rlx.jit, rlx.checkpoint):
        np.testing.assert_allclose(rlx.grad(transform(noisy))(0.5, KEY), slope, rtol=1e-6)
        np.testing.assert_allclose(rlx.jacfwd(transform(noisy))(0.5, KEY), slope, rtol=1e-6)
    value, (dx, dkey) = rlx.value_and_grad(noisy, (0, 1), allow_int=True)(0.5, KEY)
    assert dx == rlx.grad(noisy)(0.5, KEY) and dkey.dtype == rlx.dtypes.float0 and value.shape == ()
    with pytest.raises(TypeError):
        rlx.grad(noisy, 1)(0.5, KEY)
    _, (found, kept) = rlx.jvp(lambda x: (noisy(x, KEY), KEYS), (0.5,), (1.0,))
    np.testing.assert_allclose(found, slope, rtol=1e-6)
    assert kept.shape == (2, 3)

    def walk(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            key, total = carry
            key, own = random.split(key)
            return (key, total * noisy(x, own)), None

        return lax.scan(step, (KEY, 1.0), None, length=4)[0][1]

    def unrolled(x: Any) -> Any:
        key, total = KEY, 1.0
        for _ in range(4):
            key, own = random.split(key)
            total = total * noisy(x, own)
        return total

    np.testing.assert_allclose(rlx.jit(rlx.grad(walk))(0.5), rlx.grad(unrolled)(0.5), rtol=1e-5)

    def repeated(x: Any) -> Any:
        def body(s: Any) -> Any:
            key, own = random.split(s[0])
            return key, s[1] * noisy(x, own), s[2] + 1

        return lax.while_loop(lambda s: s[2] < 4, body, (KEY, x * 0 + 1.0, 0))[1]

    np.testing.assert_allclose(rlx.jit(rlx.grad(repeated))(0.5), rlx.grad(unrolled)(0.5), rtol=1e-5)


def test_custom_rules_take_keys() -> None:
    function = rlx.custom_jvp(noisy)
    seen = []

    @function.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        seen.append(tangents[1].dtype)
        return noisy(*primals), 3 * tangents[0]

    assert rlx.grad(function)(0.5, KEY) == 3 and seen[0] == rlx.dtypes.float0
    assert rlx.vmap(rlx.grad(function), in_axes=(None, 0))(0.5, KEYS[0]).tolist() == [3, 3, 3]
    backward = rlx.custom_vjp(noisy)
    backward.defvjp(lambda x, key: (noisy(x, key), key), lambda key, ct: (ct * random.uniform(key), None))
    assert rlx.jit(rlx.grad(backward))(0.5, KEY) == random.uniform(KEY)


def test_callbacks_get_keys() -> None:
    seen: list[Any] = []

    def note(key: Any) -> np.ndarray:
        seen.append(key)
        return np.float32(2)

    result = rlx.ShapeDtypeStruct((), "float32")
    assert rlx.jit(lambda k: rlx.pure_callback(note, result, k))(KEY) == 2
    assert isinstance(seen[0], rlx.Array) and rlx.random.key_data(seen[0]).tolist() == rlx.random.key_data(KEY).tolist()


# ------------------------------------------------------------- generators
@pytest.mark.selected(1)
@pytest.mark.parametrize("generator", GENERATORS)
def test_generators_are_those_of_jax(generator: str) -> None:
    jitted = rlx.jit(random.bits, static_argnums=(1, 2))
    for seed in (0, -5):
        theirs, ours = (lib.random.key(seed, impl=generator) for lib in (jax, rlx))
        np.testing.assert_array_equal(words(ours), jax.random.key_data(theirs))
        for num in (2, (2, 3), 0):
            expected = jax.random.key_data(jax.random.split(theirs, num))
            np.testing.assert_array_equal(words(random.split(ours, num)), expected)
        for number in (0, 17, 2**32 - 1):
            expected = jax.random.key_data(jax.random.fold_in(theirs, number))
            np.testing.assert_array_equal(words(random.fold_in(ours, number)), expected)
        for dtype, shape in (("uint8", (5,)), ("uint16", (3, 4)), ("uint32", (3, 5)), ("uint32", (0, 2))):
            expected = jax.random.bits(theirs, shape, dtype)
            np.testing.assert_array_equal(random.bits(ours, shape, dtype), expected)
            np.testing.assert_array_equal(jitted(ours, shape, dtype), expected)
        with jax.enable_x64(True):
            np.testing.assert_array_equal(random.bits(ours, (5,), "uint64"), jax.random.bits(theirs, (5,), "uint64"))
        np.testing.assert_array_equal(random.uniform(ours, (7,)), jax.random.uniform(theirs, (7,)))


@pytest.mark.selected(1)
@pytest.mark.parametrize("generator", GENERATORS)
def test_keys_of_a_batch_draw_what_they_draw_alone(generator: str) -> None:
    keys = random.split(random.key(1, impl=generator), 3)

    def function(key: Any) -> list[Any]:
        drawn = [random.bits(key, (5,)), random.gamma(key, 2.0, (2,)), random.permutation(key, 6)]
        return [*drawn, random.key_data(random.split(key, 3)), random.key_data(random.fold_in(key, 4))]

    single = [function(k) for k in keys]
    for found, *expected in zip(rlx.jit(rlx.vmap(function))(keys), *single, strict=True):
        np.testing.assert_allclose(found, np.stack(expected), rtol=1e-6)


def test_the_default_generator_is_a_switch() -> None:
    raw = random.PRNGKey(0)
    draws = rlx.jit(lambda: random.bits(random.key(0)))
    assert draws() == random.bits(raw)
    with rlx.scoped(default_prng_impl="rbg"):
        assert random.key_impl(random.key(0)) == "rbg" and random.PRNGKey(0).shape == (4,)
        expected = int(jax.random.bits(jax.random.key(0, impl="rbg")))
        assert int(draws()) == expected == int(random.bits(random.PRNGKey(0)))
        with pytest.raises(TypeError):
            random.bits(raw)
        assert random.wrap_key_data(random.PRNGKey(0)).dtype.name == "key<rbg>"
    assert draws() == random.bits(raw)
    with rlx.scoped(enable_custom_prng=True):
        assert random.PRNGKey(0).dtype.name == "key<fry>"
        assert random.split(raw).dtype.name == "key<fry>"
    with pytest.raises(ValueError, match="dice"), rlx.scoped(default_prng_impl="dice"):
        pass


@pytest.mark.parametrize("key", [[1, 2, 3, 4], [1, 2, 2**32 - 2, 4], [2**32 - 1, 7, 2**32 - 1, 2**32 - 1]])
@pytest.mark.parametrize("algorithm", ["RNG_DEFAULT", "RNG_THREE_FRY"])
@pytest.mark.selected(1)
def test_bits_of_the_bit_generator(key: list[int], algorithm: str) -> None:
    given = np.array(key, np.uint32)
    with jax.enable_x64(True):
        shapes = ((), (9,), (3, 2), (2, 3, 2), (3, 5), (5, 3, 3), (0, 3))
        for dtype, shape in [*product(["uint32"], shapes), ("uint8", (9,)), ("uint16", (3,)), ("uint64", (3, 3))]:
            expected = jax.lax.rng_bit_generator(given, shape, dtype, jax.lax.RandomAlgorithm[algorithm])
            found = lax.rng_bit_generator(given, shape, dtype, lax.RandomAlgorithm[algorithm])
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_array_equal(a, b)
    chosen = lax.RandomAlgorithm[algorithm]
    wide, narrow = (lax.rng_bit_generator(k, (4,), algorithm=chosen)[0] for k in (given.view(np.uint64), given))
    np.testing.assert_array_equal(wide, np.asarray(narrow).view(np.uint64))


def test_words_of_the_hashes() -> None:
    """Known answers of Random123."""
    for primitive, operands, expected in (
        (philox2x32, [0x13198A2E, 0x243F6A88, 0x85A308D3], [0xDD7CE038, 0xF62A4C12]),
        (philox4x32, [0xA4093822, 0x299F31D0, 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
         [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
        (threefry4x32, [0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89, 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
         [0x59CD1DBB, 0xB8879579, 0x86B5D00C, 0xAC8B6D84]),
    ):  # fmt: skip
        values = list(map(np.uint32, operands))
        assert [int(x) for x in primitive(*values)] == expected == [int(x) for x in rlx.jit(primitive)(*values)]


def test_seeds() -> None:
    assert words(random.key(True)).tolist() == [0, 1] and words(random.key(np.uint8(200))).tolist() == [0, 200]
    for seed in (np.int64(-3), np.array(-3), jnp.int32(-3), -3):
        assert words(random.key(seed)).tolist() == words(rlx.jit(random.key)(seed)).tolist() == [0, 2**32 - 3]
    for seed in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            random.key(seed)
    for number in (-1, 2**32):
        with pytest.raises(OverflowError):
            random.fold_in(KEY, number)
    for wrong in (1.5, "a", None, np.arange(2), KEY):
        with pytest.raises(TypeError):
            random.key(wrong)


def test_samplers_put_their_numbers_where_they_are_told() -> None:
    mesh = rlx.make_mesh((1,), ("x",), axis_types=(rlx.sharding.AxisType.Explicit,))
    place = rlx.sharding.NamedSharding(mesh, rlx.P("x"))
    for sampler in (rlx.random.normal, rlx.random.uniform, rlx.random.gumbel):
        assert sampler(rlx.random.key(0), (4,), out_sharding=place).sharding == place
    assert rlx.random.bernoulli(rlx.random.key(0), 0.5, (3,), out_sharding=None).shape == (3,)
    with pytest.raises(rlx.errors.InputTypeError):
        rlx.random.normal(rlx.random.key(0), (2,), out_sharding=3)


def test_numpys_shape_functions_need_no_numbers() -> None:
    assert (np.shape(KEYS), np.ndim(KEYS), np.size(KEYS)) == (KEYS.shape, KEYS.ndim, KEYS.size)
