"""Mutable references under jit, loops, branches, vmap and derivatives: what Python does one step after another."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.errors import (
    ConcretizationTypeError,
    DtypeError,
    IndexBoundsError,
    InputTypeError,
    ReferenceUseError,
    ShapeError,
    TreeMismatchError,
    UnexpectedTracerError,
)


def plain(f: Callable[..., Any]) -> Callable[..., Any]:
    return f


@pytest.fixture(params=[plain, rlx.jit, lambda f: rlx.jit(rlx.jit(f))], ids=["eager", "jit", "twice"])
def under(request: pytest.FixtureRequest) -> Any:
    """Nothing, jit, or jit within jit."""
    return request.param


# ---------------------------------------------------------------- reading and writing
@pytest.mark.parametrize(
    "index", [..., None, 1, -1, (slice(None), 2), slice(0, 2), (1, slice(0, 3, 2)), np.array([0, 1])], ids=repr
)
def test_parts_are_read_and_written_as_numpy_does(index: Any, under: Any) -> None:
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    ref = rlx.new_ref(expected)
    where = ... if index is None else index
    new = np.full(expected[where].shape, 9, np.float32)

    @under
    def f() -> Any:
        before = rlx.ref.swap(ref, index, new)
        rlx.ref.addupdate(ref, index, new)
        return before

    np.testing.assert_array_equal(f(), expected[where])
    expected = expected.copy()
    expected[where] = 18
    np.testing.assert_array_equal(ref[...], expected)


def test_a_part_of_a_part(under: Any) -> None:
    ref = rlx.new_ref(jnp.arange(6.0))

    @under
    def f() -> Any:
        ref.at[1:5].at[::2][1] += 10.0
        return ref.at[2:][0]

    assert f().item() == 2.0 and ref[...].tolist() == [0, 1, 2, 13, 4, 5]


def test_a_part_is_an_argument(under: Any) -> None:
    ref = rlx.new_ref(jnp.zeros((3, 4)))

    @under
    def f(part: Any, i: Any) -> Any:
        inner = part["a"].at[i]
        lax.cond(i > 0, lambda p: p.__setitem__(..., p[...] + 1.0), lambda p: None, inner)
        return part["a"][...]

    assert f({"a": ref.at[1, :3]}, 2).tolist() == [0.0, 0.0, 1.0]
    assert f({"a": ref.at[jnp.array(2)]}, 1).tolist() == [0.0, 1.0, 0.0, 0.0]
    assert ref[...].sum() == 2.0 and ref.at[1:].shape == (2, 4) and ref.at[1:].dtype == np.float32


def test_an_index_may_be_traced() -> None:
    ref = rlx.new_ref(jnp.zeros(4))

    @rlx.jit
    def f(i: Any) -> None:
        ref[i] = 5.0
        rlx.ref.addupdate(ref, jnp.array([0, 0]), jnp.array([1.0, 2.0]))

    f(2)
    assert ref[...].tolist() == [3.0, 0.0, 5.0, 0.0]


@pytest.mark.parametrize("value", [1.0, np.ones(1, np.float32), np.ones((2, 3), np.float32)])
def test_what_is_written_has_the_parts_shape(value: Any) -> None:
    ref = rlx.new_ref(jnp.zeros(3))
    with pytest.raises(ShapeError, match=r"shape \(3,\)"):
        ref[...] = value
    with pytest.raises(ShapeError, match=r"shape \(3,\)"):
        ref.addupdate(value)


def test_a_reference_keeps_its_dtype(under: Any) -> None:
    ref, half = rlx.new_ref(jnp.zeros(3, jnp.int32)), rlx.new_ref(jnp.zeros((), jnp.bfloat16))

    @under
    def f() -> None:
        half[...] += 1.0
        ref[...] += 1.0

    with pytest.raises(DtypeError, match="float32 is written to a Ref of dtype int32"):
        f()
    weak = rlx.new_ref(1.0)
    weak[...] = jnp.float32(2)
    assert weak[...].weak_type and ref[...].tolist() == [0, 0, 0]


def test_it_is_no_array() -> None:
    ref = rlx.new_ref(jnp.zeros((2, 3)))
    assert not isinstance(ref, rlx.Array) and isinstance(ref, rlx.Ref)
    assert (ref.shape, ref.dtype, ref.ndim, ref.size, len(ref)) == ((2, 3), np.float32, 2, 6, 2)
    assert rlx.tree.leaves({"a": ref}) == [ref] and repr(rlx.new_ref(1)) == "Ref(Array(1, dtype=int32, weak_type=True))"
    for call in (lambda: jnp.sum(ref), lambda: rlx.new_ref(ref), lambda: rlx.grad(lambda r: r[...].sum())(ref)):
        with pytest.raises(InputTypeError):
            call()
    with pytest.raises(IndexBoundsError):
        ref[5]
    for other in (copy.copy(ref), copy.deepcopy(ref), pickle.loads(pickle.dumps(ref))):
        other[...] = jnp.ones((2, 3))
    assert not ref[...].any()


def test_what_was_read_stays() -> None:
    start = jnp.zeros(2)
    ref = rlx.new_ref(start)
    before = ref[...]
    ref[0] = 1.0
    assert before.tolist() == start.tolist() == [0.0, 0.0]


def test_freed_and_empty_references(under: Any) -> None:
    @under
    def f(x: Any) -> Any:
        ref = rlx.empty_ref(rlx.ShapeDtypeStruct((2,), "float32"))
        ref[0] = x
        kept = rlx.freeze(ref)
        rlx.free_ref(ref)
        with pytest.raises(ReferenceUseError, match="after free_ref"):
            ref[...]
        with pytest.raises(ReferenceUseError, match="after free_ref"):
            rlx.free_ref(ref)
        return kept

    assert f(1.0).tolist() == [1.0, 0.0]


# ---------------------------------------------------------------- jit
def test_jit_reads_what_is_there_now() -> None:
    ref = rlx.new_ref(jnp.float32(1))
    f = rlx.jit(lambda x: x + ref[...])
    assert f(1.0) == 2.0
    ref[...] = jnp.float32(5)
    assert f(1.0) == 6.0 and f.cache_info().misses == 1


def test_jit_writes_what_it_closes_over(under: Any) -> None:
    total, count = rlx.new_ref(jnp.zeros(2)), rlx.new_ref(0)

    @under
    def f(x: Any) -> Any:
        total[...] += x
        count[...] += 1
        return 2 * total[...]

    assert [f(jnp.ones(2)).tolist() for _ in range(3)] == [[2.0, 2.0], [4.0, 4.0], [6.0, 6.0]]
    assert (total[...].tolist(), count[...].item()) == ([3.0, 3.0], 3)


def test_jit_takes_references_as_arguments(under: Any) -> None:
    @under
    def f(state: Any, x: Any, *, other: Any) -> Any:
        assert all(isinstance(r, rlx.Ref) for r in (*state["refs"], other))
        state["refs"][0][...] += x
        other[...] = state["refs"][1][...]
        return state["scale"] * state["refs"][0][...]

    refs = [rlx.new_ref(jnp.float32(i)) for i in range(4)]
    for other in refs[2:]:
        assert f({"refs": refs[:2], "scale": 2.0}, 3.0, other=other) == 2 * refs[0][...]
    assert [r[...].item() for r in refs] == [6.0, 1.0, 1.0, 1.0]


def test_one_program_serves_other_references_of_the_type() -> None:
    f = rlx.jit(lambda r: rlx.ref.swap(r, ..., r[...] + 1))
    refs = [rlx.new_ref(jnp.float32(i)) for i in range(3)]
    assert [f(r).item() for r in refs] == [0.0, 1.0, 2.0] and [r[...].item() for r in refs] == [1.0, 2.0, 3.0]
    assert f.cache_info().misses == 1 and f.cache_info().hits == 2
    with pytest.raises(InputTypeError, match="takes a Ref"):
        f(jnp.float32(1))  # an array of that type is traced for itself
    assert f.cache_info().currsize == 1
    g = rlx.jit(lambda pair: rlx.ref.swap(pair[0], ..., pair[0][...] + pair[1]))
    g((refs[0], jnp.float32(2)))
    with pytest.raises(InputTypeError, match="takes a Ref"):
        g((jnp.float32(1), jnp.float32(2)))


def test_what_is_only_read_is_not_written_back() -> None:
    read, written = rlx.new_ref(1.0), rlx.new_ref(2.0)
    f = rlx.jit(lambda r, w: w.addupdate(r[...]))
    before = read[...]
    f(read, written)
    assert read[...] is before and written[...] == 3.0
    assert len(f.trace(read, written).program.outputs) == 1

    def body(carry: Any, _: Any) -> Any:
        f(read, written)
        return carry, None

    program = rlx.jit(lambda: lax.scan(body, 0, length=2)).trace().program
    (scanned,) = [e for e in program.equations if e.primitive.name == "scan"]
    assert (scanned.params["carries"], scanned.params["constants"]) == (2, 1)


def test_a_reference_stands_for_one_argument() -> None:
    ref = rlx.new_ref(0.0)
    with pytest.raises(ReferenceUseError, match=r"twice, as a\['x'\] and as b"):
        rlx.jit(lambda a, b: a["x"][...] + b[...])({"x": ref}, ref)
    closes_over = rlx.jit(lambda a: a["x"][...] + ref[...])
    with pytest.raises(ReferenceUseError, match=r"closes over a Ref .* argument a\['x'\]"):
        closes_over({"x": ref})
    assert closes_over({"x": rlx.new_ref(1.0)}) == 1.0
    with pytest.raises(ReferenceUseError, match=r"argument a\['x'\]"):  # traced for another one
        closes_over({"x": ref})
    with pytest.raises(ReferenceUseError, match="twice"):
        rlx.vmap(lambda a, b: None)(*[rlx.new_ref(jnp.zeros(3))] * 2)


def test_nothing_is_written_by_a_function_that_fails() -> None:
    ref = rlx.new_ref(0.0)

    @rlx.jit
    def f() -> None:
        ref[...] = 1.0
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        f()
    assert ref[...] == 0.0


def test_values_are_not_known_while_tracing() -> None:
    ref = rlx.new_ref(1.0)
    with pytest.raises(ConcretizationTypeError):
        rlx.jit(lambda x: x if ref[...] > 0 else -x)(1.0)
    with pytest.raises(ConcretizationTypeError):
        lax.scan(lambda c, _: (c if ref[...] > 0 else -c, None), 0.0, length=2)
    assert rlx.grad(lambda x: x if ref[...] > 0 else -x)(1.0) == 1.0


def test_a_reference_stays_in_its_function() -> None:
    kept: list[Any] = []
    rlx.jit(lambda: kept.append(rlx.new_ref(1.0)))()
    with pytest.raises(UnexpectedTracerError, match="outside the traced function"):
        kept[0][...]
    with pytest.raises(UnexpectedTracerError):
        kept[0][...] = 2.0
    with pytest.raises(UnexpectedTracerError):
        rlx.jit(lambda: kept[0][...])()
    for f in (rlx.new_ref, lambda x: kept[0]):
        with pytest.raises(ReferenceUseError, match="is a Ref"):
            rlx.jit(f)(1.0)


def test_made_in_one_function_and_used_in_another_within_it(under: Any) -> None:
    @under
    def f(x: Any) -> Any:
        ref = rlx.new_ref(jnp.zeros(()))

        @rlx.jit
        def count(r: Any, y: Any) -> None:
            ref[...] += y
            r[...] = ref[...]

        last = rlx.new_ref(0.0)
        for _ in range(3):
            count(last, x)
        return ref[...], last[...]

    assert [v.item() for v in f(2.0)] == [6.0, 6.0]


def test_ahead_of_time() -> None:
    ref, closed = rlx.new_ref(jnp.zeros(2)), rlx.new_ref(0)

    def f(r: Any) -> Any:
        r[...] += 1
        closed[...] += 1
        return {"x": r[0]}

    jitted = rlx.jit(f)
    compiled = jitted.lower(ref).compile()
    assert [compiled(ref)["x"].item() for _ in range(2)] == [1.0, 2.0] and closed[...] == 2
    assert jitted.lower(ref).out_info["x"].shape == () and rlx.eval_shape(f, ref)["x"].shape == ()
    assert closed[...] == 2
    for alone in (rlx.make_program(f), rlx.make_jaxpr(f)):
        with pytest.raises(ReferenceUseError, match="a program alone"):
            alone(ref)
    assert rlx.make_program(lambda x: x + closed[...])(1.0).outputs


def test_arguments_may_be_given_away() -> None:
    ref = rlx.new_ref(jnp.zeros(2))
    f = rlx.jit(lambda r, x: rlx.ref.swap(r, ..., r[...] + x), donate_argnums=(0, 1))
    for _ in range(3):
        f(ref, jnp.ones(2))
    assert ref[...].tolist() == [3.0, 3.0]


def test_without_jit() -> None:
    ref = rlx.new_ref(0.0)

    @rlx.jit
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: (ref.addupdate(x), c)[1], x)

    with rlx.disable_jit():
        f(2.0)
        _, ys = lax.scan(lambda c, r: (c, (r.addupdate(1.0), r[...])[1]), 0, rlx.new_ref(jnp.arange(2.0)))
    assert ref[...] == 6.0 and ys.tolist() == [1.0, 2.0]


# ---------------------------------------------------------------- loops and branches
def test_scan_carries_what_it_closes_over(under: Any) -> None:
    ref, scale = rlx.new_ref(jnp.zeros(2)), rlx.new_ref(2.0)

    def body(carry: Any, x: Any) -> Any:
        ref[...] += scale[...] * x
        return carry + ref[0], ref[1]

    run = under(lambda: lax.scan(body, 0.0, jnp.arange(8.0).reshape(4, 2)))
    expected = np.cumsum(2 * np.arange(8.0).reshape(4, 2), axis=0)
    carry, ys = run()
    assert carry == expected[:, 0].sum() and ys.tolist() == expected[:, 1].tolist()
    assert ref[...].tolist() == expected[-1].tolist()
    run()
    assert ref[...].tolist() == (2 * expected[-1]).tolist()


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_over_a_reference(under: Any, reverse: bool) -> None:
    ref = rlx.new_ref(jnp.arange(4.0))

    def body(carry: Any, given: Any) -> Any:
        given["r"][...] += given["x"]
        return carry + given["r"][...], carry

    carry, ys = under(lambda: lax.scan(body, 0.0, {"r": ref, "x": jnp.ones(4)}, reverse=reverse))()
    assert ref[...].tolist() == [1.0, 2.0, 3.0, 4.0] and carry == 10.0
    assert ys.tolist() == ([9.0, 7.0, 4.0, 0.0] if reverse else [0.0, 1.0, 3.0, 6.0])


def test_a_carry_is_no_reference() -> None:
    ref = rlx.new_ref(0.0)
    for loop in (
        lambda: lax.scan(lambda c, _: (c, None), ref, length=2),
        lambda: lax.while_loop(lambda c: False, lambda c: c, ref),
    ):
        with pytest.raises(ReferenceUseError, match="is a Ref"):
            loop()


def test_while_loops_carry_what_the_condition_reads(under: Any) -> None:
    ref, limit = rlx.new_ref(0.0), rlx.new_ref(7.0)

    def body(c: Any) -> Any:
        ref[...] += 2.0
        return c + 1

    run = under(lambda: lax.while_loop(lambda c: ref[...] < limit[...], body, 0))
    assert run() == 4 and ref[...] == 8.0
    limit[...] = 11.0
    assert run() == 2 and ref[...] == 12.0
    with pytest.raises(ReferenceUseError, match="cond_fun"):
        lax.while_loop(lambda c: (ref.addupdate(1.0), c < 2)[1], body, 0)


def test_fori_loops_of_known_and_of_unknown_length(under: Any) -> None:
    ref = rlx.new_ref(jnp.zeros(3))

    def body(i: Any, c: Any) -> Any:
        ref[i] = 1.0 + i
        return c

    under(lambda: lax.fori_loop(0, 2, body, 0))()
    assert ref[...].tolist() == [1.0, 2.0, 0.0]
    under(lambda n: lax.fori_loop(2, n, body, 0))(3)
    assert ref[...].tolist() == [1.0, 2.0, 3.0]


def test_branches_write_different_references(under: Any) -> None:
    a, b, seen = rlx.new_ref(0.0), rlx.new_ref(0.0), rlx.new_ref(jnp.arange(3.0))

    def first(x: Any) -> Any:
        b[...] += x
        a[...] = x
        return seen[1]

    def second(x: Any) -> Any:
        b[...] = x * b[...]
        return x

    run = under(lambda i, x: lax.switch(i, [first, second, lambda x: x * a[...]], x))
    assert [run(i, x).item() for i, x in [(0, 3.0), (1, 5.0), (2, 7.0)]] == [1.0, 5.0, 21.0]
    assert (a[...].item(), b[...].item()) == (3.0, 15.0)
    choose = under(lambda p, r: lax.cond(p, lambda r: r.addupdate(1.0), lambda r: None, r))
    for p in (True, False):
        choose(p, a)
    assert a[...] == 4.0


def test_loops_within_loops_within_branches(under: Any) -> None:
    ref = rlx.new_ref(0)

    def inner(i: Any, c: Any) -> Any:
        ref[...] += c
        return c

    def outer(carry: Any, x: Any) -> Any:
        lax.cond(x > 1, lambda: lax.fori_loop(0, 2, inner, x), lambda: x)
        return carry + ref[...], None

    carry, _ = under(lambda: lax.scan(outer, 0, jnp.arange(4)))()
    assert ref[...] == 10 and carry == 0 + 0 + 4 + 10


def test_map_and_checkpoint(under: Any) -> None:
    ref = rlx.new_ref(0.0)

    @rlx.checkpoint
    def f(x: Any) -> Any:
        ref[...] += 1.0
        return x * ref[...]

    assert under(lambda: lax.map(f, jnp.ones(3)))().tolist() == [1.0, 2.0, 3.0]
    assert under(rlx.grad(f))(2.0) == 4.0 and ref[...] == 4.0
    assert under(f)(2.0) == 10.0


def test_scan_gets_a_reference_once() -> None:
    ref = rlx.new_ref(jnp.zeros(3))
    with pytest.raises(ReferenceUseError, match=r"twice, as xs\[0\] and as xs\[1\]"):
        lax.scan(lambda c, x: (c, x[0][...]), 0, (ref, ref))
    with pytest.raises(ReferenceUseError, match="closes over a Ref"):
        lax.scan(lambda c, r: (c, r[...] + ref[0]), 0, ref)


# ---------------------------------------------------------------- transforms
def test_vmap_over_a_reference(under: Any) -> None:
    ref, shared, total = rlx.new_ref(jnp.zeros((2, 3))), rlx.new_ref(2.0), rlx.new_ref(0.0)

    def f(r: Any, x: Any, t: Any) -> Any:
        r[...] += shared[...] * x
        t[...] += 1.0
        return r[0]

    run = under(rlx.vmap(f, in_axes=(1, 0, None)))
    assert run(ref, jnp.arange(3.0), total).tolist() == [0.0, 2.0, 4.0]
    assert ref[...].tolist() == [[0.0, 2.0, 4.0]] * 2 and total[...] == 1.0
    with pytest.raises(ReferenceUseError, match="differs along the mapped axis"):
        under(rlx.vmap(lambda x: total.addupdate(x)))(jnp.ones(3))


def test_vmap_of_what_makes_a_reference(under: Any) -> None:
    def f(x: Any) -> Any:
        ref = rlx.new_ref(0.0)
        lax.scan(lambda c, _: (c, ref.addupdate(x)), 0, length=3)
        return ref[...]

    assert under(rlx.vmap(f))(jnp.arange(3.0)).tolist() == [0.0, 3.0, 6.0]


@pytest.mark.parametrize("inner", [plain, rlx.jit], ids=["plain", "jit"])
def test_derivatives_through_references_made_inside(under: Any, inner: Any) -> None:
    def f(x: Any) -> Any:
        ref, powers = rlx.new_ref(x), rlx.new_ref(jnp.ones(3))

        @inner
        def twice() -> None:
            ref[...] = jnp.sin(ref[...]) + ref[...]

        twice()
        lax.scan(lambda c, _: (c, twice()), None, length=2)
        lax.cond(x > 0, lambda: powers.addupdate(x, 1), lambda: None)
        rlx.vmap(lambda r, c: r.addupdate(c * x))(powers, jnp.arange(3.0))
        return ref[...] * powers[...].sum()

    def pure(x: Any) -> Any:
        y = x
        for _ in range(3):
            y = jnp.sin(y) + y
        return y * (3 + (x if x > 0 else 0) + 3 * x)

    for x in (0.7, -0.3):
        np.testing.assert_allclose(under(f)(x), pure(x), rtol=1e-6)
        np.testing.assert_allclose(under(rlx.grad(f))(x), rlx.grad(pure)(x), rtol=1e-5)
        np.testing.assert_allclose(under(rlx.grad(rlx.grad(f)))(x), rlx.grad(rlx.grad(pure))(x), rtol=1e-5)
        _, moved = rlx.jvp(under(f), (x,), (2.0,))
        np.testing.assert_allclose(moved, 2 * rlx.grad(pure)(x), rtol=1e-5)


def test_what_a_differentiated_function_writes_outside(under: Any) -> None:
    ref = rlx.new_ref(0.0)

    def count(x: Any) -> Any:
        ref[...] += 1.0
        return x * ref[...]

    assert under(rlx.grad(count))(2.0) == 1.0 and under(rlx.value_and_grad(count))(3.0)[0] == 6.0
    assert under(lambda x: rlx.jvp(count, (x,), (1.0,))[1])(1.0) == 3.0 and ref[...] == 3.0
    pair = under(rlx.grad(lambda x: (count(x), {"seen": ref[...]}), has_aux=True))(2.0)
    assert [float(v) for v in rlx.tree.leaves(pair)] == [4.0, 4.0]
    stopped = under(rlx.grad(lambda x: (rlx.ref.set(ref, ..., lax.stop_gradient(x)), x * ref[...])[1]))
    assert stopped(5.0) == 5.0 and ref[...] == 5.0
    for transform in (rlx.grad, lambda f: lambda x: rlx.jvp(f, (x,), (x,))):
        with pytest.raises(ReferenceUseError, match="value with a derivative"):
            under(transform(lambda x: (rlx.ref.set(ref, ..., x), x)[1]))(1.0)
    assert ref[...] == 5.0


def test_functions_with_rules_read_references(under: Any) -> None:
    scale = rlx.new_ref(2.0)

    @rlx.custom_vjp
    def f(x: Any, ref: Any) -> Any:
        return ref[...] * jnp.sin(x)

    f.defvjp(lambda x, ref: (f(x, ref), (ref[...], x)), lambda res, ct: (ct * 10 * res[0] * res[1], None))
    for factor in (2.0, 3.0):
        scale[...] = factor
        np.testing.assert_allclose(under(lambda x: f(x, scale))(1.0), factor * np.sin(1.0), rtol=1e-6)
        assert under(rlx.grad(lambda x: f(x, scale)))(3.0) == factor * 30

    ahead = rlx.custom_jvp(lambda x: x * scale[...])
    ahead.defjvp(lambda primals, tangents: (3 * primals[0], 5 * tangents[0]))
    assert under(ahead)(2.0) == 6.0 and under(rlx.grad(ahead))(2.0) == 5.0


def test_functions_with_rules_write_to_none() -> None:
    ref = rlx.new_ref(0.0)
    primal = rlx.custom_vjp(lambda x: (ref.addupdate(1.0), x)[1])
    primal.defvjp(lambda x: (x, None), lambda res, ct: (ct,))
    with pytest.raises(ReferenceUseError, match="which has a rule"):
        rlx.jit(primal)(1.0)
    assert ref[...] == 0.0


def _noting(use: Callable[[Any, Any], Any] = lambda ref, ct: ref.__setitem__(..., ct)) -> Any:
    """The identity of its second argument, whose cotangent `use` sees with the reference."""
    note = rlx.custom_vjp(lambda ref, x: x)
    note.defvjp(lambda ref, x: (x, ref), lambda ref, ct: (use(ref, ct), (None, ct))[1])
    return note


def _loop(body: Callable[[Any], Any], x: Any) -> Any:
    return lax.scan(lambda c, _: (body(c), None), x, None, length=3)[0]


@pytest.mark.parametrize("inner", [lambda f: f, rlx.jit, rlx.checkpoint], ids=["plain", "jit", "checkpoint"])
def test_gradients_are_noted_in_the_opposite_order(under: Any, inner: Any) -> None:
    note = _noting(lambda ref, ct: ref.__setitem__(..., jnp.roll(ref[...], 1).at[0].set(ct)))
    seen = rlx.new_ref(jnp.zeros(4))
    f = inner(lambda x: note(seen, 2.0 * note(seen, 3.0 * note(seen, x))))
    assert under(rlx.grad(f))(1.0) == 6.0
    assert seen[...].tolist() == [6.0, 2.0, 1.0, 0.0]
    assert under(f)(1.0) == 6.0 and seen[...].tolist() == [6.0, 2.0, 1.0, 0.0]  # nothing was differentiated


def test_gradients_are_noted_in_loops_and_branches(under: Any) -> None:
    add, seen = _noting(lambda ref, ct: ref.addupdate(ct)), rlx.new_ref(jnp.float32(0.0))
    looped = rlx.grad(lambda x: _loop(lambda c: 2.0 * add(seen, c), x))
    assert under(looped)(1.0) == 8.0 and seen[...] == 2 + 4 + 8
    branched = rlx.grad(lambda x, i: lax.cond(i > 0, lambda c: 5.0 * add(seen, c), lambda c: c, x))
    assert under(branched)(1.0, 0) == 1.0 and seen[...] == 14
    assert under(branched)(1.0, 1) == 5.0 and seen[...] == 19


def test_gradients_are_noted_in_references_among_arguments(under: Any) -> None:
    note, ref = _noting(), rlx.new_ref(jnp.float32(0.0))
    f = rlx.jit(lambda ref, x: jnp.sin(note(ref, jnp.sin(x))))
    under(lambda ref, x: rlx.grad(f, 1)(ref, x))(ref, 1.0)
    np.testing.assert_allclose(ref[...], np.cos(np.sin(1.0)), rtol=1e-6)

    rows, xs = rlx.new_ref(jnp.zeros(3)), jnp.arange(1.0, 4.0)
    under(rlx.grad(lambda xs: jnp.sum(rlx.vmap(lambda ref, x: note(ref, x) ** 2)(rows, xs))))(xs)
    assert rows[...].tolist() == [2.0, 4.0, 6.0]
    scanned = lambda xs: lax.scan(lambda c, rx: (c * note(*rx), None), 1.0, (rows, xs))[0]  # noqa: E731
    assert under(rlx.grad(scanned))(xs).tolist() == [6.0, 3.0, 2.0] and rows[...].tolist() == [6.0, 3.0, 2.0]


def test_integers_and_bools_are_noted(under: Any) -> None:
    count, odd = rlx.new_ref(jnp.int32(2**30)), rlx.new_ref(jnp.bool_(False))

    def use(refs: Any, ct: Any) -> None:
        refs[0][...] += 1
        refs[1][...] = ct > 2

    note = _noting(use)
    under(rlx.grad(lambda x: 3.0 * note((count, odd), x)))(1.0)
    assert count[...] == 2**30 + 1 and odd[...]
    assert count.dtype == np.int32 and odd.dtype == np.bool_
    long, steps = _noting(lambda ref, ct: ref.addupdate(1)), rlx.new_ref(np.int64(0))
    with pytest.raises(ReferenceUseError, match="at most 32 bits"):
        rlx.grad(lambda x: long(steps, x))(1.0)


def test_a_rule_runs_where_something_is_pulled_back(under: Any) -> None:
    note, ref = _noting(), rlx.new_ref(jnp.float32(7.0))
    assert under(rlx.grad(lambda x, y: x * note(ref, y)))(2.0, 3.0) == 3.0  # by x alone
    assert under(rlx.grad(lambda x: (note(ref, x), x * x)[1]))(2.0) == 4.0  # of what does not use it
    assert ref[...] == 7.0
    _, pull = rlx.vjp(lambda x: note(ref, x), 2.0)
    assert ref[...] == 7.0
    under(lambda ct: pull(ct))(5.0)
    assert ref[...] == 5.0


def test_what_differs_along_a_mapped_axis_is_not_noted() -> None:
    note, ref = _noting(), rlx.new_ref(jnp.float32(0.0))
    with pytest.raises(ReferenceUseError, match="differs along the mapped axis"):
        rlx.grad(lambda xs: jnp.sum(rlx.vmap(lambda x: note(ref, x) ** 2)(xs)))(jnp.ones(3))
    total = _noting(lambda ref, ct: ref.__setitem__(..., lax.psum(ct, "i")))
    rlx.grad(lambda xs: jnp.sum(rlx.vmap(lambda x: total(ref, x) ** 2, axis_name="i")(xs)))(jnp.ones(3))
    assert ref[...] == 6.0


def test_pullbacks_add_gradients_to_references(under: Any) -> None:
    total, last = rlx.new_ref(jnp.zeros(3)), rlx.new_ref(1.0)

    def step(x: Any, y: Any) -> Any:
        _, pull = rlx.vjp(lambda x, y, i: jnp.sum(x * x) * y * i, x, y, 2)
        return pull.with_refs(total, rlx.ad.DontWant(), rlx.ad.GradValue())(1.0)

    for _ in range(2):
        found = under(step)(jnp.arange(3.0), 2.0)
    assert total[...].tolist() == [0.0, 16.0, 32.0]
    assert found[:2] == (rlx.ad.GradRef(), rlx.ad.DidntWant()) and found[2].dtype == rlx.float0
    _, pull = rlx.vjp(lambda xs: 2.0 * xs["a"] + xs["b"], {"a": 1.0, "b": 1.0})
    ((found, other),) = [x.values() for x in pull.with_refs({"a": last, "b": rlx.ad.GradValue()})(1.0)]
    assert found == rlx.ad.GradRef() and other == 1.0 and last[...] == 3.0
    for wrong, error in (((last, last), TreeMismatchError), (({"a": total, "b": last},), ShapeError)):
        with pytest.raises(error):
            pull.with_refs(*wrong)(1.0)


def test_shard_map_takes_references(under: Any) -> None:
    mesh, whole = rlx.make_mesh((1,), ("x",)), rlx.new_ref(jnp.arange(4.0))
    part = rlx.new_ref(jnp.zeros(5))
    double = rlx.shard_map(
        lambda r, v: (r.addupdate(r[...]), v.__setitem__(..., r[:2]), r[1])[2],
        mesh=mesh,
        in_specs=(rlx.P("x"), rlx.P()),
        out_specs=rlx.P(),
    )
    assert under(lambda: double(whole, part.at[1:3]))() == 2.0
    assert whole[...].tolist() == [0.0, 2.0, 4.0, 6.0] and part[...].tolist() == [0.0, 0.0, 2.0, 0.0, 0.0]


def test_whoever_does_not_hand_on_says_so() -> None:
    ref = rlx.new_ref(1.0)
    for call in (
        lambda: rlx.closure_convert(lambda x: x * ref[...], 1.0),
        lambda: rlx.linear_transpose(lambda x: x * ref[...], 1.0),
        lambda: lax.reduce(jnp.ones(3), 0.0, lambda a, b: a + b * ref[...], (0,)),
    ):
        with pytest.raises(ReferenceUseError, match="does not thread through"):
            call()
