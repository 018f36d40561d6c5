"""Programs under the names by which JAX's users read and run a jaxpr."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import core, errors
from rlx import numpy as jnp

TABLE = jnp.arange(6.0).reshape(2, 3)


def with_a_loop(x: Any) -> Any:
    """A call, a loop, and a constant."""
    return rlx.jit(lambda y: rlx.lax.scan(lambda c, a: (c * a + 1, c), y, TABLE)[0])(x) * 2.0


def walk(jaxpr: Any, consts: Any, *args: Any) -> list[Any]:
    """The interpreter that tutorials write."""
    env: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return atom.val if type(atom) is core.Literal else env[atom]

    env.update(zip(jaxpr.invars, args, strict=True))
    env.update(zip(jaxpr.constvars, consts, strict=True))
    for equation in jaxpr.eqns:
        functions, params = equation.primitive.get_bind_params(equation.params)
        found = equation.primitive.bind(*functions, *map(read, equation.invars), **params)
        env.update(zip(equation.outvars, found if equation.primitive.multiple_results else [found], strict=True))
    return list(map(read, jaxpr.outvars))


@pytest.mark.parametrize("run", [walk, core.eval_jaxpr])
@pytest.mark.parametrize("function", [jnp.arctan, with_a_loop, lambda x: jnp.linalg.norm(jnp.exp(x) + TABLE)])
def test_a_jaxpr_is_run_equation_by_equation(run: Callable[..., Any], function: Callable[..., Any]) -> None:
    x = jnp.array([0.5, 1.0, 2.0])
    closed = rlx.make_jaxpr(function)(x)

    def again(x: Any) -> Any:
        return run(closed.jaxpr, closed.consts, x)[0]

    np.testing.assert_allclose(again(x), function(x), rtol=1e-6)
    np.testing.assert_allclose(rlx.jit(again)(x), function(x), rtol=1e-6)
    slope, expected = (rlx.vjp(f, x)[1](jnp.ones_like(function(x)))[0] for f in (again, function))
    np.testing.assert_allclose(slope, expected, rtol=1e-5)
    np.testing.assert_allclose(rlx.vmap(again)(jnp.stack([x, 2 * x])), rlx.vmap(function)(jnp.stack([x, 2 * x])), 1e-5)


def test_what_a_jaxpr_is_asked() -> None:
    closed = rlx.make_jaxpr(lambda x, n: {"sum": jnp.sin(x) + n, "table": TABLE + x})(jnp.ones(3), 2)
    jaxpr = closed.jaxpr
    assert [t.shape for t in closed.in_avals] == [(3,), ()] and [t.shape for t in closed.out_avals] == [(3,), (2, 3)]
    assert "sin" in [e.primitive.name for e in jaxpr.eqns] and "ops.sin(" in str(closed)
    assert len(jaxpr.constvars) == len(closed.consts) == 1 and closed.consts[0] is TABLE
    assert jaxpr.invars[0].aval.dtype == np.float32 and jaxpr.eqns[0].outvars[0].aval.shape == (3,)
    assert not closed.effects and not jaxpr.eqns[0].effects
    printing = rlx.make_jaxpr(lambda x: rlx.debug.print("{}", x))(1.0)
    assert printing.effects and printing.eqns[0].effects
    assert isinstance(closed, core.ClosedJaxpr) and isinstance(jaxpr, core.Jaxpr)
    assert isinstance(jaxpr.eqns[0], core.JaxprEqn) and isinstance(jaxpr.eqns[0].outvars[0], core.Var)
    assert isinstance(jaxpr.invars[0].aval, core.ShapedArray) and not isinstance(3, core.ShapedArray)
    assert jaxpr.eqns[0].replace(params={}).params == {} and len(jaxpr.replace(eqns=[]).eqns) == 0
    assert jaxpr.eqns[0].source_info.file == __file__
    core.check_jaxpr(closed)


def test_options_of_make_jaxpr() -> None:
    program, shape = rlx.make_jaxpr(lambda x, y: (x + y, {"a": x}), static_argnums=1, return_shape=True)(2.0, 3)
    assert shape[1]["a"].dtype == np.float32 and len(program.invars) == 1 and "3.0" in str(program)
    summed = rlx.make_jaxpr(lambda x: x - rlx.lax.psum(x, "i"), axis_env=[("i", 4)])(2.0)
    assert "psum" in [e.primitive.name for e in summed.eqns]
    absent = rlx.make_jaxpr(lambda x: x @ x)(rlx.ShapeDtypeStruct((2, 2), np.float32))
    assert absent.out_avals == [core.ShapedArray((2, 2), np.float32)]
    jitted = rlx.jit(lambda x, n: x * n, static_argnums=1)
    assert len(rlx.make_jaxpr(jitted)(1.0, 2).invars) == 1
    assert jitted.trace(1.0, 2).jaxpr.eqns[0].primitive.name == "multiply"
    lowered = jitted.lower(1.0, 2)
    assert lowered.in_avals[0][0].dtype == lowered.out_avals.dtype == np.float32


def test_a_jaxpr_closes_over_traced_values() -> None:
    def outer(x: Any) -> Any:
        inner = rlx.make_jaxpr(lambda y: y * x)(1.0)
        return core.jaxpr_as_fun(inner)(2.0)[0]

    assert outer(3.0) == 6.0 and rlx.jit(outer)(3.0) == 6.0 and rlx.grad(outer)(3.0) == 2.0
    assert rlx.vmap(outer)(jnp.arange(3.0)).tolist() == [0.0, 2.0, 4.0]


def test_mistakes() -> None:
    closed = rlx.make_jaxpr(lambda x: x + TABLE)(1.0)
    with pytest.raises(errors.TreeMismatchError, match="takes 1 argument"):
        core.eval_jaxpr(closed, closed.consts)
    with pytest.raises(errors.TreeMismatchError, match="has 1 constants"):
        core.eval_jaxpr(closed, [], 1.0)
    with pytest.raises(errors.TreeMismatchError, match="another size"):
        core.mapped_aval(2, 0, core.get_aval(TABLE[0]))
    made = core.Jaxpr(closed.constvars, closed.invars, closed.outvars, closed.eqns)
    assert core.eval_jaxpr(core.ClosedJaxpr(made, closed.consts), closed.consts, 1.0)[0].tolist()[0] == [1.0, 2.0, 3.0]
    aval = core.mapped_aval(2, -2, core.get_aval(TABLE))
    assert aval.shape == (3,) and core.unmapped_aval(2, 1, aval).shape == (3, 2) and core.valid_jaxtype(1)
