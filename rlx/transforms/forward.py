"""Forward mode for the user: jvp, linearize, jacfwd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.array import Array, beside
from rlx.errors import DtypeError, ReferenceUseError, ShardingError, TreeMismatchError
from rlx.ir.program import Program
from rlx.ir.types import TensorType, is_complex, is_inexact
from rlx.ops.families import instantiate
from rlx.ops.variation import variation
from rlx.trace.flat import FlatFunction, as_array, flatten_call, flatten_tangents, zero_tangent
from rlx.trace.interpret import interpret
from rlx.trace.primitive import Zero
from rlx.trace.references import BackwardCell, Threaded
from rlx.trace.tracing import explicit, place_of, trace_program, tracked_axes
from rlx.transforms.programs import jvp_program, jvp_walk, split_program
from rlx.transforms.reductions import NEITHER, Reductions, reductions_of
from rlx.transforms.varying import Axes, varying_axes
from rlx.trees import tree

__all__ = ["jvp", "linearize"]


def check_tangents(name: str, primals: Sequence[TensorType], tangents: Sequence[Array]) -> list[Any]:
    """Tangents that fit their primals; tangents of integers and bools must be zeros and are dropped."""
    checked: list[Any] = []
    for p, t in zip(primals, tangents, strict=True):
        if t.shape != p.shape:
            raise TreeMismatchError(
                f"{name} got a tangent of shape {t.shape} for a primal of shape {p.shape}.",
                "A tangent has the shape and dtype of its primal.",
            )
        if not is_inexact(p.dtype):
            checked.append(Zero(p))
            continue
        if t.dtype != p.dtype and (not t.type.weak or is_complex(t.dtype) > is_complex(p.dtype)):
            raise DtypeError(
                f"{name} got a tangent of dtype {t.dtype} for a primal of dtype {p.dtype}.",
                "A tangent has the shape and dtype of its primal: use tangent.astype(primal.dtype).",
            )
        checked.append(t if t.dtype == p.dtype else as_array(np.asarray(t, p.dtype)))
    return checked


def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """`fun` at `primals` and its directional derivative along `tangents` (forward mode).

    Args:
      fun: a function of arrays, or trees of them.
      primals: tuple of arguments.
      tangents: tuple of the same structure, shapes and dtypes.
      has_aux: `fun` returns (result, auxiliary); the auxiliary data is the third result.

    Returns: (result, tangent of the result), or with has_aux also the auxiliary data. Tangents of
    integers and bools are NumPy zeros of dtype float0. Tangents passed for them must be such zeros, or zeros of the
    primal's own dtype.
    Raises: TreeMismatchError, DtypeError for tangents that do not fit.

    >>> import rlx
    >>> y, dy = rlx.jvp(lambda x: x * x, (3.0,), (1.0,))
    >>> float(y), float(dy)
    (9.0, 6.0)
    """
    for what, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, (tuple, list)):
            raise TreeMismatchError(
                f"jvp takes its {what} as a tuple, got a {type(value).__name__}.",
                "Write rlx.jvp(f, (x,), (dx,)).",
            )
    leaves, treedef = flatten_call(primals, {}, "a primal of jvp")
    tangent_leaves, tangent_tree = flatten_tangents(tangents, "a tangent of jvp", treedef)
    if treedef != tangent_tree:
        raise TreeMismatchError(
            f"jvp got primals of structure {treedef} and tangents of structure {tangent_tree}.",
            "Give one tangent for each array among the primals.",
        )
    flat = FlatFunction(fun, treedef, has_aux)
    moving = check_tangents("jvp", [x.type for x in leaves], tangent_leaves)
    program, captured, cells = _trace_moving(flat, leaves, [not isinstance(t, Zero) for t in moving])
    pairs = [(x, t) for x, t in zip(leaves, moving, strict=True) if not isinstance(t, Zero)]
    values = [*captured, *[x for x, _ in pairs]]
    outs, out_tangents = jvp_walk(program, values, [*[Zero(v.type) for v in captured], *[t for _, t in pairs]])
    _refuse_moving(flat.name, [not isinstance(t, Zero) for t in out_tangents[len(outs) - len(cells.written) :]])
    outs = cells.write(outs)
    result = flat.unflatten(outs)
    found = zip(outs, program.output_types, out_tangents, strict=False)
    moved = [beside(instantiate(t), x) if is_inexact(p.dtype) else zero_tangent(p) for x, p, t in found]
    tangent = tree.unflatten(flat.out_tree, moved[: flat.results])
    return (result, tangent, flat.auxiliary(outs)) if has_aux else (result, tangent)


def _trace_moving(
    flat: FlatFunction, leaves: Sequence[Any], moves: Sequence[bool]
) -> tuple[Program, list[Any], Threaded]:
    """A function's program over the moving leaves, its captured values, and its cells; other leaves are fixed."""

    def of_moving(*values: Any) -> Sequence[Any]:
        rest = iter(values)
        return flat(*[next(rest) if m else x for x, m in zip(leaves, moves, strict=True)])

    cells = Threaded(of_moving)
    arguments = [x for x, m in zip(leaves, moves, strict=True) if m]
    types = [x.type for x in arguments]
    traced = trace_program(cells, types, arguments, flat.name, arguments, own_only=True, differentiated=True)
    return *traced, cells


def _refuse_moving(name: str, moving: Sequence[bool]) -> None:
    """Raise ReferenceUseError if a value written to an outer cell has a derivative, which the cell cannot hold."""
    if any(moving):
        raise ReferenceUseError(
            f"{name} is differentiated, and writes a value with a derivative to a Ref of outside.",
            "Write lax.stop_gradient(value), make the Ref inside of the function, or return the value.",
        )


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """`fun` at `primals`, and the linear function that maps tangents to tangents there.

    Values that do not depend on the tangents are computed once.

    Returns: (result, f_jvp), and the auxiliary data with has_aux.

    >>> import rlx
    >>> y, f_jvp = rlx.linearize(lambda x: x ** 2, 3.0)
    >>> float(y), float(f_jvp(1.0)), float(f_jvp(10.0))
    (9.0, 6.0, 60.0)
    """
    point = LinearizedCall(fun, primals, {}, has_aux)
    f_jvp = Pushforward(point.spec, point.residuals)
    return (point.result, f_jvp, point.auxiliary) if has_aux else (point.result, f_jvp)


@dataclass(frozen=True)
class LinearSpec:
    """A linearized function without its residuals: the linear program, and how to call it."""

    name: str
    linear: Program
    active: tuple[bool, ...]
    kept: tuple[bool, ...]
    argument_types: tuple[TensorType, ...]
    result_types: tuple[TensorType, ...]
    in_tree: tree.TreeDef
    out_tree: tree.TreeDef
    axes: tuple[Any, ...] = ()  # of a mesh, over which copies of one value count once
    reductions: tuple[Reductions, ...] = ()  # where arguments are parts of a sum, or copies; empty if none are
    places: tuple[Any, ...] = ()  # how Explicit axes of a mesh divide the arguments, and their cotangents with them
    flowing: tuple[BackwardCell, ...] = ()  # cells that flow back: first inputs that move, last results
    varying: tuple[Axes | None, ...] = ()  # axes of a mesh over which the arguments vary, over which copies count once

    def push(self, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """Tangents of the results for tangents (or Zeros) of the arguments."""
        moving = [instantiate(t) for t, a in zip(tangents, self.active, strict=True) if a]
        still = [instantiate(Zero(cell.type)) for cell in self.flowing]
        outs = iter(interpret(self.linear, [*residuals, *still, *moving]))
        found = [next(outs) if k else None for k in self.kept][: len(self.result_types)]
        return [
            x if x is not None else instantiate(Zero(t.strong())) if is_inexact(t.dtype) else zero_tangent(t)
            for t, x in zip(self.result_types, found, strict=True)
        ]


class Pushforward:
    """The linear function that `linearize` returns: a tree whose leaves are the values that it needs."""

    def __init__(self, spec: LinearSpec, residuals: Sequence[Any]) -> None:
        self.spec, self.residuals = spec, residuals

    def __call__(self, *tangents: Any) -> Any:
        """The tangent of the result."""
        leaves, treedef = flatten_tangents(tangents, "a tangent of a linearized function", self.spec.in_tree)
        if treedef != self.spec.in_tree:
            raise TreeMismatchError(
                f"A linearized function got tangents of structure {treedef}, expected {self.spec.in_tree}.",
                "Give tangents of the structure of the primals.",
            )
        moving = check_tangents("linearize", self.spec.argument_types, leaves)
        _check_variation(self.spec.varying, leaves)
        return tree.unflatten(self.spec.out_tree, self.spec.push(self.residuals, moving))


tree.register_node(Pushforward, lambda f: (f.residuals, f.spec), lambda spec, residuals: Pushforward(spec, residuals))


def _reductions(leaves: Sequence[Any]) -> tuple[Reductions, ...]:
    found = tuple(map(reductions_of, leaves)) if tracked_axes() else ()
    return () if all(x == NEITHER for x in found) else found


def _check_variation(primals: Sequence[Axes | None], tangents: Sequence[Array]) -> None:
    """Raises ShardingError for a tangent that varies over an axis of a mesh along which its primal is one value."""
    for known, tangent in zip(primals, tangents, strict=False):
        found = varying_axes(tangent)
        if known is not None and found is not None and found - known:
            axes = tuple(sorted(found - known, key=str))
            raise ShardingError(
                f"A linearized function got a tangent that varies along {axes}, but its primal has one value.",
                f"Let the primal vary: rlx.lax.pcast(primal, {axes}, to='varying').",
            )


class LinearizedCall:
    """A function linearized at a point: its result, and the linear program over its residuals."""

    def __init__(
        self,
        fun: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        has_aux: bool = False,
        active: Sequence[bool] | None = None,
    ) -> None:
        self.leaves, self.in_tree = flatten_call(args, kwargs, "a differentiated argument")
        flat = FlatFunction(fun, self.in_tree, has_aux)
        types = [x.type for x in self.leaves]
        self.name = flat.name
        active = [is_inexact(t.dtype) and (active is None or active[i]) for i, t in enumerate(types)]
        program, captured, cells = _trace_moving(flat, self.leaves, active)
        arguments = [x for x, a in zip(self.leaves, active, strict=True) if a]
        flows = [isinstance(cell, BackwardCell) for cell in cells.written]
        moves = [*[False] * (len(captured) - len(flows)), *flows, *[True] * len(arguments)]
        moved, kept = jvp_program(program, moves)
        left = zip(kept[len(kept) - len(flows) :], flows, strict=True)
        _refuse_moving(flat.name, [moves and not flowing for moves, flowing in left])
        n_in, n_out = len(program.inputs), len(program.outputs)
        halves = split_program(
            moved, [i >= n_in for i in range(len(moved.inputs))], [i >= n_out for i in range(len(moved.outputs))]
        )
        values = [*captured, *arguments]
        outs = interpret(halves.known, values)
        self.residuals = [*outs[n_out:], *[values[i] for i in halves.forwarded]]
        results = cells.write(outs[:n_out])
        self.values = results[: flat.results]
        self.out_tree = flat.out_tree
        self.result = flat.unflatten(results)
        self.auxiliary = flat.auxiliary(results) if has_aux else None
        self.spec = LinearSpec(
            flat.name,
            halves.linear,
            tuple(active),
            tuple(kept),
            tuple(types),
            tuple(v.type for v in self.values),
            self.in_tree,
            flat.out_tree,
            tracked_axes(),
            _reductions(self.leaves),
            tuple([explicit(place_of(x)) for x in self.leaves]),
            tuple(cells.flowing),
            tuple(map(varying_axes, self.leaves)) if tracked_axes() else (),
        )
        # over which axes the results vary, then the arguments
        axes = self.spec.axes
        self.marks = [variation(x, axis_name=axes) for x in (*self.values, *self.leaves)] if axes else []
