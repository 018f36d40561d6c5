"""Functions with a custom forward-mode derivative rule: custom_jvp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from rlx.array import Array
from rlx.errors import CustomRuleError, MissingCustomRuleError
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.ops.call import Deferred, custom_jvp_call
from rlx.ops.families import add_values, full_like
from rlx.trace.builder import state
from rlx.trace.flat import (
    FlatFunction,
    as_array,
    call_untraced,
    divided_like,
    flatten_call,
    flatten_local,
    local_tree,
)
from rlx.trace.primitive import type_of
from rlx.trace.references import Threaded
from rlx.trace.tracing import EVERY, close_over, stand_ins, trace_program
from rlx.transforms.checkpoint import checkpoint, checkpoint_policies
from rlx.transforms.custom_reverse import custom_gradient, custom_vjp
from rlx.transforms.custom_rules import (
    CustomRule,
    Parameters,
    Result,
    SymbolicZero,
    bind_arguments,
    fill_tangents,
    moving_types,
    moving_values,
    rule_scope,
    share_captures,
    spread,
)
from rlx.trees import tree

__all__ = ["SymbolicZero", "checkpoint", "checkpoint_policies", "custom_gradient", "custom_jvp", "custom_vjp"]


class custom_jvp(CustomRule[Parameters, Result]):
    """A function with its own forward-mode derivative rule, which serves reverse mode too.

    `defjvp(rule)`: rule(primals, tangents) -> (result, tangent), both tuples over the arguments; with
    nondiff_argnums (or nondiff_argnames) those arguments come first: rule(*nondiff, primals, tangents).
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
    symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule; usable as a decorator. With symbolic_zeros, tangents known to be zero come as
        SymbolicZero, and may be returned so."""
        self.rule, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """One rule(tangent, result, *primals) for each argument."""

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            result = self(*primals)
            parts = [r(t, result, *primals) for r, t in zip(jvps, tangents, strict=True) if r is not None]
            if not parts:
                return result, tree.map(lambda x: full_like(type_of(x).strong(), 0), result)
            total = parts[0]
            for part in parts[1:]:
                total = tree.map(lambda a, b: add_values(as_array(a), as_array(b)), total, part)
            return result, total

        self.rule = rule

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Call the function; differentiation uses the rule."""
        if self.rule is None:
            raise MissingCustomRuleError(
                f"{self.name} is a custom_jvp function without a rule.",
                "Give it one with @f.defjvp.",
            )
        fun: Callable[..., Result] = self.fun
        held, moving, join = self._divide(bind_arguments(fun, args, kwargs))
        if state.builder is None:  # nothing is traced, so nothing is differentiated
            return call_untraced(lambda *xs: fun(*join(xs)), moving, self.name)
        leaves, treedef = flatten_call(moving, {}, f"an argument of {self.name}")
        flat = FlatFunction(lambda *xs: fun(*join(xs)), treedef, name=self.name)
        types = [x.type for x in leaves]
        cells = Threaded(flat)
        program, captured = trace_program(cells, types, leaves, flat.name, leaves, own_only=True, ruled=EVERY)
        cells.refuse_writes(f"{self.name}, which has a rule for its derivative,")
        values: list[Any] = captured
        rule: Program | Deferred = self._deferred_rule(flat, held, leaves, program, captured)
        if not self.symbolic_zeros and not self._within_rule():
            try:
                with self._tracing_rule(rule_scope()):
                    staged, more = self._stage_rule(flat, held, types, leaves, now=True)
                program, rule, values = share_captures(program, captured, staged, more)
            except Exception:  # it is raised when a derivative uses the rule
                values = captured
        outs = custom_jvp_call(*values, *leaves, program=program, rule=rule, captured=len(values))
        return flat.unflatten(outs)

    def _deferred_rule(
        self,
        flat: FlatFunction,
        held: Sequence[Any],
        leaves: Sequence[Array],
        program: Program,
        captured: Sequence[Any],
    ) -> Deferred:
        scope = rule_scope()
        types, known = [x.type for x in leaves], stand_ins(leaves)
        outside = len(moving_types([type_of(v) for v in captured]))

        def make(mask: tuple[bool, ...] | None) -> Program:
            own = None if mask is None else mask[outside:]
            with self._tracing_rule(scope):
                rule, more = self._stage_rule(flat, held, types, known, own)
            ignored = None if mask is None else mask[:outside]
            return share_captures(program, captured, close_over(rule, more), [], ignored)[1]

        return Deferred(make, self.symbolic_zeros)

    def _stage_rule(
        self,
        flat: FlatFunction,
        held: Sequence[Any],
        types: Sequence[TensorType],
        known: Sequence[Any],
        mask: Sequence[bool] | None = None,
        now: bool = False,
    ) -> tuple[Program, list[Any]]:
        """The rule over leaves and moving tangents, only of those in `mask` if it sees symbolic zeros.

        now: its program is used at once: values that do not depend on its arguments are recorded outside.
        """
        name, n = self.name, len(types)
        rule = self.rule
        assert rule is not None
        moving = moving_types(types)
        given = moving if mask is None else [t for t, m in zip(moving, mask, strict=True) if m]

        def run(*leaves: Any) -> list[Any]:
            primals, _ = tree.unflatten(flat.in_tree, leaves[:n])
            filled = fill_tangents(types, spread(leaves[n:], mask, moving), mask is not None)
            tangents, _ = tree.unflatten(flat.in_tree, filled)
            pair = rule(*held, primals, tangents)
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                raise CustomRuleError(
                    f"The custom_jvp rule of {name} must return a pair (result, tangent), got {tree.kind_of(pair)}.",
                    "Return (f(*primals), tangent) from the rule.",
                )
            return _checked_pair(name, flat, pair)

        known = [*known, *[None] * len(given)]
        return trace_program(run, [*types, *given], known, f"{name}_jvp", known, own_only=now, ruled=1)


def _tangents_of(out_tree: tree.TreeDef, tangent: Any) -> list[Any]:
    """The tangents of a result's leaves, which may be None; a different number if the trees differ."""
    with suppress(ValueError, TypeError):  # if a part of the result is None, so is the part of the tangent
        return out_tree.flatten_up_to(tangent)
    return tree.flatten(tangent, is_leaf=lambda x: x is None)[0]


def _checked_pair(name: str, flat: FlatFunction, pair: Sequence[Any]) -> list[Any]:
    """The leaves of a rule's result, then its moving tangents."""
    outs, out_tree = flatten_local(divided_like(pair[0], flat.out_tree))
    out_tangents = _tangents_of(out_tree, local_tree(divided_like(pair[1], flat.out_tree)))
    if out_tree != flat.out_tree or len(out_tangents) != len(outs):
        raise CustomRuleError(
            f"The custom_jvp rule of {name} returned a result of structure {out_tree} and"
            f" {len(out_tangents)} tangents; the function returns {flat.out_tree}.",
            "The result and the tangent have the structure that the function returns.",
        )
    arrays: list[Array] = [as_array(x) for x in outs]
    types = [x.type for x in arrays]
    return [*arrays, *moving_values(types, out_tangents, f"A tangent from the rule of {name}")]
