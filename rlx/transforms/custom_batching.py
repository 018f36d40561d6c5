"""Functions with a custom batching rule: custom_vmap, sequential_vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.array import Array
from rlx.errors import CustomRuleError, MissingCustomRuleError
from rlx.ir.program import Program
from rlx.ops.custom_batch import custom_vmap_call, result_types
from rlx.ops.scan import scan
from rlx.trace.flat import FlatFunction, as_array, flatten_call
from rlx.trace.primitive import type_of
from rlx.trace.tracing import trace_program
from rlx.transforms.custom_rules import CustomRule, bind_arguments
from rlx.trees import tree

__all__ = ["custom_vmap", "sequential_vmap"]


class custom_vmap(CustomRule):
    """A function with its own rule for vmap.

    `def_vmap(rule)`: rule(axis_size, in_batched, *args) -> (result, out_batched). in_batched is a list
    with, for each argument, a bool or a tree of bools: which leaves have a batch axis, in front;
    out_batched says the same about the result.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> @rlx.custom_batching.custom_vmap
    ... def f(x, y):
    ...     return x + y
    >>> @f.def_vmap
    ... def f_rule(axis_size, in_batched, x, y):
    ...     return x * y, True
    >>> rlx.vmap(f)(jnp.arange(3.0), jnp.arange(3.0)).tolist()
    [0.0, 1.0, 4.0]
    """

    vmap_rule: Callable[..., Any] | None = None

    def __init__(self, fun: Callable[..., Any]) -> None:
        super().__init__(fun)

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; usable as a decorator."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; vmap uses the rule."""
        if self.vmap_rule is None:
            raise MissingCustomRuleError(
                f"{self.name} is a custom_vmap function without a rule.", "Give it one with @f.def_vmap."
            )
        arguments = bind_arguments(self.fun, args, kwargs)
        leaves, in_tree = flatten_call(arguments, {}, f"an argument of {self.name}")
        flat = FlatFunction(self.fun, in_tree, name=self.name)
        types = [x.type for x in leaves]
        program, captured = trace_program(flat, types, leaves, self.name, leaves)
        rule = _UserRule(self.name, self.vmap_rule, flat, program, len(captured))
        return flat.unflatten(custom_vmap_call(*captured, *leaves, program=program, rule=rule))


class _UserRule:
    """A user's rule over flat arrays, with checks of its results."""

    def __init__(
        self, name: str, rule: Callable[..., Any], flat: FlatFunction, program: Program, captured: int
    ) -> None:
        self.name, self.rule, self.flat, self.program, self.captured = name, rule, flat, program, captured

    def __call__(
        self, size: int, batched: Sequence[bool], operands: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[bool]]:
        if any(batched[: self.captured]):
            raise CustomRuleError(
                f"vmap of {self.name} maps a value that the custom_vmap function closes over.",
                "Pass it as an argument, so that the rule sees it.",
            )
        args, _ = tree.unflatten(self.flat.in_tree, operands[self.captured :])
        marks, _ = tree.unflatten(self.flat.in_tree, batched[self.captured :])
        pair = self.rule(size, list(marks), *args)
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise CustomRuleError(
                f"The vmap rule of {self.name} must return a pair (result, out_batched), got {tree.kind_of(pair)}.",
                "Return the result, and which of its leaves are batched.",
            )
        outs, out_tree = tree.flatten(pair[0])
        marked, mark_tree = tree.flatten(pair[1])
        if out_tree != self.flat.out_tree or mark_tree != out_tree:
            raise CustomRuleError(
                f"The vmap rule of {self.name} returned a result of structure {out_tree} and marks of structure"
                f" {mark_tree}; the function returns {self.flat.out_tree}.",
                "Result and marks have the structure that the function returns.",
            )
        arrays: list[Array] = [as_array(x, f"the result of the vmap rule of {self.name}") for x in outs]
        for array, promised in zip(arrays, result_types(self.program, size, marked), strict=True):
            if array.shape != promised.shape:
                raise CustomRuleError(
                    f"The vmap rule of {self.name} returned {array.type.strong()!r} instead of {promised.strong()!r}.",
                    "Results have the function's shapes, batched ones with the axis in front.",
                )
        return arrays, [bool(m) for m in marked]


def sequential_vmap(f: Callable[..., Any]) -> custom_vmap:
    """A function that vmap runs for one element after another, in a loop.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> f = rlx.custom_batching.sequential_vmap(lambda x: x + 1.0)
    >>> rlx.vmap(f)(jnp.arange(3.0)).tolist()
    [1.0, 2.0, 3.0]
    """
    mapped = custom_vmap(f)

    def rule(axis_size: int, in_batched: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        leaves, in_tree = flatten_call(args, {})
        marks = tree.leaves(list(in_batched))
        flat = FlatFunction(f, in_tree)
        types = [type_of(x) for x in leaves]
        elements = [t.update(shape=t.shape[1:]) if m else t for t, m in zip(types, marks, strict=True)]
        program, captured = trace_program(flat, elements, None, mapped.name)
        first = len(captured)
        order = [i for i, m in enumerate(marks) if not m] + [i for i, m in enumerate(marks) if m]
        constants = first + marks.count(False)
        body = program.replace(inputs=(*program.inputs[:first], *(program.inputs[first + i] for i in order)))
        outs = scan(
            *captured,
            *(leaves[i] for i in order),
            body=body,
            constants=constants,
            carries=0,
            length=axis_size,
            reverse=False,
        )
        result = flat.unflatten(outs)
        return result, tree.map(lambda _: True, result)

    mapped.def_vmap(rule)
    return mapped
