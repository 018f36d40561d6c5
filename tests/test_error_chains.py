"""A user's own exception comes out of rlx as it was raised: the same object, and nothing of rlx's before it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mistakes import assert_alone

import rlx
import rlx.lax
import rlx.numpy as jnp
from rlx import errors, lax
from rlx.experimental import checkify, jet, ode

PACKAGE = Path(rlx.__file__).parent
X = np.arange(3.0, dtype=np.float32)
Raiser = Callable[..., Any]


class Pair:
    """A node whose children are asked for by a user's function."""

    def __init__(self, raiser: Raiser) -> None:
        self.raiser = raiser


rlx.tree.register_node(Pair, lambda pair: pair.raiser(), lambda data, children: children)

# what calls the user's function, with arguments of every kind on the way
WAYS: dict[str, Callable[[Raiser], Any]] = {
    "jit of an array": lambda f: rlx.jit(f)(jnp.asarray(X)),
    "jit of a NumPy array": lambda f: rlx.jit(f)(X),
    "jit of a number": lambda f: rlx.jit(f)(1.0),
    "jit of a dict of arrays": lambda f: rlx.jit(f)({"w": jnp.asarray(X)}),
    "jit of a dict of NumPy arrays": lambda f: rlx.jit(f)({"w": X}, X),
    "jit of a dict of numbers": lambda f: rlx.jit(f)({"w": 1.0}),
    "jit of nested trees": lambda f: rlx.jit(f)([{"w": (X, jnp.asarray(X), None)}]),
    "jit with keywords": lambda f: rlx.jit(f)(x=X),
    "jit with a static argument": lambda f: rlx.jit(f, static_argnums=1)(X, "text"),
    "jit with a donated argument": lambda f: rlx.jit(f, donate_argnums=0)(jnp.asarray(X)),
    "jit in jit": lambda f: rlx.jit(lambda x: rlx.jit(f)(x))({"w": X}),
    "jit, disabled": lambda f: _disabled(lambda: rlx.jit(f)({"w": X})),
    "a user's node": lambda f: rlx.jit(lambda pair: pair)(Pair(f)),
    "lower": lambda f: rlx.jit(f).lower(X),
    "eval_shape": lambda f: rlx.eval_shape(f, X),
    "make_program": lambda f: rlx.make_program(f)(X),
    "grad": lambda f: rlx.grad(f)(1.0),
    "value_and_grad with aux": lambda f: rlx.value_and_grad(f, has_aux=True)({"w": X}),
    "jit of grad": lambda f: rlx.jit(rlx.grad(f))(1.0),
    "jvp": lambda f: rlx.jvp(f, (X,), (X,)),
    "vjp": lambda f: rlx.vjp(f, X),
    "linearize": lambda f: rlx.linearize(f, X),
    "linear_transpose": lambda f: rlx.linear_transpose(f, X)(X),
    "hessian": lambda f: rlx.hessian(f)(X),
    "jacfwd": lambda f: rlx.jacfwd(f)(X),
    "jacrev": lambda f: rlx.jacrev(f)(X),
    "vmap": lambda f: rlx.vmap(f)(X),
    "vmap of a tree, with a part that is no array": lambda f: rlx.vmap(f, in_axes=(0, None))({"w": X}, "text"),
    "checkpoint": lambda f: rlx.checkpoint(f)(X),
    "grad of checkpoint": lambda f: rlx.grad(lambda x: rlx.checkpoint(f)(x).sum())(X),
    "custom_jvp": lambda f: _custom_jvp(f, lambda p, t: (p[0], t[0]))(1.0),
    "a rule of custom_jvp": lambda f: rlx.grad(_custom_jvp(lambda x: x, f))(1.0),
    "a rule of custom_jvp, in jit": lambda f: rlx.jit(rlx.grad(_custom_jvp(lambda x: x, f)))(1.0),
    "custom_vjp": lambda f: _custom_vjp(f, lambda x: (x, None), lambda r, g: (g,))(1.0),
    "a forward rule of custom_vjp": lambda f: rlx.grad(_custom_vjp(lambda x: x, f, lambda r, g: (g,)))(1.0),
    "a backward rule of custom_vjp": lambda f: rlx.grad(_custom_vjp(lambda x: x, lambda x: (x, None), f))(1.0),
    "a backward rule, in jit": lambda f: rlx.jit(rlx.grad(_custom_vjp(lambda x: x, lambda x: (x, None), f)))(1.0),
    "scan": lambda f: lax.scan(f, 0.0, X),
    "scan in jit": lambda f: rlx.jit(lambda x: lax.scan(f, 0.0, x))(X),
    "scan, disabled": lambda f: _disabled(lambda: lax.scan(f, 0.0, X)),
    "while_loop's condition": lambda f: lax.while_loop(f, lambda x: x, 1.0),
    "while_loop's body": lambda f: lax.while_loop(lambda x: x < 3, f, 1.0),
    "fori_loop": lambda f: lax.fori_loop(0, 3, f, 1.0),
    "fori_loop with a traced bound": lambda f: rlx.jit(lambda n: lax.fori_loop(0, n, f, 1.0))(3),
    "cond": lambda f: lax.cond(True, f, f, 1.0),
    "cond of a traced predicate": lambda f: rlx.jit(lambda p: lax.cond(p, f, f, 1.0))(True),
    "switch": lambda f: lax.switch(0, [f, f], 1.0),
    "map": lambda f: lax.map(f, X),
    "associative_scan": lambda f: lax.associative_scan(f, X),
    "reduce": lambda f: lax.reduce(X, np.float32(0), f, (0,)),
    "custom_root": lambda f: lax.custom_root(f, 1.0, lambda g, x: g(x), lambda g, y: y),
    "pure_callback": lambda f: rlx.pure_callback(f, jnp.asarray(X), X),
    "pure_callback in jit": lambda f: rlx.jit(lambda x: rlx.pure_callback(f, x, x))(X),
    "io_callback in jit": lambda f: rlx.jit(lambda x: rlx.io_callback(f, x, x))(X),
    "debug.callback in jit": lambda f: rlx.jit(lambda x: (rlx.debug.callback(f, x), x)[1])(X),
    "tree.map": lambda f: rlx.tree.map(f, {"a": 1}),
    "tree.map of two trees": lambda f: rlx.tree.map(f, {"a": 1}, {"a": 2}),
    "tree.map_with_path": lambda f: rlx.tree.map_with_path(f, {"a": 1}),
    "tree.reduce": lambda f: rlx.tree.reduce(f, [1, 2]),
    "vectorize": lambda f: jnp.vectorize(f)(X),
    "apply_along_axis": lambda f: jnp.apply_along_axis(f, 0, X),
    "NumPy's apply_along_axis": lambda f: np.apply_along_axis(f, 0, jnp.asarray(X)),
    "piecewise": lambda f: jnp.piecewise(X, [X > 1], [f, f]),
    "fromfunction": lambda f: jnp.fromfunction(f, (2,)),
    "shard_map": lambda f: rlx.shard_map(f, mesh=rlx.make_mesh((1,), ("i",)), in_specs=rlx.P(), out_specs=rlx.P())(X),
    "pmap": lambda f: rlx.pmap(f)(X[None]),
    "checkify": lambda f: checkify.checkify(f)(X),
    "jet": lambda f: jet.jet(f, (X,), ((X,),)),
    "odeint": lambda f: ode.odeint(f, jnp.asarray(X), jnp.asarray(X)),
}
KINDS = (KeyError, AttributeError, TypeError, ValueError, IndexError, OverflowError, MemoryError, NotImplementedError)
KINDS += (errors.ConcretizationTypeError, errors.InputTypeError, errors.ShapeError)


def _disabled(call: Callable[[], Any]) -> Any:
    with rlx.disable_jit():
        return call()


def _custom_jvp(function: Raiser, rule: Raiser) -> Any:
    found = rlx.custom_jvp(function)
    found.defjvp(rule)
    return found


def _custom_vjp(function: Raiser, forward: Raiser, backward: Raiser) -> Any:
    found = rlx.custom_vjp(function)
    found.defvjp(forward, backward)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_users_exception_comes_alone(way: str) -> None:
    """Whatever its class, also one that rlx itself handles on the way."""
    for kind in KINDS:
        mine = kind("mine")

        def raiser(*args: Any, error: Exception = mine, **kwargs: Any) -> Any:
            raise error

        with pytest.raises(kind) as caught:
            WAYS[way](raiser)
        assert caught.value is mine, (way, kind)
        assert_alone(mine)


def test_what_a_user_handles_stays_before() -> None:
    """An error of rlx's in a user's own handler tells of both."""
    with pytest.raises(errors.AxisError) as caught:
        try:
            {}["key"]
        except KeyError:
            jnp.ones(2).sum(axis=3)
    assert isinstance(caught.value.__context__, KeyError) and not caught.value.__suppress_context__


def test_a_key_that_is_not_there() -> None:
    """What stands on the screen: one traceback."""
    script = (
        "import numpy as np, rlx\n"
        "predict = rlx.jit(lambda params, x: x @ params['W'])\n"
        "predict({'w': np.ones((3, 2))}, np.ones((5, 3)))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stderr
    assert shown.count("Traceback") == 1 and shown.rstrip().endswith("KeyError: 'W'"), shown


# ----------------------------------------------------------------- the same, of the source
# what may be called in a handler that goes on: it runs nothing of a user's, and raises nothing
HARMLESS = {"Estimate", "float", "float64", "isinstance", "object", "replace", "rpartition", "str", "tuple", "type"}
HARMLESS |= {"xla_error"}
# run no function of a user's, and look after their own errors; or hand errors to another thread or process as values
OWN = {"backends/cpu/runtime/store.py", "data/workers.py", "placement/lanes.py", "serialization/manager.py"}


def handlers() -> list[tuple[str, ast.ExceptHandler]]:
    """Every except clause of rlx with its place."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        source = path.read_text()
        tree = ast.parse(source if "except" in source else "")
        found += [(f"{name}:{n.lineno}", n) for n in ast.walk(tree) if isinstance(n, ast.ExceptHandler)]
    return found


def _called(node: ast.AST) -> set[str]:
    calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
    return {c.attr if isinstance(c, ast.Attribute) else getattr(c, "id", "?") for c in calls}


def test_no_handler_goes_on_with_the_work() -> None:
    """A handler raises an error of its own, `from` something, or leaves before it calls what may raise.

    What is raised from a handler shows what was handled before it, which is nothing that a user could use.
    """
    wrong = []
    for place, handler in handlers():
        # the command prints what it caught, and no traceback
        if place.split(":")[0] in OWN or place.startswith("cli/"):
            continue
        raises = [n for n in ast.walk(handler) if isinstance(n, ast.Raise)]
        if any(r.exc is not None and r.cause is None for r in raises):
            wrong.append(f"{place} raises without `from`")
        if not raises and not _called(handler) <= HARMLESS:
            wrong.append(f"{place} calls {sorted(_called(handler) - HARMLESS)}")
    assert not wrong, "\n".join(wrong)
