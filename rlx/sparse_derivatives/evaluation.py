"""Sparse Jacobians and Hessians: the products with the colours' directions, and their elements as a CSR matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ParamSpec

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array, is_concrete
from rlx.config import config
from rlx.errors import DtypeError, InputTypeError, ShapeError, UnsupportedError, VerificationError
from rlx.ir.types import is_complex, is_inexact
from rlx.numpy.promotion import promote
from rlx.ops.families import instantiate
from rlx.sparse import CSR
from rlx.sparse_derivatives.coloring import MODES, SYMMETRIC_MODES, Coloring, color
from rlx.sparse_derivatives.pattern import hessian_sparsity, pattern_of
from rlx.sparse_derivatives.seeds import Seed, pushed_seeds
from rlx.trace.flat import as_array, function_name, named_after
from rlx.trace.lower import inline_calls
from rlx.trace.primitive import Zero
from rlx.transforms.forward import LinearizedCall
from rlx.transforms.functional import jacrev, restricted, select_arguments
from rlx.transforms.reverse import grad, vjp
from rlx.transforms.vmap import vmap
from rlx.trees import tree

__all__ = ["jacobian", "sparse_hessian"]

Parameters = ParamSpec("Parameters")
_ELEMENTS = 1 << 26  # of the products that are computed at a time


def jacobian(
    fun: Callable[Parameters, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    sparse: bool = False,
    mode: str = "auto",
    coloring: Coloring | None = None,
) -> Callable[Parameters, Any]:
    """The Jacobian of `fun`; with sparse=True as a sparse matrix that few products determine.

    Args:
      fun, argnums, has_aux, holomorphic, allow_int: see `jacrev`, which computes the dense Jacobian.
      sparse: find the pattern in the program of `fun`, colour it, and compute only the places of the pattern.
      mode: "forward" (products with columns), "reverse" (with rows), "both", or "auto", the cheapest.
      coloring: from `rlx.color`, instead of finding the pattern.

    Returns: a function of fun's arguments. With sparse=True its result is an `rlx.sparse.CSR` of shape
    (elements of the results, elements of the arguments), in the order of the trees' leaves. In jit the pattern and the
    colours are constants of the program. The result has the derivatives of its elements.

    Source: A. Curtis, M. Powell, J. Reid, On the estimation of sparse Jacobian matrices (1974).

    >>> import rlx
    >>> import numpy as np
    >>> stencil = lambda u: u[2:] - 2 * u[1:-1] + u[:-2] + u[1:-1] ** 2
    >>> found = rlx.jit(rlx.jacobian(stencil, sparse=True))(np.ones(5))
    >>> found.nnz, found.todense().tolist()
    (9, [[1.0, 0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0, 1.0]])
    """
    if not sparse:
        _refuse_without_sparse(mode, coloring)
        return jacrev(fun, argnums, has_aux, holomorphic, allow_int)
    if mode not in MODES:
        raise UnsupportedError(f"jacobian has no mode {mode!r}.", f"Use one of {MODES}.")

    @named_after(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        _check("jacobian", fun, select_arguments(args, argnums), holomorphic, allow_int)
        plan = coloring
        if plan is None:
            of = (lambda *a, **k: fun(*a, **k)[0]) if has_aux else fun
            plan = color(pattern_of(of, argnums, args, kwargs), mode)
        point = _Point(fun, argnums, args, kwargs, has_aux)
        result = point.jacobian(_as_coloring(plan))
        return (result, point.auxiliary) if has_aux else result

    return function


def sparse_hessian(
    fun: Callable[Parameters, Any],
    argnums: int | Sequence[int] = 0,
    *,
    mode: str = "symmetric",
    coloring: Coloring | None = None,
) -> Callable[Parameters, Any]:
    """The Hessian of a function with one real result as a sparse matrix: few products of it with vectors.

    Args:
      fun: differentiated with respect to the arguments `argnums`.
      mode: "symmetric" (each element is found in a product), or "acyclic" (fewer products, and substitution).
      coloring: a symmetric one, `rlx.color(rlx.hessian_sparsity(f)(x), "symmetric")`, instead of finding the pattern.

    Returns: a function of fun's arguments; its result is an `rlx.sparse.CSR` of shape (n, n) for n elements.

    Source: A. Gebremedhin, F. Manne, A. Pothen, What color is your Jacobian? (2005): star and acyclic colouring.

    >>> import rlx
    >>> import numpy as np
    >>> chain = lambda x: ((x[1:] - x[:-1]) ** 4).sum()
    >>> rlx.sparse_hessian(chain)(np.array([0.0, 1.0, 3.0])).todense().tolist()
    [[12.0, -12.0, 0.0], [-12.0, 60.0, -48.0], [0.0, -48.0, 48.0]]
    """
    if mode not in SYMMETRIC_MODES:
        raise UnsupportedError(f"sparse_hessian has no mode {mode!r}.", f"Use one of {SYMMETRIC_MODES}.")

    @named_after(fun)
    def function(*args: Any, **kwargs: Any) -> CSR:
        _check("sparse_hessian", fun, select_arguments(args, argnums), False, False)
        plan = coloring
        if plan is None:
            plan = color(hessian_sparsity(fun, argnums)(*args, **kwargs), mode)
        return _Point(grad(fun, argnums), argnums, args, kwargs, False).jacobian(_as_coloring(plan))

    return function


def _refuse_without_sparse(mode: str, coloring: Any) -> None:
    if mode != "auto" or coloring is not None:
        raise InputTypeError(
            "jacobian got mode or coloring without sparse=True.", "Write rlx.jacobian(f, sparse=True, ...)."
        )


def _as_coloring(plan: Any) -> Coloring:
    if not isinstance(plan, Coloring):
        raise InputTypeError(f"coloring is {type(plan).__name__}, not a Coloring.", "Pass rlx.color(pattern).")
    return plan


def _check(name: str, fun: Any, part: Any, holomorphic: bool, allow_int: bool) -> None:
    for x in tree.leaves(part):
        dtype = as_array(x).dtype
        if is_complex(dtype) and not holomorphic:
            raise DtypeError(
                f"{name} of {function_name(fun)} with respect to an argument of dtype {dtype}.",
                "Pass holomorphic=True for a holomorphic function, or split it into real and imaginary parts.",
            )
        if not is_inexact(dtype) and not allow_int:
            raise DtypeError(
                f"{name} of {function_name(fun)} with respect to an argument of dtype {dtype}.",
                "Convert it to float, choose other argnums, or pass allow_int=True: integers have no columns.",
            )


class _Point:
    """A function at arguments: its products with directions, and with rows."""

    def __init__(
        self, fun: Callable[..., Any], argnums: int | Sequence[int], args: Sequence[Any], kwargs: Any, has_aux: bool
    ) -> None:
        self.name = function_name(fun)
        self.part = select_arguments(args, argnums)
        self.chosen = restricted(fun, args, argnums, kwargs)
        self.has_aux = has_aux
        self.auxiliary: Any = None
        leaves, self.treedef = tree.flatten(self.part)
        self.leaves = [as_array(x) for x in leaves]

    def jacobian(self, plan: Coloring) -> CSR:
        """The matrix that a colouring's products determine."""
        columns, facts = sum(x.size for x in self.leaves if is_inexact(x.dtype)), plan.facts
        if columns != plan.shape[1]:
            raise ShapeError(
                f"A coloring of a matrix of shape {plan.shape} was used for arguments of {columns} elements.",
                "Color the pattern of this function and these shapes.",
            )
        products = []
        if facts.column_count or not facts.row_count:
            products.append(
                _in_parts(self._pushed(partial(_cut, plan.columns), plan.shape[0]), facts.column_count, sum(plan.shape))
            )
        if facts.row_count:
            products.append(
                _in_parts(self._pulled(partial(_cut, plan.rows), plan.shape[1]), facts.row_count, sum(plan.shape))
            )
        flat = jnp.concatenate(promote("jacobian", *[p.reshape(-1) for p in products]))
        found = CSR.of_pattern(_elements(plan, flat), facts.places)
        if config.check and is_concrete(found.data):
            self._check(found, bool(facts.column_count or not facts.row_count))
        return found

    def _check(self, found: CSR, forward: bool) -> None:
        """Compare a product with one that does not use the pattern. Raises VerificationError."""
        generator = np.random.default_rng(0)
        drawn: list[np.ndarray] = []

        def draw(leaves: Sequence[Array]) -> list[np.ndarray]:
            drawn[:] = [generator.normal(size=x.shape).astype(x.dtype) for x in leaves if is_inexact(x.dtype)]
            return drawn

        true = np.asarray((self._pushed if forward else self._pulled)(draw, found.shape[0 if forward else 1])(0))
        product = np.asarray((found if forward else found.T) @ np.concatenate([d.reshape(-1) for d in drawn]))
        wrong = ~np.isclose(product, true, rtol=1e-3, atol=1e-3 * np.max(np.abs(true), initial=1e-30))
        if wrong.any():
            raise VerificationError(
                f"The sparse Jacobian of {self.name} lacks elements in {'row' if forward else 'column'}"
                f" {int(np.argmax(wrong))}.",
                "Correct the pattern that was passed or assumed: rlx.assume_pattern, coloring.",
            )

    def _pushed(self, directions: Callable[[Sequence[Array]], Sequence[Any]], size: int) -> Callable[[Any], Any]:
        """The product with the columns of a colour, as one vector; `directions` of the arguments."""
        point = LinearizedCall(self.chosen, (self.part,), {}, self.has_aux)
        self.auxiliary = point.auxiliary
        spec, linear = point.spec, inline_calls(point.spec.linear)
        seeds = directions(self.leaves)

        def push(number: Any) -> Any:
            moving = iter(pushed_seeds(linear, point.residuals, seeds, number))
            found = [next(moving) if kept else None for kept in spec.kept][: len(spec.result_types)]
            results = zip(found, spec.result_types, strict=True)
            return _joined([instantiate(Zero(t)) if x is None else x for x, t in results], size)

        return push

    def _pulled(self, directions: Callable[[Sequence[Array]], Sequence[Any]], size: int) -> Callable[[Any], Any]:
        """The product with the rows of a colour, as one vector; `directions` of the results."""
        result, pull, *rest = vjp(self.chosen, self.part, has_aux=self.has_aux)
        self.auxiliary = rest[0] if rest else None
        outs, treedef = tree.flatten(result)
        arrays = [as_array(x) for x in outs]
        seeds = directions(arrays)

        def pulled(number: Any) -> Any:
            moved = (x.value(number) if isinstance(x, Seed) else x for x in seeds)
            cotangents = [next(moved) if is_inexact(x.dtype) else np.zeros(x.shape, x.dtype) for x in arrays]
            return _joined(pull(tree.unflatten(treedef, cotangents))[0], size)

        return pulled


def _elements(plan: Coloring, products: Array) -> Array:
    """The elements of the matrix from all products."""
    if plan.facts.recovery is None:
        return products.at[plan.positions].get(mode="promise_in_bounds")
    return CSR.of_pattern(as_array(plan.positions).astype(products.dtype), plan.facts.recovery) @ products


def _in_parts(product: Callable[[Any], Any], count: int, elements: int) -> Array:
    """The products of all colours, as many at a time as fit the bound on memory."""
    numbers = jnp.arange(count, dtype=np.int32)
    at_once = max(_ELEMENTS // max(elements, 1), 1)
    if count <= at_once:
        return vmap(product)(numbers)
    return lax.map(product, numbers, batch_size=at_once)


def _cut(colors: Any, leaves: Sequence[Array]) -> list[Seed]:
    """The seed of each array of numbers."""
    start, out = 0, []
    for x in leaves:
        if is_inexact(x.dtype):
            out.append(Seed(colors[start : start + x.size].reshape(x.shape), x.type.strong()))
            start += x.size
    return out


def _joined(values: Any, expected: int) -> Array:
    """The numbers of a tree as one vector. Raises ShapeError unless it has the expected size."""
    arrays = [as_array(x) for x in tree.leaves(values) if x.dtype != np.dtype([("float0", "V")])]
    arrays = [x.reshape(-1) for x in arrays if is_inexact(x.dtype)]
    joined = jnp.concatenate(promote("jacobian", *arrays)) if len(arrays) > 1 else arrays[0]
    if joined.size != expected:
        raise ShapeError(
            f"A coloring of {expected} rows or columns was used for a function with {joined.size}.",
            "Color the pattern of this function and these shapes.",
        )
    return joined
