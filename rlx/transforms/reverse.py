"""Reverse mode for the user: vjp, grad, value_and_grad, linear_transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, ParamSpec, TypeVar

import numpy as np

from rlx.array import Array, ConcreteArray, beside, is_concrete, memory_of
from rlx.errors import (
    DtypeError,
    InputTypeError,
    OptionError,
    ScalarOutputError,
    ShapeError,
    ShardingError,
    TreeMismatchError,
    UnsupportedError,
)
from rlx.ir.types import TensorType, is_complex, is_inexact, is_integer
from rlx.ops.arithmetic import add, convert
from rlx.ops.families import full_like, instantiate
from rlx.ops.variation import once, pvary, recast, total
from rlx.trace.flat import (
    FlatFunction,
    as_array,
    divided_like,
    flatten_call,
    flatten_local,
    is_float0,
    named_after,
    tangent_array,
    zero_tangent,
)
from rlx.trace.primitive import Linear, Zero, type_of
from rlx.trace.references import Cell, cells_in
from rlx.trace.stacked import as_duals, is_stacked, seed_of
from rlx.trace.tracing import lying_so, trace_program
from rlx.transforms.ad import DidntWant, DontWant, GradRef
from rlx.transforms.forward import LinearizedCall, LinearSpec
from rlx.transforms.programs import backward_walk
from rlx.transforms.reductions import NEITHER, Reductions, reductions_of
from rlx.transforms.varying import Axes
from rlx.trees import tree

__all__ = ["grad", "linear_transpose", "value_and_grad", "vjp"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _pull(
    spec: LinearSpec, residuals: Sequence[Any], cotangents: Sequence[Any], marks: Sequence[Any] = ()
) -> list[Any]:
    """Cotangents of all argument leaves; zeros of dtype float0 for integers.

    `marks` are the axes of a mesh over which results and arguments vary. Over other axes, members have copies of one
    result, which counts once, and of one argument, whose cotangent is the sum over members.
    """
    cotangents = _by_marks(once, spec, cotangents, marks)
    given = [ct for ct, k in zip(cotangents, spec.kept, strict=False) if k]
    others = spec.linear.output_types[len(given) : len(spec.linear.outputs) - len(spec.flowing)]
    given += [Zero(t) for t in others]  # of auxiliary data
    given += [convert(cell.of.read(), dtype=cell.type.dtype, weak=False) for cell in spec.flowing]
    active = [t for t, a in zip(spec.argument_types, spec.active, strict=True) if a]
    inputs = [*residuals, *[Linear(t.strong()) for t in (*[cell.type for cell in spec.flowing], *active)]]
    moving = iter(backward_walk(spec.linear, inputs, given)[len(residuals) :])
    for cell in spec.flowing:
        cell.of.write(convert(instantiate(next(moving)), dtype=cell.of.type.dtype, weak=cell.of.type.weak))
    found = [next(moving) if a else Zero(t) for t, a in zip(spec.argument_types, spec.active, strict=True)]
    found = _by_marks(total, spec, found, marks[len(marks) - len(found) :])
    found = [_varying_as(x, axes) for x, axes in zip_longest(found, spec.varying)]
    reductions = spec.reductions or [NEITHER] * len(found)
    return [
        lying_so(_as_dual(_as_weak_as(t, instantiate(x)), r), place) if a else zero_tangent(t)
        for x, t, a, r, place in zip(found, spec.argument_types, spec.active, reductions, spec.places, strict=True)
    ]


def _varying_as(cotangent: Any, axes: Axes | None) -> Any:
    """The cotangent, noted as varying over the axes of a mesh over which its argument does."""
    if not axes or isinstance(cotangent, Zero):
        return cotangent
    return pvary(cotangent, axis_name=tuple(sorted(axes, key=str)))


def _as_dual(cotangent: Any, argument: Reductions) -> Any:
    """The cotangent by copies as parts of a sum, and that by such parts as copies."""
    for axes, to in ((argument.reduced, "unreduced"), (argument.unreduced, "reduced")):
        cotangent = recast(cotangent, axis_name=tuple(sorted(axes, key=str)), to=to) if axes else cotangent
    return cotangent


def _by_marks(primitive: Any, spec: LinearSpec, values: Sequence[Any], marks: Sequence[Any]) -> Sequence[Any]:
    """The primitive of each value and its mark; zeros, and all values without marks, stay unchanged."""
    if not marks:
        return values
    pairs = zip(values, marks, strict=False)
    return [x if isinstance(x, Zero) else primitive(x, mark, axis_name=spec.axes) for x, mark in pairs]


def _as_weak_as(type: TensorType, cotangent: Any) -> Any:
    """The gradient with respect to a Python number is weak like the number."""
    if not type.weak or type_of(cotangent).weak:
        return cotangent
    if is_concrete(cotangent) and memory_of(cotangent) is None:
        return ConcreteArray(cotangent.numpy(), True)
    return convert(cotangent, dtype=type.dtype, weak=True)


class Pullback:
    """The function that `vjp` returns: a tree whose leaves are the values that it needs."""

    def __init__(self, spec: LinearSpec, residuals: Sequence[Any], marks: Sequence[Any] = ()) -> None:
        self.spec, self.residuals, self.marks = spec, residuals, marks

    def __call__(self, cotangent: Any) -> tuple[Any, ...]:
        """Cotangents of the arguments."""
        args, _ = as_duals(tree.unflatten(self.spec.in_tree, self._cotangents(cotangent)))
        return args

    def with_refs(self, *targets: Any) -> Callable[[Any], tuple[Any, ...]]:
        """A function of a cotangent that adds the arguments' gradients to Refs, one for each leaf of the arguments.

        A leaf's gradient is returned as a value if its position has something other than a Ref, for instance
        `rlx.ad.GradValue()`, and not computed for `rlx.ad.DontWant()`.

        >>> import rlx
        >>> total = rlx.new_ref(0.0)
        >>> _, f_vjp = rlx.vjp(lambda x: x * x, 3.0)
        >>> f_vjp.with_refs(total)(1.0), f_vjp.with_refs(total)(1.0)
        ((GradRef(),), (GradRef(),))
        >>> total[...].item()
        12.0
        """
        given, treedef = tree.flatten((targets, {}))
        if treedef != self.spec.in_tree:
            raise TreeMismatchError(
                f"with_refs of the pullback of {self.spec.name} got targets of structure {treedef}, its arguments have"
                f" structure {self.spec.in_tree}.",
                "Give a Ref, rlx.ad.GradValue() or rlx.ad.DontWant() for each leaf of the arguments.",
            )

        def pulled(cotangent: Any) -> tuple[Any, ...]:
            pairs = zip(given, self._cotangents(cotangent), strict=True)
            args, _ = tree.unflatten(treedef, [_delivered(target, found) for target, found in pairs])
            return args

        return pulled

    def _cotangents(self, cotangent: Any) -> list[Any]:
        """The cotangents of the arguments' leaves."""
        spec = self.spec
        leaves, treedef = flatten_local(divided_like(as_duals(cotangent), spec.out_tree))
        if treedef != spec.out_tree:
            raise TreeMismatchError(
                f"The pullback of {spec.name} got a cotangent of structure {treedef}, its result has"
                f" structure {spec.out_tree}.",
                "Give a cotangent of the structure that the function returned.",
            )
        given = [tangent_array(x, "a cotangent") for x in leaves]
        checked = _check_cotangents(f"The pullback of {spec.name}", spec.result_types, given)
        return _pull(spec, self.residuals, checked, self.marks)


def _delivered(target: Any, cotangent: Any) -> Any:
    """Deliver a cotangent to its target: add it to a cell, or return it."""
    if isinstance(target, DontWant):
        return DidntWant()
    if not isinstance(target, Cell):
        return cotangent
    if cotangent.shape != target.type.shape:
        raise ShapeError(
            f"A gradient of shape {cotangent.shape} is added to a Ref of shape {target.type.shape}.",
            "The Ref has the shape of the argument: rlx.new_ref(rlx.numpy.zeros_like(x)).",
        )
    if not is_float0(cotangent):
        same = convert(cotangent, dtype=target.type.dtype, weak=False)
        total = add(convert(target.read(), dtype=target.type.dtype, weak=False), same)
        target.write(convert(total, dtype=target.type.dtype, weak=target.type.weak))
    return GradRef()


tree.register_node(Pullback, lambda f: ((f.residuals, f.marks), f.spec), lambda spec, parts: Pullback(spec, *parts))


def _check_cotangents(
    what: str, types: Sequence[TensorType], leaves: Sequence[Array], integers: bool = False
) -> list[Any]:
    """Cotangents that fit their results; integers have zeros, unless the function is linear in `integers`."""
    checked: list[Any] = []
    for t, ct in zip(types, leaves, strict=True):
        if ct.shape != t.shape:
            raise TreeMismatchError(
                f"{what} got a cotangent of shape {ct.shape} for a result of shape {t.shape}.",
                "A cotangent has the shape and dtype of the result it belongs to.",
            )
        weaker = is_complex(ct.dtype) <= is_complex(t.dtype) and is_inexact(ct.dtype) <= is_inexact(t.dtype)
        if not (is_inexact(t.dtype) or integers):
            checked.append(Zero(t))
        elif ct.dtype == t.dtype:
            checked.append(ct)
        elif ct.type.weak and weaker:
            checked.append(convert(ct, dtype=t.dtype, weak=False))
        else:
            raise DtypeError(
                f"{what} got a cotangent of dtype {ct.dtype} for a result of dtype {t.dtype}.",
                "A cotangent has the dtype of its result: use cotangent.astype(result.dtype).",
            )
    return checked


def _refuse_axes(name: str, reduce_axes: Sequence[Any]) -> None:
    """JAX also accepts only an empty reduce_axes."""
    if reduce_axes:
        raise UnsupportedError(
            f"{name} got reduce_axes={reduce_axes!r}, which rlx does not support.",
            "Leave it out, and sum the gradient: rlx.lax.psum(gradient, axis).",
        )


def vjp(
    fun: Callable[..., Any], *primals: Any, has_aux: bool = False, reduce_axes: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """`fun` at `primals`, and the function that maps cotangents of its result to cotangents of `primals`.

    Args:
      fun: a function of arrays, or trees of them.
      primals: its arguments.
      has_aux: `fun` returns (result, auxiliary).

    Returns: (result, f_vjp), and the auxiliary data with has_aux. f_vjp takes a cotangent of the
    result's structure, shapes and dtypes and returns a tuple with one entry for each argument;
    integer and bool arguments get NumPy zeros of dtype float0. It is a tree, of the arrays that it
    needs: jitted functions can take and return it.

    >>> import rlx
    >>> y, f_vjp = rlx.vjp(lambda x, y: x * y, 2.0, 5.0)
    >>> [float(g) for g in f_vjp(1.0)]
    [5.0, 2.0]
    """
    _refuse_axes("vjp", reduce_axes)
    point = LinearizedCall(fun, primals, {}, has_aux)
    f_vjp = Pullback(point.spec, point.residuals, point.marks)
    return (point.result, f_vjp, point.auxiliary) if has_aux else (point.result, f_vjp)


def wanted_arguments(fun: Callable[..., Any], args: Sequence[Any], argnums: Any) -> list[int]:
    """The positions that `argnums` mean; TreeMismatchError for an argument that is not there."""
    fun_name = getattr(fun, "__name__", type(fun).__name__)
    numbers = [argnums] if isinstance(argnums, (int, np.integer, str)) or not np.iterable(argnums) else list(argnums)
    wanted = []
    for n in numbers:
        if not isinstance(n, (int, np.integer)):
            raise OptionError(
                f"The derivative of {fun_name} got argnums={argnums!r:.60}.",
                "argnums is the number of a positional argument, counted from 0, or a tuple of such numbers. A"
                " transform returns a function: call it with the arguments, rlx.grad(f)(x).",
            )
        if not -len(args) <= n < len(args):
            raise TreeMismatchError(
                f"grad of {fun_name} with respect to argument {n}, but it was called with"
                f" {len(args)} positional argument{'s' if len(args) != 1 else ''}.",
                "argnums counts positional arguments from 0; pass the argument by position.",
            )
        wanted.append(n % len(args))
    return wanted


def _check_inputs(fun_name: str, leaves: Sequence[Array], holomorphic: bool, allow_int: bool) -> None:
    for x in leaves:
        if holomorphic and not is_complex(x.dtype):
            raise DtypeError(
                f"grad of {fun_name} with holomorphic=True takes complex arguments, got {x.dtype}.",
                "Convert the argument with .astype(rlx.numpy.complex64), or leave holomorphic out.",
            )
        if is_complex(x.dtype) and not holomorphic:
            continue  # a real-valued function of complex numbers has a gradient; checked on its result
        if not is_inexact(x.dtype) and not allow_int:
            raise DtypeError(
                f"grad of {fun_name} with respect to an argument of dtype {x.dtype}: a derivative needs"
                " a float (or complex) argument.",
                "Convert it with .astype(float), write 2.0 instead of 2, choose other argnums, or pass"
                " allow_int=True to get zeros.",
            )


def _check_result(point: LinearizedCall, holomorphic: bool) -> None:
    name = point.name
    if point.out_tree == tree.structure(None):
        raise ScalarOutputError(
            f"grad takes a function that returns one scalar; {name} returned None.",
            "Write `return` in front of the loss: a function without it returns None.",
        )
    if len(point.values) != 1 or not tree.is_leaf_type(point.result):
        raise ScalarOutputError(
            f"grad takes a function that returns one scalar; {name} returned"
            f" {tree.kind_of(point.result)}.",
            "Return the loss alone, (loss, auxiliary) with has_aux=True, or use rlx.jacrev.",
        )
    out = point.result
    if out.shape != ():
        raise ScalarOutputError(
            f"grad takes a function that returns one scalar; {name} returned {out.type!r}.",
            "Reduce the result, for instance with .sum() or .mean(), or use rlx.jacrev or rlx.vmap(rlx.grad(f)).",
        )
    found = reductions_of(out)
    if found != NEITHER:
        raise ShardingError(
            f"grad takes a function that returns one number; the result of {name} is unreduced over"
            f" {sorted(map(str, found.unreduced))} and reduced over {sorted(map(str, found.reduced))}.",
            'Sum it, rlx.lax.psum(loss, axis), or make it varying: rlx.lax.pcast(loss, axis, to="varying").',
        )
    if holomorphic and not is_complex(out.dtype):
        raise ScalarOutputError(
            f"grad with holomorphic=True takes a complex result, {name} returned {out.dtype}.",
            "Leave holomorphic out for a real-valued function.",
        )
    if not holomorphic and (is_complex(out.dtype) or not is_inexact(out.dtype)):
        raise ScalarOutputError(
            f"grad takes a function that returns one real number; {name} returned {out.type!r}.",
            "For a holomorphic function pass holomorphic=True; otherwise take the real part or convert to float.",
        )


def value_and_grad(
    fun: Callable[Parameters, Result],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[Parameters, tuple[Result, Any]]:
    """A function that returns both `fun`'s scalar value and its gradient.

    Args as in `grad`. Returns: f(*args) -> (value, gradient), or ((value, auxiliary), gradient).

    >>> import rlx
    >>> value, gradient = rlx.value_and_grad(lambda x: x ** 3)(2.0)
    >>> float(value), float(gradient)
    (8.0, 12.0)
    """

    _refuse_axes("value_and_grad", reduce_axes)

    @named_after(fun)
    def function(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        name = getattr(fun, "__name__", type(fun).__name__)
        wanted = wanted_arguments(fun, args, argnums)
        distinct = sorted(set(wanted))

        @named_after(fun)
        def of_wanted(*values: Any) -> Any:
            """`fun` of the arguments to differentiate; the others are fixed, arrays or not."""
            given = dict(zip(distinct, values, strict=True))
            return fun(*(given.get(i, a) for i, a in enumerate(args)), **kwargs)

        chosen = [args[i] for i in distinct]
        if cells_in(tree.leaves(chosen)):
            raise InputTypeError(
                f"grad({name}) is asked for the derivative by a Ref.",
                "Differentiate by an array, and make the Ref inside.",
            )
        leaves, _ = flatten_call(chosen, {}, f"an argument of grad({name})")
        _check_inputs(name, leaves, holomorphic, allow_int)
        point = LinearizedCall(of_wanted, chosen, {}, has_aux)
        _check_result(point, holomorphic)
        out = point.values[0]
        stacked = is_stacked(point.result)
        seed = seed_of(point.result, out.type) if stacked else beside(full_like(out.type.strong(), 1), out)
        cts = map(beside, _pull(point.spec, point.residuals, [seed], point.marks), point.leaves)
        by_argument, _ = as_duals(tree.unflatten(point.in_tree, cts))
        picked = tuple(by_argument[distinct.index(i)] for i in wanted)
        gradient = picked[0] if isinstance(argnums, (int, np.integer)) else picked
        return ((point.result, point.auxiliary) if has_aux else point.result), gradient

    return function


def grad(
    fun: Callable[Parameters, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[Parameters, Any]:
    """The gradient of a scalar-valued function.

    Args:
      fun: returns one real number (a complex one with holomorphic=True), or with has_aux a pair
        (number, auxiliary data).
      argnums: which positional arguments to differentiate, an int or several.
      has_aux: return (gradient, auxiliary data).
      holomorphic: `fun` is complex-differentiable; arguments and result are complex.
      allow_int: integer and bool arguments get NumPy zeros of dtype float0 as gradient instead of an error.

    Returns: a function of the same arguments whose result has the structure and shapes of the chosen
    argument (a tuple for several). For a complex argument x + iy of a real function it is
    df/dx - i df/dy (JAX's convention): descend along its conjugate.

    Raises: ScalarOutputError, DtypeError, TreeMismatchError.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.grad(lambda x: jnp.sum(x ** 2))(jnp.array([1.0, 2.0]))
    Array([2., 4.], dtype=float32)
    """
    _refuse_axes("grad", reduce_axes)
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @named_after(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return function


def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Sequence[Any] = ()) -> Callable[..., Any]:
    """The transpose of a function that is linear in all its arguments.

    `primals` give shapes and dtypes only (arrays or anything with .shape and .dtype).
    Returns: a function from a cotangent of the result to a tuple of cotangents of the arguments.

    >>> import rlx
    >>> (ct,) = rlx.linear_transpose(lambda x: 3.0 * x, 1.0)(2.0)
    >>> float(ct)
    6.0
    """
    _refuse_axes("linear_transpose", reduce_axes)
    leaves, treedef = tree.flatten((primals, {}))
    types = [
        TensorType(tuple(x.shape), np.dtype(x.dtype))
        if hasattr(x, "shape") and hasattr(x, "dtype")
        else as_array(x).type
        for x in leaves
    ]
    flat = FlatFunction(fun, treedef)
    program, captured = trace_program(flat, types, None, flat.name)
    every = (*types, *program.output_types)
    if not (all(is_inexact(t.dtype) for t in every) or all(is_integer(t.dtype) for t in every)):
        raise DtypeError(
            "linear_transpose needs inputs and outputs that are all inexact (float or complex) or all integers;"
            f" {flat.name} maps {', '.join(map(repr, types))} to {', '.join(map(repr, program.output_types))}.",
            "Convert the arguments, or the results, with .astype(...).",
        )

    def transposed(cotangent: Any) -> tuple[Any, ...]:
        ct_leaves, ct_tree = flatten_local(divided_like(as_duals(cotangent), flat.out_tree))
        if ct_tree != flat.out_tree:
            raise TreeMismatchError(
                f"The transpose of {flat.name} got a cotangent of structure {ct_tree}, expected {flat.out_tree}.",
                "Give a cotangent of the structure that the function returns.",
            )
        given = [as_array(x, "a cotangent") for x in ct_leaves]
        checked = _check_cotangents(f"The transpose of {flat.name}", program.output_types, given, integers=True)
        inputs = [*captured, *[Linear(t) for t in types]]
        results = backward_walk(program, inputs, checked)[len(captured) :]
        args, _ = as_duals(tree.unflatten(treedef, [instantiate(r) for r in results]))
        return args

    return transposed
