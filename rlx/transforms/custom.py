"""Functions with their own derivative rules: custom_jvp, custom_vjp; and checkpoint."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache, partial, update_wrapper, wraps
from typing import Any, cast

from rlx import tree
from rlx.array import Array
from rlx.errors import CustomRuleError
from rlx.ir.program import Program, Var
from rlx.ir.types import TensorType, is_inexact
from rlx.ops.arithmetic import convert
from rlx.ops.call import Deferred, custom_jvp_call, custom_vjp_call
from rlx.ops.call import checkpoint as checkpoint_call
from rlx.ops.families import full_like
from rlx.trace.builder import Builder, state
from rlx.trace.flat import FlatFunction, as_array, flatten_call, function_name
from rlx.trace.interpret import interpret
from rlx.trace.primitive import type_of
from rlx.trace.stage import close_over, finish, known_value, stage

__all__ = ["checkpoint", "checkpoint_policies", "custom_jvp", "custom_vjp"]


def bind_arguments(fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments by position, keywords and defaults resolved."""
    if not kwargs:
        try:
            bound = inspect.signature(fun).bind(*args)
        except (TypeError, ValueError):
            return tuple(args)
    else:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    bound.apply_defaults()
    return (*bound.args, *bound.kwargs.values())


class _CustomRule:
    """What both decorators share: nondiff_argnums, flattening, the program of the function."""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        update_wrapper(cast(Any, self), fun)
        self.fun = fun
        self.name = function_name(fun)
        self.nondiff_argnums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        self._thread = threading.local()

    def _within_rule(self) -> bool:
        """Whether this thread is tracing a rule of this function, which may call the function."""
        return getattr(self._thread, "tracing", False)

    @contextmanager
    def _tracing_rule(self, axes: Any) -> Generator[None]:
        before = self._within_rule(), state.axes
        self._thread.tracing, state.axes = True, axes
        try:
            yield
        finally:
            self._thread.tracing, state.axes = before

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Methods bind as functions do."""
        return self if instance is None else partial(cast(Any, self), instance)

    def _divide(self, args: tuple[Any, ...]) -> tuple[list[Any], list[Any], Callable[[Sequence[Any]], list[Any]]]:
        held = {n % len(args): args[n] for n in self.nondiff_argnums}
        moving = [a for i, a in enumerate(args) if i not in held]

        def join(values: Sequence[Any]) -> list[Any]:
            rest = iter(values)
            return [held[i] if i in held else next(rest) for i in range(len(args))]

        return [held[n % len(args)] for n in self.nondiff_argnums], moving, join


def _moving(types: Sequence[TensorType]) -> list[TensorType]:
    return [t.strong() for t in types if is_inexact(t.dtype)]


def _fill(types: Sequence[TensorType], moving: Sequence[Any]) -> list[Any]:
    """Tangents of every leaf: those given for float leaves, zeros of its own dtype for others."""
    found = iter(moving)
    return [next(found) if is_inexact(t.dtype) else full_like(t.strong(), 0) for t in types]


def _drop_integers(types: Sequence[TensorType], values: Sequence[Any], what: str) -> list[Any]:
    out = []
    for t, v in zip(types, values, strict=True):
        if not is_inexact(t.dtype):
            continue
        if v is None:
            v = full_like(t.strong(), 0)
        v = as_array(v, what)
        if v.shape != t.shape:
            raise CustomRuleError(
                f"{what} has shape {v.shape}, its value has shape {t.shape}.",
                "A tangent or cotangent has the shape and dtype of the value it belongs to.",
            )
        out.append(v if v.dtype == t.dtype else convert(v, dtype=t.dtype, weak=False))
    return out


class custom_jvp(_CustomRule):
    """A function with its own forward-mode derivative rule, which serves reverse mode too.

    `defjvp(rule)`: rule(primals, tangents) -> (result, tangent), both tuples over the arguments; with
    nondiff_argnums those arguments come first: rule(*nondiff, primals, tangents).
    `defjvps(*rules)`: one rule(tangent, result, *primals) for each argument, or None.

    >>> import rlx
    >>> @rlx.custom_jvp
    ... def f(x):
    ...     return x * x
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     (x,), (dx,) = primals, tangents
    ...     return f(x), 100.0 * dx
    >>> float(rlx.grad(f)(3.0))
    100.0
    """

    rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule; usable as a decorator."""
        self.rule = rule
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """One rule(tangent, result, *primals) for each argument."""

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            result = self(*primals)
            parts = [r(t, result, *primals) for r, t in zip(rules, tangents, strict=True) if r is not None]
            if not parts:
                return result, tree.map(lambda x: full_like(type_of(x).strong(), 0), result)
            total = parts[0]
            for part in parts[1:]:
                total = tree.map(lambda a, b: a + b, total, part)
            return result, total

        self.rule = rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; differentiation uses the rule."""
        if self.rule is None:
            raise CustomRuleError(
                f"{self.name} is a custom_jvp function without a rule.",
                "Give it one with @f.defjvp.",
            )
        args = bind_arguments(self.fun, args, kwargs)
        held, moving, join = self._divide(args)
        leaves, treedef = flatten_call(moving, {}, f"an argument of {self.name}")
        flat = FlatFunction(lambda *xs: self.fun(*join(xs)), treedef, name=self.name)
        types, known = [x.type for x in leaves], [known_value(x) for x in leaves]
        program, captured = stage(flat, types, known, flat.name)
        if self._within_rule():
            values: list[Any] = captured
            rule: Program | Deferred = self._deferred_rule(flat, held, types, program, captured)
        else:
            with self._tracing_rule(state.axes):
                staged, more = self._stage_rule(flat, held, types, known)
            program, rule, values = _share_captures(program, captured, staged, more)
        outs = custom_jvp_call(*values, *leaves, program=program, rule=rule)
        return flat.unflatten(outs)

    def _deferred_rule(
        self,
        flat: FlatFunction,
        held: Sequence[Any],
        types: Sequence[TensorType],
        program: Program,
        captured: Sequence[Any],
    ) -> Deferred:
        axes = state.axes

        def make() -> Program:
            with self._tracing_rule(axes):
                rule, more = self._stage_rule(flat, held, types, [None] * len(types))
            return _share_captures(program, captured, close_over(rule, more), [])[1]

        return Deferred(make)

    def _stage_rule(
        self, flat: FlatFunction, held: Sequence[Any], types: Sequence[TensorType], known: Sequence[Any]
    ) -> tuple[Program, list[Any]]:
        name, n = self.name, len(types)
        rule = self.rule
        assert rule is not None

        def run(*leaves: Any) -> list[Any]:
            primals, _ = tree.unflatten(flat.in_tree, leaves[:n])
            tangents, _ = tree.unflatten(flat.in_tree, _fill(types, leaves[n:]))
            pair = rule(*held, primals, tangents)
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                raise CustomRuleError(
                    f"The custom_jvp rule of {name} must return a pair (result, tangent), got {type(pair).__name__}.",
                    "Return (f(*primals), tangent) from the rule.",
                )
            outs, out_tree = tree.flatten(pair[0])
            out_tangents = tree.flatten(pair[1], is_leaf=lambda x: x is None)[0]
            if out_tree != flat.out_tree or len(out_tangents) != len(outs):
                raise CustomRuleError(
                    f"The custom_jvp rule of {name} returned a result of structure {out_tree} and"
                    f" {len(out_tangents)} tangents; the function returns {flat.out_tree}.",
                    "The result and the tangent have the structure that the function returns.",
                )
            outs = [as_array(x) for x in outs]
            out_types = [x.type for x in outs]
            return [*outs, *_drop_integers(out_types, out_tangents, f"A tangent from the rule of {name}")]

        return stage(run, [*types, *_moving(types)], [*known, *[None] * len(_moving(types))], f"{name}_jvp")


def _share_captures(
    program: Program, captured: Sequence[Any], rule: Program, more: Sequence[Any]
) -> tuple[Program, Program, list[Any]]:
    """Give both programs the same leading inputs: what either of them closed over.

    The rule also gets (ignored) tangents for the captured floats: their derivative through the rule
    is not the rule's to state.
    """
    values = [*captured, *more]
    a, b = len(captured), len(more)
    before = [Var(type_of(v)) for v in more]
    after = [Var(type_of(v)) for v in captured]
    tangents = [Var(t) for t in _moving([type_of(v) for v in values])]
    n = len(program.inputs) - a
    program = program.replace(inputs=(*program.inputs[:a], *before, *program.inputs[a:]))
    rule = rule.replace(inputs=(*after, *rule.inputs[:b], *rule.inputs[b : b + n], *tangents, *rule.inputs[b + n :]))
    return program, rule, values


class custom_vjp(_CustomRule):
    """A function with its own reverse-mode derivative rule.

    `defvjp(fwd, bwd)`: fwd(*args) -> (result, residuals); bwd(residuals, cotangent) -> a tuple of
    cotangents, one for each argument (None for zero). With nondiff_argnums, bwd receives those
    arguments first.

    >>> import rlx
    >>> @rlx.custom_vjp
    ... def f(x, y):
    ...     return x * y
    >>> f.defvjp(lambda x, y: (x * y, (x, y)), lambda res, ct: (ct * res[1], -1.0 * ct))
    >>> [float(g) for g in rlx.grad(f, argnums=(0, 1))(2.0, 3.0)]
    [3.0, -1.0]
    """

    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the two halves of the rule."""
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; reverse-mode differentiation uses the rule."""
        name = self.name
        if self.fwd is None or self.bwd is None:
            raise CustomRuleError(
                f"{name} is a custom_vjp function without a rule.", "Give it one with f.defvjp(fwd, bwd)."
            )
        args = bind_arguments(self.fun, args, kwargs)
        held, moving, join = self._divide(args)
        leaves, treedef = flatten_call(moving, {}, f"an argument of {name}")
        flat = FlatFunction(lambda *xs: self.fun(*join(xs)), treedef, name=name)
        types, known = [x.type for x in leaves], [known_value(x) for x in leaves]
        program, captured = stage(flat, types, known, name)
        if self._within_rule():
            rules = self._deferred_rules(flat, join, held, types, program, captured)
            outs = custom_vjp_call(*captured, *leaves, program=program, forward=rules[0], backward=rules[1])
            return flat.unflatten(outs)
        with self._tracing_rule(state.axes):
            ahead = _ForwardRule(self, flat, join)
            forward, more = stage(ahead, types, known, f"{name}_fwd")
            backward, third = self._stage_backward(flat, ahead, held, types, forward)
        values = [*captured, *more, *third]
        program, forward, backward = _prefix_captures(program, captured, forward, more, backward, third)
        outs = custom_vjp_call(*values, *leaves, program=program, forward=forward, backward=backward)
        return flat.unflatten(outs)

    def _deferred_rules(
        self,
        flat: FlatFunction,
        join: Callable[[Sequence[Any]], list[Any]],
        held: Sequence[Any],
        types: Sequence[TensorType],
        program: Program,
        captured: Sequence[Any],
    ) -> tuple[Deferred, Deferred]:
        axes = state.axes

        @cache
        def make() -> tuple[Program, Program]:
            with self._tracing_rule(axes):
                ahead = _ForwardRule(self, flat, join)
                forward, more = stage(ahead, types, None, f"{self.name}_fwd")
                backward, third = self._stage_backward(flat, ahead, held, types, forward)
            closed = close_over(forward, more), close_over(backward, third)
            return _prefix_captures(program, captured, closed[0], [], closed[1], [])[1:]

        return Deferred(lambda: make()[0]), Deferred(lambda: make()[1])

    def _stage_backward(
        self,
        flat: FlatFunction,
        ahead: _ForwardRule,
        held: Sequence[Any],
        types: Sequence[TensorType],
        forward: Program,
    ) -> tuple[Program, list[Any]]:
        name, bwd = self.name, self.bwd
        assert bwd is not None
        n = flat.results
        out_types, residual_types = forward.output_types[:n], forward.output_types[n:]

        def run(*leaves: Any) -> list[Any]:
            residuals = tree.unflatten(ahead.residual_tree, leaves[: len(residual_types)])
            cotangent = tree.unflatten(flat.out_tree, _fill(out_types, leaves[len(residual_types) :]))
            cts = bwd(*held, residuals, cotangent)
            arguments, _ = tree.unflatten(flat.in_tree, list(range(len(types))))
            cts = tuple(cts) if isinstance(cts, list) else cts
            if not isinstance(cts, tuple) or len(cts) != len(arguments):
                raise CustomRuleError(
                    f"The bwd rule of {name} must return a tuple with one cotangent for each of its"
                    f" {len(arguments)} arguments, got {type(cts).__name__}"
                    + (f" of length {len(cts)}." if isinstance(cts, tuple) else "."),
                    "Return (ct_x, ct_y, ...), with None for an argument without one.",
                )
            flat_cts: list[Any] = []
            for argument, ct in zip(arguments, cts, strict=True):
                count = len(tree.leaves(argument))
                found = [None] * count if ct is None else tree.flatten(ct, is_leaf=lambda x: x is None)[0]
                if len(found) != count:
                    raise CustomRuleError(
                        f"The bwd rule of {name} returned a cotangent with {len(found)} leaves for an"
                        f" argument with {count}.",
                        "A cotangent has the structure of its argument.",
                    )
                flat_cts += found
            return _drop_integers(types, flat_cts, f"A cotangent from the bwd rule of {name}")

        return stage(run, [*[t for t in residual_types], *_moving(out_types)], None, f"{name}_bwd")


class _ForwardRule:
    """The flat form of a fwd rule; remembers the residuals' structure."""

    def __init__(self, owner: custom_vjp, flat: FlatFunction, join: Callable[[Sequence[Any]], list[Any]]) -> None:
        self.owner, self.flat, self.join = owner, flat, join
        self.residual_tree: Any = None

    def __call__(self, *leaves: Any) -> list[Array]:
        args, _ = tree.unflatten(self.flat.in_tree, leaves)
        fwd = self.owner.fwd
        assert fwd is not None
        pair = fwd(*self.join(args))
        name = self.owner.name
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise CustomRuleError(
                f"The fwd rule of {name} must return a pair (result, residuals), got {type(pair).__name__}.",
                "Return (f(*args), residuals) from fwd.",
            )
        outs, out_tree = tree.flatten(pair[0])
        if out_tree != self.flat.out_tree:
            raise CustomRuleError(
                f"The fwd rule of {name} returned a result of structure {out_tree}; the function"
                f" returns {self.flat.out_tree}.",
                "The first element of fwd's result has the structure that the function returns.",
            )
        residuals, self.residual_tree = tree.flatten(pair[1])
        return [as_array(x) for x in (*outs, *residuals)]


def _prefix_captures(
    program: Program,
    captured: Sequence[Any],
    forward: Program,
    more: Sequence[Any],
    backward: Program,
    third: Sequence[Any],
) -> tuple[Program, Program, Program]:
    """Give the programs common leading inputs; the backward rule's captures travel as residuals."""
    a, b = len(captured), len(more)

    def fresh(values: Sequence[Any]) -> list[Var]:
        return [Var(type_of(v)) for v in values]

    n_out = len(program.outputs)
    program = program.replace(inputs=(*program.inputs[:a], *fresh(more), *fresh(third), *program.inputs[a:]))
    carried = fresh(third)
    forward = forward.replace(
        inputs=(*fresh(captured), *forward.inputs[:b], *carried, *forward.inputs[b:]),
        outputs=(*forward.outputs[:n_out], *carried, *forward.outputs[n_out:]),
    )
    # captured floats get no cotangent through the rule: zeros
    types = _moving([type_of(v) for v in (*captured, *more, *third)])
    if types:
        with Builder(backward.name) as builder:
            inputs = [builder.input(t) for t in backward.input_types]
            backward = finish(builder, [*[full_like(t, 0) for t in types], *interpret(backward, inputs)])
    return program, forward, backward


def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | Sequence[int] = (),
    concrete: bool = False,
) -> Callable[..., Any]:
    """`fun` with its intermediate values computed again in the backward pass instead of kept.

    Args:
      policy: a function of (primitive, *types, **params) that says which values are kept after all;
        see `checkpoint_policies`.
      static_argnums: arguments that are not arrays.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> float(rlx.grad(rlx.checkpoint(lambda x: jnp.sin(jnp.sin(x))))(0.0))
    1.0
    """
    if fun is None:
        return lambda f: checkpoint(f, policy=policy, static_argnums=static_argnums)
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @wraps(fun, updated=())
    def function(*args: Any, **kwargs: Any) -> Any:
        held = {n % len(args): args[n] for n in static}
        moving = [a for i, a in enumerate(args) if i not in held]

        def call(*values: Any, **keywords: Any) -> Any:
            rest = iter(values)
            return fun(*[held[i] if i in held else next(rest) for i in range(len(args))], **keywords)

        leaves, treedef = flatten_call(moving, kwargs, "an argument of a checkpointed function")
        flat = FlatFunction(call, treedef, name=getattr(fun, "__name__", "checkpoint"))
        program, captured = stage(flat, [x.type for x in leaves], [known_value(x) for x in leaves], flat.name)
        return flat.unflatten(checkpoint_call(*captured, *leaves, program=program, policy=policy))

    return function


class checkpoint_policies:
    """Policies for `checkpoint`: which values are kept for the backward pass."""

    @staticmethod
    def everything_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
        """Keep every value."""
        return True

    @staticmethod
    def nothing_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
        """Keep nothing but the arguments."""
        return False

    @staticmethod
    def dots_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
        """Keep the results of matrix products and convolutions."""
        return primitive.name in ("dot_general", "conv_general_dilated")

    @staticmethod
    def dots_with_no_batch_dims_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
        """Keep the results of matrix products without batch dimensions."""
        if primitive.name != "dot_general":
            return False
        _, (left, right) = params["dimension_numbers"]
        return not left and not right

    checkpoint_dots = dots_saveable
    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable
