"""Functions with a custom reverse-mode derivative rule: custom_vjp, custom_gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from rlx.array import Array
from rlx.errors import ConcretizationTypeError, CustomRuleError, MissingCustomRuleError, ReferenceUseError
from rlx.ir.program import Program, Var
from rlx.ir.types import TensorType, is_inexact
from rlx.ops.call import ByValue, Deferred, custom_vjp_call
from rlx.ops.conversion import convert
from rlx.trace.builder import Builder, state
from rlx.trace.flat import (
    FlatFunction,
    as_array,
    call_untraced,
    divided_like,
    flatten_arrays,
    flatten_call,
    flatten_local,
    local_tree,
    named_after,
)
from rlx.trace.interpret import interpret
from rlx.trace.primitive import type_of
from rlx.trace.references import BackwardCell, Cell, Threaded, write_last
from rlx.trace.stacked import as_duals
from rlx.trace.tracing import EVERY, close_over, finish, stand_ins, trace_program
from rlx.transforms.custom_rules import (
    CustomRule,
    Parameters,
    Result,
    RuleScope,
    bind_arguments,
    fill_tangents,
    moving_types,
    moving_values,
    prefix_backward,
    prefix_captures,
    prefix_forward,
    rule_scope,
    spread,
)
from rlx.trees import tree
from rlx.trees.tree import map as tree_map

__all__ = ["CustomVJPPrimal", "custom_gradient", "custom_vjp", "custom_vjp_primal_tree_values"]


@dataclass(frozen=True)
class CustomVJPPrimal:
    """An argument as a fwd rule with symbolic_zeros=True sees it: whether its derivative is wanted.

    >>> import rlx
    >>> square = rlx.custom_vjp(lambda x: x * x)
    >>> square.defvjp(lambda x: (x.value**2, x.value), lambda x, ct: (2 * x * ct,), symbolic_zeros=True)
    >>> rlx.grad(square)(3.0).item()
    6.0
    """

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """The arguments of a fwd rule with symbolic_zeros=True without their marks.

    >>> from rlx.transforms.custom_reverse import CustomVJPPrimal
    >>> custom_vjp_primal_tree_values({"a": CustomVJPPrimal(1.0, True)})
    {'a': 1.0}
    """
    return tree_map(lambda x: x.value, tree, is_leaf=lambda x: isinstance(x, CustomVJPPrimal))


class custom_vjp(CustomRule[Parameters, Result]):
    """A function with its own reverse-mode derivative rule.

    `defvjp(fwd, bwd)`: fwd(*args) -> (result, residuals); bwd(residuals, cotangent) -> a tuple of
    cotangents, one for each argument (None for zero). With nondiff_argnums (or nondiff_argnames), bwd
    receives those arguments first.

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
    symbolic_zeros = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the two halves of the rule.

        Args:
          symbolic_zeros: leaves of fwd's arguments come as records with .value and .perturbed, and
            cotangents known to be zero reach bwd as SymbolicZero.
          optimize_remat: accepted for JAX compatibility.
        """
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Call the function; reverse-mode differentiation uses the rule."""
        name = self.name
        if self.fwd is None or self.bwd is None:
            raise MissingCustomRuleError(
                f"{name} is a custom_vjp function without a rule.", "Give it one with f.defvjp(fwd, bwd)."
            )
        fun: Callable[..., Result] = self.fun
        held, moving, join = self._divide(bind_arguments(fun, args, kwargs))
        if state.builder is None:  # nothing is traced, so nothing is differentiated
            return call_untraced(lambda *xs: fun(*join(xs)), moving, name)
        leaves, treedef = flatten_call(moving, {}, f"an argument of {name}")
        flat = FlatFunction(lambda *xs: fun(*join(xs)), treedef, name=name)
        types = [x.type for x in leaves]
        cells = Threaded(flat)
        program, captured = trace_program(cells, types, leaves, name, leaves, own_only=True, ruled=EVERY)
        cells.refuse_writes(f"{name}, which has a rule for its derivative,")
        rules = _CustomVjpRules(self, flat, join, held, types)
        flowing: list[BackwardCell] = []
        values, ahead, behind = captured, *_deferred(rules, program, captured, leaves, rule_scope())
        if not self.symbolic_zeros and not self._within_rule():
            try:
                with self._tracing_rule(rule_scope()):
                    forward, more, residual_tree = rules.forward(leaves, None, True)
                    backward, third, used = rules.backward_with_cells(forward, residual_tree)
                traced = (_passing(program, len(program.outputs), used), _passing(forward, len(program.outputs), used))
                values, flowing = [*captured, *more, *third], used
                program, ahead, behind = prefix_captures(traced[0], captured, traced[1], more, backward, third)
            except Exception:  # it is raised when a derivative uses the rules
                values = captured
        params = {"program": program, "forward": ahead, "backward": behind, "captured": len(values)}
        outs = custom_vjp_call(*values, *leaves, *[cell.read() for cell in flowing], **params, cells=len(flowing))
        return flat.unflatten(write_last(flowing, outs))


class Kept:
    """A node without leaves among residuals: a Python bool or a Ref, which bwd gets unchanged."""

    __slots__ = ("value",)

    def __init__(self, value: bool | Cell) -> None:
        self.value = value


tree.register_node(Kept, lambda kept: ((), kept.value), lambda value, _: value)


def _kept(x: Any) -> Any:
    return Kept(x) if type(x) is bool or isinstance(x, Cell) else x


def _passing(program: Program, results: int, cells: Sequence[BackwardCell]) -> Program:
    """The program with the cells' values passed through, after its arguments and the first `results` results."""
    passed = [Var(cell.type) for cell in cells]
    outputs = (*program.outputs[:results], *passed, *program.outputs[results:])
    return program.replace(inputs=(*program.inputs, *passed), outputs=outputs)


class _CustomVjpRules:
    """The rules of one call, over flat arrays."""

    def __init__(
        self,
        owner: custom_vjp,
        flat: FlatFunction,
        join: Callable[[Sequence[Any]], list[Any]],
        held: Sequence[Any],
        types: Sequence[TensorType],
    ) -> None:
        self.owner, self.flat, self.join, self.held, self.types = owner, flat, join, held, types

    def forward(
        self,
        known: Sequence[Any],
        mask: Sequence[bool] | None,
        now: bool = False,
    ) -> tuple[Program, list[Any], tree.TreeDef]:
        """fwd's program, its captured values, and the residuals' structure. `mask`: which arguments are perturbed.

        now: its program is used at once, so that the rule may read outer cells, and values that do not depend on
        its arguments are recorded outside.
        """
        name, flat, fwd = self.owner.name, self.flat, self.owner.fwd
        assert fwd is not None
        found: list[tree.TreeDef] = []

        def run(*leaves: Any) -> list[Array]:
            args, _ = tree.unflatten(flat.in_tree, self._marked(leaves, mask))
            pair = fwd(*self.join(args))
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                raise CustomRuleError(
                    f"The fwd rule of {name} must return a pair (result, residuals), got {tree.kind_of(pair)}.",
                    "Return (f(*args), residuals) from fwd.",
                )
            outs, out_tree = flatten_local(divided_like(pair[0], flat.out_tree))
            if out_tree != flat.out_tree:
                raise CustomRuleError(
                    f"The fwd rule of {name} returned a result of structure {out_tree}; the function"
                    f" returns {flat.out_tree}.",
                    "The first element of fwd's result has the structure that the function returns.",
                )
            residuals, residual_tree = flatten_arrays(
                tree.map(lambda x: Kept(x) if type(x) is bool or isinstance(x, Cell) else x, pair[1])
            )
            found.append(residual_tree)
            return [as_array(x) for x in (*outs, *residuals)]

        flat_run = Threaded(run) if now else run
        program, captured = trace_program(flat_run, self.types, known, f"{name}_fwd", known, own_only=now, ruled=1)
        if isinstance(flat_run, Threaded):
            flat_run.refuse_writes(f"The fwd rule of {name}")
        return program, captured, found[0]

    def _marked(self, leaves: Sequence[Any], mask: Sequence[bool] | None) -> Sequence[Any]:
        if mask is None:
            return leaves
        marks = iter(mask)
        return [
            CustomVJPPrimal(x, is_inexact(t.dtype) and next(marks)) for x, t in zip(leaves, self.types, strict=True)
        ]

    def backward(
        self,
        forward: Program,
        residual_tree: tree.TreeDef,
        mask: Sequence[bool] | None,
        known: Sequence[Any] | None = None,
        now: bool = False,
    ) -> tuple[Program, list[Any], Threaded]:
        """bwd's program over residuals and moving cotangents (only of those in `mask` if it sees symbolic zeros), its
        captured values, and its cells.

        `known`: values of residuals and cotangents, or None, with which a rule's `if` may be answered; `now`: as of
        `forward`.
        """
        flat, bwd = self.flat, self.owner.bwd
        assert bwd is not None
        n = flat.results
        out_types, residual_types = forward.output_types[:n], forward.output_types[n:]
        count, moving = len(residual_types), moving_types(out_types)
        given = moving if mask is None else [t for t, m in zip(moving, mask, strict=True) if m]

        def run(*leaves: Any) -> list[Any]:
            residuals = tree.unflatten(residual_tree, leaves[:count])
            filled = fill_tangents(out_types, spread(leaves[count:], mask, moving), mask is not None)
            return self._checked_cotangents(bwd(*self.held, residuals, as_duals(tree.unflatten(flat.out_tree, filled))))

        cells = Threaded(run)
        types = [*residual_types, *given]
        return *trace_program(cells, types, known, f"{self.owner.name}_bwd", known, own_only=now), cells

    def backward_with_cells(
        self, forward: Program, residual_tree: tree.TreeDef
    ) -> tuple[Program, list[Any], list[BackwardCell]]:
        """bwd's program that takes the contents of the cells that it uses as the last cotangents, and returns their new
        contents after its own results; its captured values, and the cells of the caller."""
        program, captured, threaded = self.backward(forward, residual_tree, None, now=True)
        cells = threaded.used
        flowing = [cell.backward for cell in cells if cell.backward is not None]
        if len(flowing) < len(cells):
            raise self.refused_cells()
        if not cells:
            return program, captured, []
        program, captured = threaded.taking(program, captured, cells)
        lead, n = len(captured), len(cells)
        others = [*program.input_types[:lead], *program.input_types[lead + n :]]
        with Builder(program.name) as builder:
            given = [builder.input(t) for t in others]
            held = [builder.input(cell.type) for cell in flowing]
            inside = [convert(x, dtype=c.type.dtype, weak=c.type.weak) for x, c in zip(held, cells, strict=True)]
            outs = interpret(program, [*given[:lead], *inside, *given[lead:]])
            pairs = zip(outs[len(outs) - n :], flowing, strict=True)
            after = [convert(x, dtype=c.type.dtype, weak=False) for x, c in pairs]
            return finish(builder, [*outs[: len(outs) - n], *after]), captured, flowing

    def refused_cells(self) -> ReferenceUseError:
        """The error for a backward rule whose use of cells cannot be threaded."""
        return ReferenceUseError(
            f"The bwd rule of {self.owner.name} uses a Ref, and it cannot here.",
            "Such a Ref contains floats, or integers of at most 32 bits; the rule has no symbolic_zeros, looks at no"
            " values, and does not call the function itself.",
        )

    def _checked_cotangents(self, cts: Any) -> list[Any]:
        """The moving leaves of bwd's result."""
        name, types = self.owner.name, self.types
        arguments, _ = tree.unflatten(self.flat.in_tree, list(range(len(types))))
        arguments = tree.map(lambda x: None if isinstance(x, Cell) else x, arguments)  # has no cotangent
        cts = tuple(cts) if isinstance(cts, list) else cts
        if not isinstance(cts, tuple) or len(cts) != len(arguments):
            raise CustomRuleError(
                f"The bwd rule of {name} must return a tuple with one cotangent for each of its"
                f" {len(arguments)} arguments, got {tree.kind_of(cts)}.",
                "Return (ct,), a tuple of one: with a comma."
                if len(arguments) == 1
                else "Return (ct_x, ct_y, ...), with None for an argument without one.",
            )
        flat_cts: list[Any] = []
        for argument, ct in zip(arguments, cts, strict=True):
            own = flatten_local(argument)[1]
            flat_cts += _leaves_like(name, local_tree(argument), local_tree(divided_like(as_duals(ct), own)))
        return moving_values(types, flat_cts, f"A cotangent from the bwd rule of {name}")


def _leaves_like(name: str, argument: Any, cotangent: Any) -> list[Any]:
    """A cotangent's leaves, None for the leaves of an argument, or of a part of one, whose cotangent is None."""
    count = len(tree.leaves(argument))
    if cotangent is None:
        return [None] * count
    found = tree.flatten(cotangent, is_leaf=lambda x: x is None)[0]
    if len(found) == count:
        return found
    shallow = tree.structure(cotangent)  # None is a node without leaves
    try:
        parts = tree.structure(tree.map(lambda x: x, cotangent, is_leaf=lambda x: x is None), lambda x: x is None)
        return [
            leaf
            for part, ct in zip(parts.flatten_up_to(argument), found, strict=True)
            for leaf in ([None] * len(tree.leaves(part)) if ct is None else [ct])
        ]
    except (ValueError, TypeError):
        raise CustomRuleError(
            f"The bwd rule of {name} returned a cotangent of structure {shallow} for an argument of structure"
            f" {tree.structure(argument)}.",
            "A cotangent has the structure of its argument.",
        ) from None


def _deferred(
    rules: _CustomVjpRules, program: Program, captured: Sequence[Any], leaves: Sequence[Any], scope: RuleScope
) -> tuple[Deferred, Deferred]:
    """Both rules' programs, made when a derivative asks for them: it knows which values are zero."""
    owner, symbolic = rules.owner, rules.owner.symbolic_zeros
    outside = len(moving_types([type_of(v) for v in captured]))
    known = stand_ins(leaves)

    @cache
    def ahead(mask: tuple[bool, ...] | None) -> tuple[Program, tree.TreeDef]:
        with owner._tracing_rule(scope):
            forward, more, residual_tree = rules.forward(known, None if mask is None else mask[outside:])
        return close_over(forward, more), residual_tree

    def forward(mask: tuple[bool, ...] | None) -> Program:
        return prefix_forward(program, captured, ahead(mask)[0], [], [])[1]

    def backward(mask: tuple[bool, ...] | None) -> Program | Deferred | ByValue:
        own, residual_tree = ahead(mask)

        def at(cotangent_mask: tuple[bool, ...] | None, known: Sequence[Any] | None = None) -> Program:
            with owner._tracing_rule(scope):
                behind, third, cells = rules.backward(own, residual_tree, cotangent_mask, known)
            if cells.used:
                raise rules.refused_cells()
            return prefix_backward(close_over(behind, third), captured)

        if symbolic:
            return Deferred(at, True)
        with suppress(ConcretizationTypeError):
            return at(None)
        return ByValue(partial(at, None))

    return Deferred(forward, symbolic), Deferred(backward, symbolic)


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that states its own gradient along with its result.

    Args:
      fun: returns (result, rule); rule maps a cotangent of the result to the cotangent of the argument,
        or to a tuple for several arguments. The rule may use values of `fun`.

    >>> import rlx
    >>> f = rlx.custom_derivatives.custom_gradient(lambda x: (x * x, lambda g: (g * x,)))
    >>> float(f(3.0)), float(rlx.grad(f)(3.0))
    (9.0, 3.0)
    """

    @named_after(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        rules: list[tuple[Any, Program]] = []  # they live as long as the rule, and refer to nothing traced
        count = len(args)
        ruled = custom_vjp(lambda *values: fun(*values, **kwargs)[0])

        def ahead(*values: Any) -> tuple[Any, list[Any]]:
            result, rule = fun(*values, **kwargs)
            leaves, in_tree = flatten_call((result,), {}, "a result")
            flat = FlatFunction(rule, in_tree)
            program, residuals = trace_program(flat, [x.type.strong() for x in leaves], None, "custom_gradient")
            rules[:] = [(flat.out_tree, program)]
            return result, residuals

        def behind(residuals: list[Any], cotangent: Any) -> tuple[Any, ...]:
            ((out_tree, program),) = rules
            found = tree.unflatten(out_tree, interpret(program, [*residuals, *tree.leaves(cotangent)]))
            return tuple(found) if isinstance(found, (tuple, list)) and len(found) == count else (found,)

        ruled.defvjp(ahead, behind)
        return ruled(*args)

    return function
