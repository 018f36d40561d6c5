"""sparsify: functions of dense arrays, applied to sparse ones equation by equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import rlx.numpy as jnp
from rlx.errors import UnsupportedError, source_line
from rlx.experimental.sparse.arrays import BCOO, BCSR, JAXSparse
from rlx.ir.program import Equation
from rlx.ir.types import TensorType
from rlx.trace.flat import FlatFunction, as_array
from rlx.trace.interpret import Environment, origins_of
from rlx.trace.lower import inline_calls
from rlx.trace.tracing import trace_program
from rlx.trees import tree

__all__ = ["sparse_product", "sparsify"]


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """The function with sparse arrays among its arguments: what it does to dense arrays is done to stored elements.

    Operators, methods and functions of rlx.numpy work, as far as they consist of products, sums, elementwise functions
    with f(0) = 0, and changes of axes. Keyword arguments are passed as they are. Results are sparse where they follow
    from sparse arrays alone; a product with a dense array over an axis is dense.

    Raises: UnsupportedError for another operation with a sparse array.

    >>> import numpy as np
    >>> import rlx.numpy as jnp
    >>> from rlx.experimental.sparse import BCOO, sparsify
    >>> m = BCOO.fromdense(np.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparsify(lambda m, x: jnp.einsum("ij,i->j", m, x))(m, np.array([1.0, 10.0])).tolist()
    [30.0, 2.0]
    >>> sparsify(jnp.sum)(m, axis=0).todense().tolist()
    [3.0, 2.0]
    """

    @wraps(f)
    def sparsified(*args: Any, **kwargs: Any) -> Any:
        leaves, treedef = tree.flatten((args, {}), is_leaf=_is_sparse)
        if not any(map(_is_sparse, leaves)):
            return f(*args, **kwargs)
        values = [x.to_bcoo() if isinstance(x, BCSR) else x if _is_sparse(x) else as_array(x) for x in leaves]
        types = [TensorType(x.shape, x.dtype) if _is_sparse(x) else x.type for x in values]
        flat = FlatFunction(lambda *a: f(*a, **kwargs), treedef, name=getattr(f, "__name__", "sparsified"))
        program, captured = trace_program(flat, types, None, flat.name)
        program = inline_calls(program)
        env = Environment(program, [*captured, *values])
        with origins_of() as inherit:
            for equation in program.equations:
                inherit(equation)
                outs = _result(equation, [env.read(a) for a in equation.inputs])
                env.update(zip(equation.outputs, outs, strict=True))
        return flat.unflatten([env.read(a) for a in program.outputs])

    return sparsified


def _is_sparse(x: Any) -> bool:
    return isinstance(x, JAXSparse)


def _result(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation."""
    primitive, params = equation.primitive, equation.params
    if not any(map(_is_sparse, operands)):
        outs = primitive.bind(*operands, **params)
        return outs if primitive.multiple else (outs,)
    name, places = primitive.name, [n for n, x in enumerate(operands) if _is_sparse(x)]
    if name in _STORED or (name in _OF_ZERO and len(operands) == 1):
        first = operands[0] if name in _STORED else operands[0].sum_duplicates()
        return (first.with_data(primitive.bind(first.data, **params)),)
    rule = _RULES.get((name, len(places)))
    if rule is None:
        which = "with sparse arrays" if len(operands) > 1 else "of a sparse array"
        raise UnsupportedError(
            f"sparsify has no rule for {name} {which}.",
            "Products, sums over axes, sums of sparse arrays and functions with f(0) = 0 work; or call .todense().",
            "" if equation.origin is None else source_line(*equation.origin),
        )
    return (rule(equation, *operands),)


# ------------------------------------------------------------- rules
_STORED = frozenset({"negative", "convert", "real", "imag", "conjugate", "stop_gradient"})  # of each part of an element
_OF_ZERO = frozenset(
    "absolute square sqrt sin tan sinh tanh arcsin arctan arcsinh arctanh expm1 log1p sign floor ceil integer_pow "
    "cbrt round".split()
)


def _multiplied(_: Equation, x: Any, y: Any) -> BCOO:
    return x * y if _is_sparse(x) else y * x


def _divided(equation: Equation, x: Any, y: Any) -> BCOO:
    if _is_sparse(y):
        raise UnsupportedError("A dense array was divided by a sparse one.", "Call .todense(): zeros divide.")
    return x / y


def _transposed(equation: Equation, x: BCOO) -> BCOO:
    return x.transpose(equation.params["permutation"])


def _reshaped(equation: Equation, x: BCOO) -> BCOO:
    return x.reshape(equation.outputs[0].type.shape)


def _summed(equation: Equation, x: BCOO) -> Any:
    axes = equation.params["axes"]
    return x.data.sum() if len(axes) == x.ndim else x.sum(axes)


def _contracted(equation: Equation, x: Any, y: Any) -> Any:
    return sparse_product(x, y, equation.params["dimension_numbers"])


_RULES: dict[tuple[str, int], Callable[..., Any]] = {
    ("multiply", 1): _multiplied,
    ("divide", 1): _divided,
    ("add", 2): lambda _, x, y: x + y,
    ("subtract", 2): lambda _, x, y: x - y,
    ("transpose", 1): _transposed,
    ("reshape", 1): _reshaped,
    ("expand_dims", 1): _reshaped,
    ("reduce_sum", 1): _summed,
    ("dot_general", 1): _contracted,
}


def sparse_product(x: Any, y: Any, dimension_numbers: Any) -> Any:
    """dot_general of a sparse array with a dense one, in this order or the other: a dense array.

    Each stored element takes the dense elements that it meets, and adds their products to the result.
    """
    (left, right), (left_batch, right_batch) = dimension_numbers
    if not _is_sparse(x):
        found = sparse_product(y, x, ((right, left), (right_batch, left_batch)))
        batch, mine = len(left_batch), y.ndim - len(right) - len(right_batch)
        order = [*range(batch), *range(batch + mine, found.ndim), *range(batch, batch + mine)]
        return jnp.transpose(found, order)
    free = [a for a in range(x.ndim) if a not in (*left, *left_batch)]
    dense = jnp.moveaxis(y, [*right_batch, *right], range(len(right) + len(right_batch)))
    met = dense.at[tuple(x.indices[:, a] for a in (*left_batch, *left))].get(mode="fill", fill_value=0)
    met = jnp.broadcast_to(met, (x.nse, *y.shape)) if not left and not left_batch else met
    terms = x.data.reshape(-1, *(1,) * (met.ndim - 1)) * met
    kept = [*left_batch, *free]
    shape = tuple(x.shape[a] for a in kept) + terms.shape[1:]
    if not kept:
        return terms.sum(0)
    return jnp.zeros(shape, terms.dtype).at[tuple(x.indices[:, a] for a in kept)].add(terms, mode="drop")
