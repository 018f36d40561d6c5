"""One program for all sizes: its plans and results are those of a program for the size, and calls trace nothing."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.ir.plan_data import write_plan
from rlx.passes.pipeline import executables

_GENERATOR = np.random.default_rng(7)


def reals(*shape: int) -> Any:
    return jnp.asarray(_GENERATOR.standard_normal(shape).astype(np.float32))


def integers(most: int, *shape: int) -> Any:
    return jnp.asarray(_GENERATOR.integers(0, most, shape).astype(np.int32))


def softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Any, gain: Any, shift: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + shift


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 4.0
    length = q.shape[2]
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", softmax(scores), v)


def mlp_loss(p: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ p["w"] + p["b"])
    return ((hidden @ p["out"] - y) ** 2).mean()


def mlp_step(p: Any, x: Any, y: Any) -> Any:
    g = rlx.grad(mlp_loss)(p, x, y)
    return {k: p[k] - 0.1 * g[k] for k in p}


def block(p: Any, x: Any) -> Any:
    batch, length, width = x.shape
    parts = jnp.split(layer_norm(x, p["gain"], p["shift"]) @ p["qkv"], 3, -1)
    q, k, v = (a.reshape(batch, length, 2, width // 2).transpose(0, 2, 1, 3) for a in parts)
    x = x + attention(q, k, v).transpose(0, 2, 1, 3).reshape(batch, length, width) @ p["mix"]
    return x + rlx.nn.gelu(layer_norm(x, p["gain"], p["shift"]) @ p["up"]) @ p["down"]


def next_token_loss(p: Any, tokens: Any) -> Any:
    logits = block(p, p["table"][tokens[:, :-1]]) @ p["table"].T
    logits = logits - rlx.nn.logsumexp(logits, -1, keepdims=True)
    return -jnp.take_along_axis(logits, tokens[:, 1:, None], 2).mean()


MLP = {"w": reals(8, 16), "b": reals(16), "out": reals(16, 4)}
BLOCK = {
    "gain": reals(16), "shift": reals(16), "qkv": reals(16, 48) * 0.1, "mix": reals(16, 16) * 0.1,
    "up": reals(16, 64) * 0.1, "down": reals(64, 16) * 0.1, "table": reals(32, 16),
}  # fmt: skip

def recurrence(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x @ w["w"] + h @ w["again"])
        return h, h

    return lax.scan(step, jnp.zeros((xs.shape[0], 16)), xs.swapaxes(0, 1))[1].sum()


RECURRENT = {"w": reals(8, 16), "again": reals(16, 16) * 0.3}

Program = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]
PROGRAMS: dict[str, Program] = {
    "affine": (lambda x: x * 2 + 1, lambda n: (reals(n, 3),)),
    "last axis": (lambda x: jnp.exp(x) + 1, lambda n: (reals(3, n),)),
    "two arrays": (lambda x, y: jnp.tanh(x) * y, lambda n: (reals(n, 3), reals(n, 3))),
    "sum": (lambda x: x.sum(), lambda n: (reals(n, 3),)),
    "columns": (lambda x: x.sum(0), lambda n: (reals(n, 30),)),
    "rows": (lambda x: x.max(1), lambda n: (reals(n, 30),)),
    "mean": (lambda x: x.mean(), lambda n: (reals(n, 3),)),
    "variance": (lambda x: x.var(0), lambda n: (reals(n, 6),)),
    "argmax": (lambda x: x.argmax(1), lambda n: (reals(n, 30),)),
    "product": (lambda x: x @ MLP["w"], lambda n: (reals(n, 8),)),
    "gram": (lambda x: x.T @ x, lambda n: (reals(n, 8),)),
    "two sizes": (lambda x, y: x @ y, lambda n: (reals(n, 6), reals(6, 2 * n))),
    "softmax": (softmax, lambda n: (reals(n, 30),)),
    "softmax of n": (softmax, lambda n: (reals(7, n),)),
    "layer norm": (lambda x: layer_norm(x, BLOCK["gain"], BLOCK["shift"]), lambda n: (reals(n, 16),)),
    "mlp step": (lambda p, x, y: mlp_step(p, x, y), lambda n: (MLP, reals(n, 8), reals(n, 4))),
    "attention": (attention, lambda n: (reals(n, 2, 8, 16), reals(n, 2, 8, 16), reals(n, 2, 8, 16))),
    "attention over n": (attention, lambda n: (reals(2, 2, n, 16), reals(2, 2, n, 16), reals(2, 2, n, 16))),
    "block": (lambda x: block(BLOCK, x), lambda n: (reals(n, 8, 16),)),
    "gpt gradient": (lambda p, t: rlx.value_and_grad(next_token_loss)(p, t), lambda n: (BLOCK, integers(32, n, 9))),
    "vmap": (rlx.vmap(lambda x: jnp.sin(x) @ MLP["w"]), lambda n: (reals(n, 8),)),
    "concatenate": (lambda x: jnp.concatenate([x, x * 2], 0), lambda n: (reals(n, 3),)),
    "slices": (lambda x: x[1:-1] - x[:-2], lambda n: (reals(n, 3),)),
    "flip": (lambda x: x[::-1] * 2, lambda n: (reals(n, 3),)),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (0, 0))), lambda n: (reals(n, 3),)),
    "reshape": (lambda x: x.reshape(x.shape[0] * 3, 2).sum(1), lambda n: (reals(n, 6),)),
    "reshape -1": (lambda x: x.reshape(-1, 2).sum(1), lambda n: (reals(n, 6),)),
    "transpose": (lambda x: x.T * 2, lambda n: (reals(n, 100),)),
    "arange": (lambda x: x + jnp.arange(x.shape[0])[:, None], lambda n: (reals(n, 6),)),
    "zeros": (lambda x: jnp.zeros(x.shape) + x, lambda n: (reals(n, 6),)),
    "size in arithmetic": (lambda x: x.sum() / x.shape[0] + x.shape[0] // 2, lambda n: (reals(n, 6),)),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c * r), x[0], x), lambda n: (reals(n, 6),)),
    "cumulative": (lambda x: jnp.cumsum(x, 0), lambda n: (reals(n, 6),)),
    "gather": (lambda t, i: t[i], lambda n: (BLOCK["table"], integers(32, n))),
    "one hot": (lambda i: rlx.nn.one_hot(i, 8), lambda n: (integers(8, n),)),
    "sort": (lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1)), lambda n: (reals(n, 6),)),
    "median": (lambda x: jnp.median(x, 0), lambda n: (reals(n, 6),)),
    "largest": (lambda x: lax.top_k(x, 3), lambda n: (reals(n, 40),)),
    "random mask": (
        lambda key, x: x * rlx.random.bernoulli(key, 0.5, x.shape), lambda n: (rlx.random.key(n), reals(n, 6))
    ),
    "scatter": (lambda x, i: jnp.zeros((5, 6)).at[i].add(x), lambda n: (reals(n, 6), integers(5, n))),
    "recurrence over n": (lambda w, x: rlx.grad(recurrence)(w, x), lambda n: (RECURRENT, reals(3, n, 8))),
    "branch": (
        lambda x: lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - x.shape[0], x), lambda n: (reals(n, 3),)
    ),
    "pooling": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        lambda n: (reals(n, 3, 8, 8),),
    ),
    "second derivative": (
        lambda x: rlx.jvp(rlx.grad(lambda x: (jnp.sin(x) ** 2).sum()), (x,), (x,))[1], lambda n: (reals(n, 3),)
    ),
    "pairs": (lambda x: ((x[:, None] - x[None]) ** 2).sum(-1), lambda n: (reals(n, 6),)),
}
SIZES = (5, 9, 13, 12, 16, 31, 2, 64, 100, 257, 9, 600, 1, 24)
# a division by a size that is a power of two is a product in the program for this size: the same bits
DIVIDES = {"mean", "variance", "mlp step", "gpt gradient", "size in arithmetic"}


def plan_of(function: Any) -> Any:
    (entry,) = function._traces.entries.values()
    return entry.compiled.executable.plan


def written(plan: Any, constants: Any) -> bytes:
    return write_plan(plan, [np.asarray(b.value) for b in constants.buffers if b.value is not None])


def compare(name: str, sizes: tuple[int, ...]) -> int:
    """Check the results of calls, and the plans of those that traced nothing; returns the number of these."""
    function, arguments = PROGRAMS[name]
    symbolic = rlx.jit(lambda *args: function(*args))
    filled = 0
    for size in sizes:
        args = arguments(size)
        traces = symbolic.cache_info().misses
        found = symbolic(*args)
        with rlx.scoped(symbolic_sizes=False):
            fixed = rlx.jit(lambda *args: function(*args))
            expected = fixed(*args)
        for a, b in zip(rlx.tree.leaves(found), rlx.tree.leaves(expected), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), (name, size)
        if symbolic.cache_info().misses > traces:
            continue
        filled += 1
        made = [e for f in symbolic._traces.families.values() for t in f.templates for e in t.made.values()]
        own = [e.compiled.executable.plan for e in made]
        plan = plan_of(fixed)
        if own and not (name in DIVIDES and size & (size - 1) == 0):
            assert written(plan, plan) in [written(p, plan) for p in own], (name, size)
    return filled


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", ["affine", "mean", "softmax", "mlp step", "attention"])
def test_plans_and_results_are_those_of_the_size(name: str) -> None:
    """The plan that is filled in equals the plan that is made for the size, and the results have the same bits."""
    assert compare(name, (9, 13, 31, 64, 100)) >= 2


@pytest.mark.thorough
@pytest.mark.selected("all")
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_all_programs_at_many_sizes(name: str) -> None:
    """As above, for all programs, small sizes and thresholds included."""
    assert compare(name, SIZES) >= 3


@pytest.mark.thorough
@pytest.mark.selected("all")
@pytest.mark.parametrize("name", ["affine", "layer norm", "mlp step", "slices", "scan", "size in arithmetic"])
def test_two_hundred_sizes(name: str) -> None:
    """Sizes from 2 to 201."""
    assert compare(name, tuple(range(2, 202))) >= 180


def test_a_known_program_traces_lowers_and_compiles_nothing() -> None:
    """From the third size on: no trace, no plan, no kernel; and the results are new arrays of the size."""
    calls = []

    def f(x: Any, w: Any) -> Any:
        calls.append(x.shape)
        return softmax(x @ w)

    g = rlx.jit(f)
    w = reals(8, 12)
    for size in (20, 24, 28, 21, 40, 33):
        before = executables.misses
        assert g(reals(size, 8), w).shape == (size, 12)
        assert executables.misses == before + (size == 20)
    assert len(calls) == 2 and g.cache_info()[:3] == (4, 2, 2)


def test_a_thousand_sizes_keep_one_program() -> None:
    """The latest sizes only are kept; the first program is not evicted."""
    f = rlx.jit(lambda x: x * 2 + 1)
    x = np.arange(1100, dtype=np.float32)
    for size in range(40, 1040):
        assert np.array_equal(f(x[:size]), x[:size] * 2 + 1)
    assert f.cache_info()[1:3] == (2, 2)
    traces = f._traces
    assert len(traces.ready) <= 40
    (family,) = traces.families.values()
    assert len(family.templates) == 1 and len(family.templates[0].made) <= 40
    f.clear_cache()
    gc.collect()
    assert f.cache_info().currsize == 0


@pytest.mark.selected("all")
@pytest.mark.parametrize(
    "use",
    [
        lambda x: sum(x[i] for i in range(x.shape[0])),
        lambda x: x * float(x.shape[0]),
        lambda x: {f"rows{x.shape[0]}": x * 2},
        lambda x: x + np.ones(x.shape, np.float32),
        lambda x: x * len([None] * x.shape[0]),
        lambda x: x + np.arange(x.shape[0], dtype=np.float32)[:, None],
    ],
)
def test_uses_of_the_number_are_compiled_for_the_size(use: Any) -> None:
    """A function that needs the number is traced for each size, and right."""
    f, g = rlx.jit(lambda x: use(x)), use
    for size in (20, 24, 28):
        x = np.asarray(reals(size, 3))
        for a, b in zip(rlx.tree.leaves(f(x)), rlx.tree.leaves(g(x)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    assert f.cache_info().misses == 3


def test_decisions_by_the_size_hold_where_they_are_the_same() -> None:
    """`if` over a size: each branch is one program."""

    def f(x: Any) -> Any:
        if x.shape[0] > 30 or x.shape[0] % 2:
            return x * 3
        return x.sum()

    g = rlx.jit(f)
    for size in (10, 12, 14, 40, 45, 11, 13, 100, 28, 15):
        x = np.asarray(reals(size, 3))
        np.testing.assert_allclose(g(x), f(x), rtol=1e-5)
    assert g.cache_info().misses <= 5


def test_axes_that_change_together_and_apart() -> None:
    """Axes with equal sizes share a name; a call in which they differ is another program, and errors are the user's."""
    f = rlx.jit(lambda x, y: x * 2 + y)
    for size in (10, 12, 14):
        assert f(reals(size, 3), reals(size, 3)).shape == (size, 3)
    assert f.cache_info().misses == 2
    assert f(reals(14, 3), reals(1, 3)).shape == (14, 3)
    with pytest.raises(rlx.errors.ShapeError, match="broadcast"):
        f(reals(14, 3), reals(13, 3))
    for size in (15, 16):
        assert f(reals(size, 3), reals(size, 3)).shape == (size, 3)


def test_size_zero_and_one() -> None:
    """Sizes 0 and 1 have programs of their own."""
    f = rlx.jit(lambda x: (x * 2, x.sum(0)))
    for size in (4, 6, 0, 1, 7, 0, 1):
        x = np.asarray(reals(size, 3))
        doubled, total = f(x)
        assert np.array_equal(doubled, x * 2)
        np.testing.assert_allclose(total, x.sum(0), rtol=1e-5)


def test_the_switch() -> None:
    """With symbolic_sizes off, each size is traced."""
    f = rlx.jit(lambda x: x * 2)
    with rlx.scoped(symbolic_sizes=False):
        for size in (3, 5, 7):
            f(reals(size))
        assert f.cache_info().misses == 3


def test_explanations_name_conditions_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    """RLX_EXPLAIN: the conditions with the user's lines, or why there is no program for all sizes."""

    def f(x: Any) -> Any:
        return x * 2 if x.shape[0] > 7 else x

    g, h = rlx.jit(f), rlx.jit(lambda x: x * float(x.shape[0]))
    with rlx.scoped(explain=True):
        g(reals(9, 3))
        g(reals(12, 3))
        said = capsys.readouterr().err
        assert "f has one program for all sizes" in said and ">= 8" in said and "test_symbolic_sizes.py" in said
        h(reals(9, 3))
        h(reals(12, 3))
        said = capsys.readouterr().err
        assert "has no program for all sizes" in said and "the number of n" in said


def test_results_that_are_numbers_of_sizes() -> None:
    """They are filled in as well, though no kernel computes them."""
    f = rlx.jit(lambda x: (x + 1, x.size, jnp.float32(x.shape[0])))
    for size in (5, 7, 9, 100):
        _, count, length = f(reals(size, 3))
        assert (int(count), float(length)) == (3 * size, float(size))
    assert f.cache_info().misses == 2


def test_tables_of_users_contain_numbers() -> None:
    """A size in a set or a dict is compared by its number."""
    f = rlx.jit(lambda x: x + {16: 1.0, 32: 2.0}.get(x.shape[0], 0.0) + (x.shape[0] in {9, 10}))
    for size, more in ((5, 0.0), (7, 0.0), (9, 1.0), (16, 1.0), (32, 2.0), (10, 1.0)):
        assert float(f(jnp.zeros(size))[0]) == more


def test_donation_keywords_and_trees() -> None:
    """Keywords, dicts, tuples and static arguments."""
    f = rlx.jit(lambda p, *, y, times: {"a": p["a"] * times + y, "b": (p["b"][0] - y,)}, static_argnames="times")
    for size in (4, 6, 8, 10):
        a, b, y = (np.asarray(reals(size, 2)) for _ in range(3))
        found = f({"a": a, "b": (b,)}, y=y, times=3)
        np.testing.assert_allclose(found["a"], a * 3 + y, rtol=1e-5)
        np.testing.assert_allclose(found["b"][0], b - y, rtol=1e-5)
    assert f.cache_info().misses == 2


def test_donated_arguments_are_gone() -> None:
    """Arguments that a call with filled-in sizes donates cannot be used again."""
    f = rlx.jit(lambda x, y: x + y, donate_argnums=0)
    for size in (4, 6, 8, 10):
        x, y = reals(size, 2), reals(size, 2)
        expected = np.asarray(x) + np.asarray(y)
        assert np.array_equal(f(x, y), expected)
        assert x.is_deleted() and not y.is_deleted()
    assert f.cache_info().misses == 2


def test_families_are_bounded() -> None:
    """Signatures that differ in more than sizes do not pile up."""
    f = rlx.jit(lambda x, n: x * n, static_argnums=1)
    for number in range(f.cache_size + 20):
        f(reals(3), number)
    assert len(f._traces.families) <= f.cache_size


def test_stages_are_dumped_for_the_size(tmp_path: Path) -> None:
    """RLX_DUMP shows programs and plans with numbers."""
    f = rlx.jit(lambda x: x * 2 + 1)
    with rlx.scoped(dump=str(tmp_path)):
        for size in (3, 5, 7):
            f(reals(size))
    assert f.cache_info().misses == 3 and any(tmp_path.iterdir())


def test_threads_share_a_program() -> None:
    """Calls of several threads with many sizes."""
    f = rlx.jit(lambda x: jnp.tanh(x).sum(1))
    x = np.asarray(reals(200, 5))
    wrong: list[int] = []

    def work(first: int) -> None:
        for size in range(first, 190, 3):
            if not np.allclose(f(x[:size]), np.tanh(x[:size]).sum(1), rtol=1e-5, atol=1e-5):
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(10 + n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
