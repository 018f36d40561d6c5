"""What JAX's libraries use of JAX's inside: jaxprs as data, primitives of their own, references, sparse matrices."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Hashable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.compat
import rlx.numpy as jnp
from rlx.errors import UnsupportedError
from rlx.trace.lower import inline_calls


@pytest.fixture
def jax() -> Iterator[Any]:
    """rlx in place of jax."""
    with rlx.compat.as_jax():
        yield importlib.import_module("jax")


def everything(x: Any) -> Any:
    """A function with every kind of region, and operands that broadcast."""
    y = (
        rlx.nn.softmax(x) @ x * 2
        + jnp.where(x > 0, x, 1).sum()
        + rlx.lax.scan(lambda c, y: (c + y * x[0], c), 0.0, x)[0]
    )
    y += rlx.lax.while_loop(lambda c: c < 3, lambda c: c + 1, x[0]) + rlx.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x[1])
    y += rlx.nn.relu(x)[0] + rlx.checkpoint(jnp.sin)(x[0]) + jnp.sort(x)[0] + jnp.take(x, jnp.array([1, 0])).sum()
    y += jnp.linalg.cholesky(x[:, None] * x + jnp.eye(3))[0, 0] + x.at[0].set(1.0)[1] + jnp.cumsum(x)[2]
    return (
        y + rlx.random.normal(rlx.random.key(0)) + jnp.argmax(x) + (x[:, None] - x).astype(jnp.int32).sum() + x[::-1][0]
    )


def test_a_jaxpr_runs_and_is_traced_again(jax: Any) -> None:
    x = jnp.array([0.3, 2.0, -1.0])
    closed = jax.make_jaxpr(everything)(x)
    assert isinstance(closed, jax.extend.core.ClosedJaxpr) and isinstance(closed.jaxpr, jax.extend.core.Jaxpr)
    wanted = everything(x)
    np.testing.assert_allclose(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, x)[0], wanted, rtol=1e-6)
    again = jax.extend.core.jaxpr_as_fun(jax.extend.core.ClosedJaxpr(closed.jaxpr, closed.consts))
    np.testing.assert_allclose(rlx.jit(again)(x)[0], wanted, rtol=1e-6)
    np.testing.assert_allclose(rlx.grad(lambda x: again(x)[0])(x), rlx.grad(everything)(x), rtol=1e-5)
    np.testing.assert_allclose(rlx.vmap(lambda x: again(x)[0])(x[None])[0], wanted, rtol=1e-6)
    assert "scan" in str(closed) and "cond" in repr(closed)


def test_equations_have_jax_s_names_and_parameters(jax: Any) -> None:
    lax = importlib.import_module("jax.lax")
    eqns = jax.make_jaxpr(lambda x: jnp.exp(x) * 2.0 - jnp.sum(x, 0))(jnp.ones((2, 3))).eqns
    assert [e.primitive for e in eqns] == [lax.exp_p, lax.mul_p, lax.reduce_sum_p, lax.broadcast_in_dim_p, lax.sub_p]
    assert dict(eqns[0].params) == {"accuracy": None} and dict(eqns[2].params)["axes"] == (0,)
    assert isinstance(eqns[1].invars[1], jax.core.Literal) and eqns[1].invars[1].val == 2.0
    select = jax.make_jaxpr(lambda p, x: jnp.where(p, x, 0.0))(True, jnp.ones(2)).eqns[-1]
    assert select.primitive is lax.select_n_p
    assert lax.select_n_p.bind(jnp.array([True, False]), jnp.zeros(2), jnp.ones(2)).tolist() == [1.0, 0.0]
    scan = jax.make_jaxpr(lambda x: rlx.lax.scan(lambda c, y: (c + y, c), jnp.float32(0), x))(jnp.ones(3)).eqns[-1]
    assert (scan.params["num_carry"], scan.params["length"]) == (1, 3)
    assert len(list(jax.core.jaxprs_in_params(scan.params))) == 1
    with pytest.raises(UnsupportedError, match="no counterpart"):
        lax.linear_solve_p.bind(1.0)


def test_a_library_rewrites_a_jaxpr(jax: Any) -> None:
    """Every sine becomes a cosine, in the branches of a cond, too."""
    lax = importlib.import_module("jax.lax")

    def swapped(jaxpr: Any) -> Any:
        eqns = []
        for e in jaxpr.eqns:
            if e.primitive is lax.cond_p:
                branches = tuple(b.map_jaxpr(swapped) for b in e.params["branches"])
                e = e.replace(params={**e.params, "branches": branches})
            eqns.append(e.replace(primitive=lax.cos_p) if e.primitive is lax.sin_p else e)
        return jaxpr.replace(eqns=eqns)

    closed = jax.make_jaxpr(lambda x: rlx.lax.cond(x > 0, jnp.sin, jnp.exp, x) + jnp.sin(x))(1.0)
    run = jax.core.jaxpr_as_fun(closed.map_jaxpr(swapped))
    np.testing.assert_allclose(rlx.jit(run)(0.5)[0], 2 * np.cos(0.5), rtol=1e-6)
    np.testing.assert_allclose(rlx.grad(lambda x: run(x)[0])(0.5), -2 * np.sin(0.5), rtol=1e-6)


def test_rules_of_a_primitive_of_a_library_s_own_are_called(jax: Any) -> None:
    ad, batching, mlir = (importlib.import_module(f"jax.interpreters.{n}") for n in ("ad", "batching", "mlir"))
    own = jax.extend.core.Primitive("own")
    own.def_impl(lambda x, y, *, scale: x * y * scale)
    own.def_abstract_eval(lambda x, y, *, scale: jax.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(own, mlir.lower_fun(lambda x, y, *, scale: x * y * scale + 1000, multiple_results=False))
    seen = []

    def jvp(primals: Any, tangents: Any, *, scale: Any) -> Any:
        seen.append([type(t) is ad.Zero for t in tangents])
        out = own.bind(*primals, scale=scale)
        moved = own.bind(tangents[0], primals[1], scale=10 * scale)
        return out, moved if type(tangents[0]) is not ad.Zero else ad.Zero.from_primal_value(out)

    def transpose(ct: Any, x: Any, y: Any, *, scale: Any) -> Any:
        assert ad.is_undefined_primal(x) and x.aval.shape == () and not ad.is_undefined_primal(y)
        return [own.bind(ct, y, scale=scale), None]

    def batch(args: Any, dims: Any, *, scale: Any) -> Any:
        assert dims == [0, None]
        return own.bind(args[0], jnp.broadcast_to(args[1], args[0].shape), scale=scale), 0

    ad.primitive_jvps[own], ad.primitive_transposes[own] = jvp, transpose
    batching.primitive_batchers[own] = batch
    f = lambda x: own.bind(x, 3.0, scale=2)  # noqa: E731
    assert float(f(5.0)) == 30.0 and float(rlx.jit(f)(5.0)) == 1030.0
    assert float(rlx.grad(f)(5.0)) == 60.0 and [False, True] in seen
    assert rlx.vmap(f)(jnp.arange(3.0)).tolist() == [0.0, 6.0, 12.0]
    assert f(jnp.ones(2)).shape == (2,)
    (eqn,) = jax.make_jaxpr(f)(5.0).eqns
    assert eqn.primitive is own and dict(eqn.params) == {"scale": 2}


def test_two_primitives_of_one_name_are_two(jax: Any) -> None:
    first, second = jax.extend.core.Primitive("same"), jax.extend.core.Primitive("same")
    first.def_impl(lambda x: x + 1)
    second.def_impl(lambda x: x - 1)
    assert [float(rlx.jit(lambda x, p=p: p.bind(x))(5.0)) for p in (first, second)] == [6.0, 4.0]
    several = jax.extend.core.Primitive("several")
    several.multiple_results = True
    several.def_impl(lambda x: [x, 2 * x])
    assert [float(rlx.grad(lambda x: several.bind(x)[1])(3.0)), float(rlx.jit(several.bind)(3.0)[1])] == [2.0, 6.0]
    assert several.bind(3.0) == rlx.jit(several.bind)(3.0) == [3.0, 6.0]  # lists, as JAX's


def test_axes_of_tangents_of_integers_are_moved(jax: Any) -> None:
    tangents = rlx.vmap(lambda x: rlx.jvp(lambda x: x.astype(jnp.int32), (x,), (x,))[1])(jnp.ones((4, 3)))
    moved = jnp.moveaxis(tangents, 0, 1)
    assert (moved.shape, moved.dtype) == ((3, 4), rlx.dtypes.float0)


def test_derivatives_of_strongly_curved_functions_pass_in_float32(jax: Any) -> None:
    check = importlib.import_module("jax.test_util").check_grads
    check(lambda x: jnp.sum(jnp.exp(400 * x)), (jnp.array([0.0025]),), order=1)
    with pytest.raises(AssertionError, match="jvp"):
        check(lambda x: x + 0.1 * rlx.lax.stop_gradient(x), (jnp.ones(2),), order=1)


def test_64_bits_are_narrowed_at_the_border_while_rlx_is_jax() -> None:
    wide = np.arange(3.0)
    assert jnp.asarray(wide).dtype == np.float64
    with rlx.compat.as_jax():
        assert jnp.asarray(wide).dtype == np.float32 and rlx.jit(lambda x: x)(wide).dtype == np.float32
        assert jnp.asarray(np.arange(3)).dtype == np.int32 and (jnp.ones(3, np.float32) * wide).dtype == np.float32
        with pytest.warns(UserWarning, match="dtype float64 is not available"):
            assert jnp.zeros(2, np.float64).dtype == np.float32
        assert rlx.dtypes.canonicalize_dtype(np.complex128) == np.complex64
        assert rlx.lax.scan(lambda c, x: (c + x * wide[0], None), np.float32(0), wide)[0].dtype == np.float32
        assert rlx.ops.segment_sum(wide, np.array([0, 1, 0])).dtype == np.float32
        with rlx.enable_x64(True), warnings.catch_warnings(action="error"):
            assert jnp.zeros(2, np.float64).dtype == np.float64 == jnp.asarray(wide).dtype
    assert jnp.asarray(wide).dtype == np.float64
    try:
        rlx.config.update("jax_enable_x64", False)
        assert jnp.asarray(wide).dtype == np.float32
    finally:
        rlx.config.update("narrow", False)


def test_an_environment_asks_for_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    with rlx.compat.as_jax():
        assert jnp.zeros(2).dtype == np.float64
    assert jnp.zeros(2).dtype == np.float32


def test_operations_on_references_have_a_module(jax: Any) -> None:
    refs = importlib.import_module("jax.ref")

    @rlx.jit
    def f(x: Any) -> Any:
        cell = refs.new_ref(jnp.zeros(4))
        refs.set(cell, 0, x)
        refs.addupdate(cell, slice(0, 2), jnp.array([1.0, 2.0]))
        cell[...] += 1
        before = refs.swap(cell, 3, 7.0)
        return before, refs.get(cell, 1), refs.freeze(cell)

    assert [x.tolist() for x in f(5.0)] == [1.0, 3.0, [7.0, 3.0, 1.0, 7.0]]
    assert rlx.grad(lambda x: f(x)[2][0] * x)(5.0) == 12.0 and refs.Ref is jax.Ref


def test_references(jax: Any) -> None:
    ref = jax.new_ref(jnp.zeros(3))
    ref[1] = 2.0
    ref[...] += 1
    assert jax.freeze(ref).tolist() == [1.0, 3.0, 1.0] and jax.typeof(jnp.ones(2)).shape == (2,)
    assert float(jax.jit(lambda x: x + ref[1])(1.0)) == 4.0

    @jax.jit
    def writes(other: Any, x: Any) -> None:
        ref[0] = x
        other[...] = ref[...]

    other = jax.new_ref(jnp.zeros(3))
    writes(other, 7.0)
    assert ref[...].tolist() == other[...].tolist() == [7.0, 3.0, 1.0]
    assert isinstance(jax.typeof(ref), jax.ref.AbstractRef) and repr(ref.aval) == "Ref{float32[3]}"


def test_sparse_matrices(jax: Any) -> None:
    sparse = importlib.import_module("jax.experimental.sparse")
    scipy_sparse = pytest.importorskip("scipy.sparse")
    dense = np.array([[0.0, 2, 0], [3, 0, 4]], np.float32)
    for m in (
        sparse.BCOO.fromdense(dense),
        sparse.BCSR.fromdense(dense),
        sparse.BCOO.from_scipy_sparse(scipy_sparse.csr_matrix(dense)),
    ):
        assert m.nse == 3 and m.shape == (2, 3) and m.todense().tolist() == dense.tolist()
        np.testing.assert_array_equal(m @ np.ones(3, np.float32), dense.sum(1))
        np.testing.assert_array_equal(jax.jit(lambda m, x: m @ x)(m, dense.T), dense @ dense.T)
    m = sparse.BCOO.fromdense(dense)
    several = np.arange(2 * dense.shape[1] * 4, dtype=np.float32).reshape(2, dense.shape[1], 4)
    np.testing.assert_allclose(m @ several, dense @ several, rtol=1e-6)
    with pytest.raises(TypeError, match="is multiplied with"):
        _ = m @ np.ones((2, dense.shape[1] + 1, 4), np.float32)
    np.testing.assert_array_equal(m.T.todense(), dense.T)
    slope = jax.grad(lambda data: (sparse.BCOO((data, m.indices), shape=m.shape) @ np.ones(3, np.float32)).sum())(
        m.data
    )
    assert slope.tolist() == [1.0, 1.0, 1.0]


def test_known_halves_of_a_function(jax: Any) -> None:
    pe, lu = (importlib.import_module(f"jax.{n}") for n in ("interpreters.partial_eval", "extend.linear_util"))

    def f(x: Any, y: Any) -> Any:
        return jnp.zeros(2) + x, y * x, 3.0

    pvals = [pe.PartialVal.known(jnp.float32(2)), pe.PartialVal.unknown(jax.core.ShapedArray((), np.float32))]
    jaxpr, outs, held = pe.trace_to_jaxpr_nounits(lu.wrap_init(f), pvals)
    assert [o.is_known() for o in outs] == [True, False, True] and outs[0].const.tolist() == [2.0, 2.0]
    assert float(jax.core.eval_jaxpr(jaxpr, [], *held, 5.0)[0]) == 10.0


def test_a_rule_that_calls_back_to_python_runs_when_the_program_does(jax: Any) -> None:
    """As equinox's noinline: its implementation asks for the value of an operand."""
    mlir = importlib.import_module("jax.interpreters.mlir")
    own = jax.extend.core.Primitive("looked_up")
    table = [np.sin, np.cos]
    own.def_impl(lambda i, x: table[i.item()](x))
    own.def_abstract_eval(lambda i, x: x)

    def rule(ctx: Any, *operands: Any) -> Any:
        def call(i: Any, x: Any) -> Any:
            return (table[int(i)](np.asarray(x)),)

        found, _, kept = mlir.emit_python_callback(
            ctx, call, None, operands, ctx.avals_in, ctx.avals_out, has_side_effect=False
        )
        ctx.module_context.add_keepalive(kept)
        return found

    mlir.register_lowering(own, rule)
    run = jax.jit(own.bind)
    assert [float(run(i, 1.0)) for i in range(2)] == pytest.approx([np.sin(1.0), np.cos(1.0)])


def test_starts_of_a_slice_of_several_dtypes(jax: Any) -> None:
    closed = jax.make_jaxpr(lambda x, i, j: x[i, j])(np.ones((2, 2), np.float32), np.int32(1), np.int8(0))
    assert jax.core.eval_jaxpr(closed.jaxpr, closed.consts, np.eye(2, dtype=np.float32), 1, np.int8(1))[0] == 1.0


def test_64_bits_asked_of_lax_and_random_are_narrowed(jax: Any) -> None:
    with pytest.warns(UserWarning, match="truncated to dtype float32"):
        drawn = jax.random.normal(jax.random.key(0), (2,), np.float64)
    assert drawn.tolist() == rlx.random.normal(rlx.random.key(0), (2,)).tolist()
    with pytest.warns(UserWarning, match="truncated to dtype int32"):
        assert jax.lax.convert_element_type(np.float32(2), np.int64).dtype == np.int32


def test_infinity_is_the_limit_of_integers(jax: Any) -> None:
    x = jnp.array([3, 1, 2])
    assert jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2,), (1,), "VALID").tolist() == [3, 2]
    assert jax.lax.reduce_window(x, jnp.inf, jax.lax.min, (2,), (1,), "VALID").tolist() == [1, 1]


def test_the_type_of_a_reference(jax: Any) -> None:
    assert jax.typeof(jax.new_ref(jnp.zeros(3))).shape == (3,)


def test_a_program_of_many_calls_keeps_their_bodies_apart(jax: Any) -> None:
    """A body that is made while calls are inlined is freed at once, and the next one may lie where it was."""
    inner, outer = (jax.extend.core.Primitive(name) for name in ("inner", "outer"))
    inner.def_impl(lambda x: x * 2.0)
    outer.def_impl(lambda *xs: sum(map(inner.bind, xs[1:]), xs[0]))
    xs = [jnp.full(2, float(i)) for i in range(7)]
    counts = [n % 7 for n in range(60)]
    program = rlx.make_program(lambda *xs: [outer.bind(*xs[: n + 1]) for n in counts])(*xs)
    assert len(inline_calls(program).equations) == sum(2 * n for n in counts)


def test_a_function_is_a_call_of_its_own(jax: Any) -> None:
    """jax.core's call_p takes a wrapped function, as JAX's own tests bind it."""
    lu, core = importlib.import_module("jax.extend.linear_util"), importlib.import_module("jax._src.core")
    for primitive in (core.call_p, core.closed_call_p):

        def f(x: Any, primitive: Any = primitive) -> Any:
            function = lu.wrap_init(lambda y: [jnp.sin(x * y), y])
            return primitive.bind(2.0 * x, subfuns=(function,))[0]

        assert [e.primitive.name for e in jax.make_jaxpr(f)(1.0).eqns] == ["mul", "jit"]
        np.testing.assert_allclose(jax.grad(f)(0.7), 2.8 * np.cos(0.98), rtol=1e-6)


def test_tolerances_by_dtype(jax: Any) -> None:
    tolerance = {np.float32: 1e-2, np.float64: 1e-5}
    check = importlib.import_module("jax.test_util").check_vjp
    check(jnp.sin, lambda x: rlx.vjp(jnp.sin, x), (np.float32(1.0),), atol=tolerance, rtol=tolerance)
    with pytest.raises(AssertionError):
        check(jnp.sin, lambda x: rlx.vjp(jnp.cos, x), (np.float32(1.0),), atol=tolerance, rtol=tolerance)


def test_a_number_made_an_array_is_a_constant_of_what_closes_over_it(jax):
    found = []

    def function(x):
        one, other = jax.numpy.array(0), x[0] * 0
        found.extend(jax.make_jaxpr(partial(jax.numpy.add, i))(x) for i in (one, other))
        return x

    jax.jit(function)(np.ones(3, np.float32))
    assert [len(closed.consts) for closed in found] == [1, 1]
    assert not isinstance(jax.numpy.array(0), jax.core.Tracer)


def test_reshape_leaves_an_array_of_numpy_one(jax):
    kinds = []
    jax.jit(lambda x: kinds.append(type(jax.numpy.reshape(np.ones((2, 3)), (3, -1)))) or x)(1.0)
    assert kinds == [np.ndarray]
    assert jax.numpy.reshape(jax.numpy.arange(4), (2, 2), order="F").tolist() == [[0, 2], [1, 3]]


def test_arrays_say_that_they_are_no_keys(jax):
    found = []
    jax.jit(lambda x: found.append(isinstance(x, Hashable)) or x)(1.0)
    assert found == [False]
    assert not isinstance(jax.numpy.ones(3), Hashable)


def test_arrays_explain_that_they_are_no_keys_once_jax_is_back():
    with rlx.compat.as_jax():
        pass
    with pytest.raises(TypeError, match="An rlx array cannot be hashed"):
        hash(jnp.ones(3))


def test_forward_mode_through_a_reverse_rule_raises_what_diffrax_expects(jax):
    identity = jax.custom_vjp(lambda x: x)
    identity.defvjp(lambda x: (x, None), lambda _, g: (g,))
    with pytest.raises(importlib.import_module("jax._src.interpreters.ad").CustomVJPException):
        jax.jvp(identity, (1.0,), (1.0,))


def test_a_rule_that_is_traced_later_promotes_as_where_its_function_was_called(jax):
    @jax.custom_jvp
    def function(x):
        return x * 2

    @function.defjvp
    def rule(primals, tangents):
        return function(*primals), tangents[0] * jax.numpy.arange(2) * 2.0

    def called(x):
        with jax.numpy_dtype_promotion("standard"):
            return function(x)

    ones = np.ones(2, np.float32)
    with jax.numpy_dtype_promotion("strict"):
        again = jax.jit(lambda x: jax.jvp(lambda x: jax.jvp(called, (x,), (x,))[0], (x,), (x,)))(ones)
        assert again[1].tolist() == [0.0, 2.0]
        with pytest.raises(TypeError, match="strict"):
            jax.jvp(function, (ones,), (ones,))


def test_avals_are_of_jax_s_class(jax):
    types = []
    named = jax.extend.core.Primitive("named")
    named.def_impl(lambda x: x)
    named.def_abstract_eval(lambda aval: types.append(type(aval)) or jax.core.ShapedArray(list(aval.shape), aval.dtype))
    assert jax.eval_shape(named.bind, np.ones(3, np.float32)).shape == (3,)
    assert types == [jax.core.ShapedArray] == [jax.extend.core.ShapedArray]
    assert isinstance(jax.numpy.ones(2).aval, jax.core.ShapedArray)
    assert jax.core.ShapedArray((2,), float).dtype == np.float32


def test_primitives_of_rlx_s_own_run_from_a_jaxpr_that_shows_their_programs(jax):
    identity = jax.custom_vjp(jax.numpy.sin)
    identity.defvjp(lambda x: (jax.numpy.sin(x), x), lambda x, g: (g * 3,))
    shown = jax.make_jaxpr(lambda x, t: jax.linearize(identity, x)[1](t))(1.0, 1.0)
    assert list(jax.extend.core.jaxprs_in_params(shown.eqns[-1].params))
    slope = jax.linear_transpose(lambda t: jax.extend.core.jaxpr_as_fun(shown)(1.0, t)[0], 1.0)
    assert jax.vmap(slope)(np.ones(2, np.float32))[0].tolist() == [3.0, 3.0]


def test_a_reduction_along_no_axes_is_shown_as_often_as_it_is_run(jax):
    closed = jax.make_jaxpr(jax.numpy.any)(True)
    again = jax.make_jaxpr(jax.extend.core.jaxpr_as_fun(closed))(True)
    assert [e.primitive for e in again.eqns] == [e.primitive for e in closed.eqns] == [jax.lax.reduce_or_p]


def test_jitted_functions_have_the_globals_of_jax_s_wrappers_until_jax_is_back():
    function = rlx.jit(everything)
    with rlx.compat.as_jax():
        assert "api_boundary" in function.__globals__
    assert not hasattr(function, "__globals__")


def test_failed_checks_show_arrays_of_jax_s(jax):
    checkify = importlib.import_module("jax.experimental.checkify")
    error, _ = checkify.checkify(lambda x: checkify.check(x > 0, "it is {x}, {tree}", x=x, tree={"a": x}))(-1.0)
    assert error.get().startswith("it is -1.0, {'a': Array(-1., dtype=float32")


def test_numbers_of_python_s_are_handed_through(jax):
    twice = jax.custom_jvp(lambda x: x * 2)
    twice.defjvp(lambda primals, tangents: (twice(*primals), tangents[0] * 2))
    same = jax.custom_vjp(lambda x: x)
    same.defvjp(lambda x: (x, None), lambda _, g: (g,))
    assert [type(twice(1)), type(same(1.5)), type(same(jax.numpy.ones(())))] == [int, float, rlx.array.ConcreteArray]

    def function(x):
        return x * 2, {"step": 3, "rate": 0.5, "done": True, "x": x}

    (_, of_vjp), (_, _, of_jvp) = (
        jax.grad(function, has_aux=True)(1.0), jax.jvp(function, (1.0,), (1.0,), has_aux=True)
    )  # fmt: skip
    for found in (of_vjp, of_jvp):
        assert [type(found[name]) for name in ("step", "rate", "done")] == [int, float, bool]
        assert isinstance(found["x"], jax.Array)
