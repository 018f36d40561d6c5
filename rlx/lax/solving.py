"""User-defined solvers with implicit derivatives: custom_linear_solve and custom_root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.errors import ControlFlowTypeError
from rlx.ir.types import TensorType
from rlx.lax.bodies import check_callable, share_captures, trace_flat
from rlx.ops.arithmetic import negative
from rlx.ops.linear_solve import linear_solve
from rlx.trace.flat import as_array, flatten_call
from rlx.trace.interpret import interpret
from rlx.transforms.custom import custom_jvp
from rlx.transforms.forward import jvp, linearize
from rlx.transforms.programs import transpose_program
from rlx.trees import tree

__all__ = ["custom_linear_solve", "custom_root"]

Solver = Callable[[Callable[[Any], Any], Any], Any]


def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Solver,
    transpose_solve: Solver | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """x with matvec(x) = b, computed by `solve`, and differentiated through the equation instead of the solver.

    Args:
      matvec: a linear function, of trees like b.
      b: the right-hand side: an array, or a tree of arrays.
      solve: solve(matvec, b) returns x, of b's structure, shapes and dtypes.
      transpose_solve: transpose_solve(vecmat, b) does the same for the transposed system; needed for
        reverse mode.
      symmetric: matvec is its own transpose, so that `solve` serves both.
      has_aux: solvers return (x, auxiliary), where auxiliary has no derivative.

    Returns: x, or (x, auxiliary). Raises: ControlFlowTypeError if the structures differ.

    >>> import rlx
    >>> f = lambda a: rlx.lax.custom_linear_solve(lambda x: a * x, 6.0, lambda mv, b: b / a, symmetric=True)
    >>> float(f(2.0)), float(rlx.grad(f)(2.0))
    (3.0, -1.5)
    """
    check_callable("custom_linear_solve", matvec=matvec, solve=solve)
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    leaves, in_tree = flatten_call((b,), {}, "the right-hand side of lax.custom_linear_solve")
    types = [x.type.strong() for x in leaves]
    forward = _LinearMap(matvec, in_tree, types)
    flat, program, captured = _stage_solver("solve", solve, forward, has_aux)
    staged = [(program, captured), (forward.program, forward.captured)]
    if transpose_solve is not None:
        backward = forward if symmetric else forward.transposed()
        _, transposed, more = _stage_solver("transpose_solve", transpose_solve, backward, has_aux)
        staged += [(transposed, more), (backward.program, backward.captured)]
    programs, constants = share_captures(staged)
    outs = linear_solve(
        *constants,
        *leaves,
        program=programs[0],
        matvec=programs[1],
        transpose_program=programs[2] if len(programs) > 2 else None,
        vecmat=programs[3] if len(programs) > 2 else None,
        constants=len(constants),
    )
    return flat.unflatten(outs)


class _LinearMap:
    """A linear function of trees, with its program and captured values."""

    def __init__(self, function: Callable[[Any], Any], in_tree: Any, types: Sequence[TensorType]) -> None:
        self.in_tree, self.types = in_tree, list(types)
        flat, self.program, self.captured = trace_flat("custom_linear_solve", function, in_tree, types)
        given = tree.unflatten(in_tree, range(len(self.types)))[0][0]
        _check("custom_linear_solve", "matvec", given, self.types, flat.out_tree, self.program.output_types)

    def transposed(self) -> _LinearMap:
        """The transpose, over the same captured values."""
        count = len(self.captured)
        other = object.__new__(_LinearMap)
        other.in_tree, other.types, other.captured = self.in_tree, self.types, self.captured
        other.program = transpose_program(self.program, [i >= count for i in range(count + len(self.types))])
        return other

    def __call__(self, x: Any) -> Any:
        leaves, treedef = flatten_call((x,), {}, "the argument of a linear function")
        given = tree.unflatten(self.in_tree, range(len(self.types)))[0][0]
        _check(
            "custom_linear_solve", "matvec's argument", given, self.types, tree.structure(x), [v.type for v in leaves]
        )
        return tree.unflatten(tree.structure(x), interpret(self.program, [*self.captured, *leaves]))


def _stage_solver(what: str, solve: Solver, system: _LinearMap, has_aux: bool) -> Any:
    flat, program, captured = trace_flat(
        "custom_linear_solve", lambda right: solve(system, right), system.in_tree, system.types
    )
    found = tree.unflatten(flat.out_tree, range(flat.results))
    if has_aux:
        if not (isinstance(found, tuple) and len(found) == 2):
            raise ControlFlowTypeError(
                f"lax.custom_linear_solve: {what} returned a {type(found).__name__} with has_aux=True.",
                "Return the pair (x, auxiliary).",
            )
        found = found[0]
    given = tree.unflatten(system.in_tree, range(len(system.types)))[0][0]
    count = len(tree.leaves(found))
    _check("custom_linear_solve", what, given, system.types, tree.structure(found), program.output_types[:count])
    return flat, program, captured


def _check(
    name: str, what: str, given: Any, types: Sequence[TensorType], structure: Any, found: Sequence[TensorType]
) -> None:
    """Raise unless a value has the structure, shapes and dtypes of the given one."""
    same = structure == tree.structure(given) and len(found) == len(types)
    if same and all((a.shape, a.dtype) == (b.shape, b.dtype) for a, b in zip(found, types, strict=True)):
        return
    raise ControlFlowTypeError(
        f"lax.{name} was given a tree {tree.structure(given)} of {[repr(t.strong()) for t in types]}, but {what}"
        f" has structure {structure} and types {[repr(t.strong()) for t in found]}.",
        "Functions and solvers must take and return trees of the given structure, shapes and dtypes.",
    )


def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Solver,
    tangent_solve: Solver,
    has_aux: bool = False,
) -> Any:
    """x with f(x) = 0, computed by `solve`, and differentiated through the equation instead of the solver.

    Args:
      f: takes and returns trees like initial_guess.
      initial_guess: the start of the search; it has no influence on derivatives.
      solve: solve(f, initial_guess) returns x.
      tangent_solve: tangent_solve(g, y) returns x with g(x) = y for a linear function g; it is itself
        differentiable and transposable, for instance by lax.custom_linear_solve.
      has_aux: `solve` returns (x, auxiliary), where auxiliary has no derivative.

    Returns: x, or (x, auxiliary), with the derivative of the implicit function theorem.

    >>> import rlx
    >>> def square_root(a):
    ...     newton = lambda f, x: rlx.lax.fori_loop(0, 8, lambda i, x: (x + a / x) / 2, x)
    ...     return rlx.lax.custom_root(lambda x: x * x - a, a, newton, lambda g, y: y / g(1.0))
    >>> round(float(square_root(4.0)), 4), round(float(rlx.grad(square_root)(4.0)), 4)
    (2.0, 0.25)
    """
    check_callable("custom_root", f=f, solve=solve, tangent_solve=tangent_solve)
    leaves, in_tree = flatten_call((initial_guess,), {}, "the initial guess of lax.custom_root")
    types = [x.type.strong() for x in leaves]
    flat, program, captured = trace_flat("custom_root", f, in_tree, types)
    _check("custom_root", "f", initial_guess, types, flat.out_tree, program.output_types)

    def residual(x: Any) -> Any:
        return flat.unflatten(interpret(program, [*captured, *tree.leaves(x)]))

    def tangent(x: Any, change: Any) -> Any:
        return tree.map(negative, tangent_solve(linearize(residual, x)[1], change))

    solved, solver, solver_held = trace_flat("custom_root", lambda x: solve(residual, x), in_tree, types)
    found = tree.unflatten(solved.out_tree, range(solved.results))
    root_tree = tree.structure(found[0] if has_aux else found)
    _check("custom_root", "solve", initial_guess, types, root_tree, solver.output_types[: len(types)])
    pair_tree = tree.structure(((initial_guess, initial_guess), {}))
    _, pushed, pushed_held = trace_flat("custom_root", tangent, pair_tree, [*types, *types])

    @custom_jvp
    def root(guess: Any, values: Any) -> Any:
        """The leaves of the solver's result."""
        return interpret(solver, [*values[1], *guess])

    def rule(primals: Any, tangents: Any) -> Any:
        guess, values = primals
        outs = root(guess, values)
        x = outs[: len(types)]
        _, change = jvp(lambda *held: interpret(program, [*held, *x]), tuple(values[0]), tuple(tangents[1][0]))
        moved = interpret(pushed, [*values[2], *x, *change])
        return outs, [*moved, *[None] * (len(outs) - len(moved))]

    root.defjvp(rule)
    held = (list(captured), list(solver_held), list(pushed_held))
    return solved.unflatten(root([as_array(x) for x in leaves], held))
