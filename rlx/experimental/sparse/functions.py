"""Functions of BCOO and BCSR arrays under JAX's names, and derivatives in their elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.experimental.sparse.arrays import BCOO, BCSR, JAXSparse
from rlx.experimental.sparse.sparsified import sparse_product
from rlx.numpy.placement import placed
from rlx.transforms.reverse import value_and_grad as dense_value_and_grad
from rlx.trees import tree

__all__ = [
    "bcoo_dot_general",
    "bcoo_fromdense",
    "bcoo_multiply_dense",
    "bcoo_reduce_sum",
    "bcoo_reshape",
    "bcoo_sum_duplicates",
    "bcoo_todense",
    "bcoo_transpose",
    "bcsr_dot_general",
    "bcsr_fromdense",
    "bcsr_todense",
    "empty",
    "eye",
    "grad",
    "value_and_grad",
]

bcoo_fromdense = BCOO.fromdense
bcsr_fromdense = BCSR.fromdense


def bcoo_todense(mat: BCOO) -> Array:
    """The dense array.

    >>> import numpy as np
    >>> from rlx.experimental import sparse
    >>> sparse.bcoo_todense(sparse.bcoo_fromdense(np.eye(2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return mat.todense()


def bcsr_todense(mat: BCSR) -> Array:
    """The dense matrix.

    >>> import numpy as np
    >>> from rlx.experimental import sparse
    >>> sparse.bcsr_todense(sparse.bcsr_fromdense(np.eye(2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return mat.todense()


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """The array with its axes permuted.

    >>> from rlx.experimental import sparse
    >>> sparse.bcoo_transpose(sparse.eye(2, 3), permutation=(1, 0)).shape
    (3, 2)
    """
    return mat.transpose(permutation)


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """The sum along axes, as a sparse array.

    >>> from rlx.experimental import sparse
    >>> sparse.bcoo_reduce_sum(sparse.eye(2), axes=[0]).todense().tolist()
    [1.0, 1.0]
    """
    return mat.sum(tuple(axes))


def bcoo_reshape(mat: BCOO, *, new_sizes: Sequence[int], dimensions: Any = None, sharding: Any = None) -> BCOO:
    """The array with its elements in another shape. dimensions: None. Raises UnsupportedError for a sharding.

    >>> from rlx.experimental import sparse
    >>> sparse.bcoo_reshape(sparse.eye(2), new_sizes=(4,)).todense().tolist()
    [1.0, 0.0, 0.0, 1.0]
    """
    if dimensions is not None or sharding is not None:
        raise UnsupportedError(f"bcoo_reshape got dimensions={dimensions}, sharding={sharding}.", "Pass None for both.")
    return mat.reshape(tuple(new_sizes))


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """The array with each position once. nse: the number of elements; the others are zeros outside of it.

    >>> import numpy as np
    >>> from rlx.experimental import sparse
    >>> twice = sparse.BCOO((np.ones(2), np.zeros((2, 1), np.int32)), shape=(3,))
    >>> sparse.bcoo_sum_duplicates(twice, nse=1).data.tolist()
    [2.0]
    """
    return mat.sum_duplicates(nse)


def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> Array:
    """The stored elements of an elementwise product with an array that broadcasts.

    >>> import numpy as np
    >>> from rlx.experimental import sparse
    >>> sparse.bcoo_multiply_dense(sparse.eye(2), np.full((2, 2), 3.0, np.float32)).tolist()
    [3.0, 3.0]
    """
    return (sp_mat * v).data


def _dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, out_sharding: Any) -> Array:
    if isinstance(rhs, JAXSparse):
        raise UnsupportedError("A sparse dot_general got two sparse arrays.", "Use the operator @.")
    found = sparse_product(lhs.to_bcoo() if isinstance(lhs, BCSR) else lhs, jnp.asarray(rhs), dimension_numbers)
    return found if out_sharding is None else placed(found, None, out_sharding)


def bcoo_dot_general(
    lhs: BCOO,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The product of a sparse array with a dense one, with the sharding `out_sharding`.

    Raises: UnsupportedError for two sparse operands.

    >>> import numpy as np
    >>> from rlx.experimental import sparse
    >>> numbers = (([1], [0]), ([], []))
    >>> sparse.bcoo_dot_general(sparse.eye(2), np.ones(2, np.float32), dimension_numbers=numbers).tolist()
    [1.0, 1.0]
    """
    return _dot_general(lhs, rhs, dimension_numbers, out_sharding)


def bcsr_dot_general(
    lhs: BCSR,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The product of a BCSR matrix; see `bcoo_dot_general`.

    >>> import numpy as np
    >>> from rlx.experimental import sparse
    >>> a, numbers = sparse.bcsr_fromdense(np.eye(2)), (([1], [0]), ([], []))
    >>> sparse.bcsr_dot_general(a, np.ones(2), dimension_numbers=numbers).tolist()
    [1.0, 1.0]
    """
    return _dot_general(lhs, rhs, dimension_numbers, out_sharding)


def _in_format(mat: BCOO, sparse_format: str) -> BCOO | BCSR:
    if sparse_format not in ("bcoo", "bcsr"):
        raise UnsupportedError(f"There is no sparse_format={sparse_format!r}.", 'There are "bcoo" and "bcsr".')
    return mat if sparse_format == "bcoo" else BCSR.from_bcoo(mat)


def empty(
    shape: Sequence[int], dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo", *, nse: int = 0
) -> BCOO | BCSR:
    """An array without elements, or with `nse` zeros outside of it. sparse_format: "bcoo" or "bcsr".

    >>> from rlx.experimental import sparse
    >>> sparse.empty((2, 3))
    BCOO(float32[2, 3], nse=0)
    """
    places = jnp.broadcast_to(jnp.asarray(shape, index_dtype), (nse, len(shape)))
    return _in_format(BCOO((jnp.zeros(nse, dtype), places), shape=shape), sparse_format)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = "int32",
    sparse_format: str = "bcoo",
) -> BCOO | BCSR:
    """The matrix with ones on a diagonal. sparse_format: "bcoo" or "bcsr".

    >>> from rlx.experimental import sparse
    >>> sparse.eye(2).todense().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    width = N if M is None else M
    if N < 0 or width < 0:
        raise ShapeError(f"eye got {N} rows and {width} columns.")
    length = max(0, min(N + min(k, 0), width - max(k, 0)))
    rows = jnp.arange(length, dtype=index_dtype) + max(0, -k)
    found = BCOO((jnp.ones(length, dtype), jnp.stack([rows, rows + k], -1)), shape=(N, width))
    return _in_format(found, sparse_format)


# ------------------------------------------------------------- derivatives in elements
def value_and_grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, **options: Any) -> Callable[..., Any]:
    """`rlx.value_and_grad` for arguments with sparse arrays, whose gradients have the stored elements alone.

    >>> import numpy as np
    >>> from rlx.experimental import sparse
    >>> value, gradient = sparse.value_and_grad(lambda m: (m @ np.array([1.0, 2.0])).sum())(sparse.eye(2))
    >>> float(value), gradient.data.tolist()
    (3.0, [1.0, 2.0])
    """

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        given = [args[n] for n in numbers]
        leaves = [tree.flatten(x, is_leaf=lambda v: isinstance(v, JAXSparse)) for x in given]

        def restored(data: Sequence[Any]) -> list[Any]:
            made = []
            for values, (originals, structure) in zip(data, leaves, strict=True):
                made.append(tree.unflatten(structure, map(_with_data, originals, values)))
            return made

        def of_data(data: Sequence[Any]) -> Any:
            whole = list(args)
            for number, x in zip(numbers, restored(data), strict=True):
                whole[number] = x
            return fun(*whole, **kwargs)

        data = [[x.data if isinstance(x, JAXSparse) else x for x in originals] for originals, _ in leaves]
        value, gradients = dense_value_and_grad(of_data, **options)(data)
        found = restored(gradients)
        return value, found[0] if isinstance(argnums, int) else tuple(found)

    return differentiated


def grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """`rlx.grad` for arguments with sparse arrays, whose gradients have the stored elements alone.

    >>> import numpy as np
    >>> from rlx.experimental import sparse
    >>> sparse.grad(lambda m: (m @ np.array([1.0, 2.0])).sum())(sparse.eye(2))
    BCOO(float32[2, 2], nse=2)
    """

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = value_and_grad(fun, argnums, has_aux=has_aux)(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def _with_data(original: Any, data: Any) -> Any:
    """A sparse array with other elements; other leaves are replaced."""
    if not isinstance(original, JAXSparse):
        return data
    structure = tree.structure(original)
    return tree.unflatten(structure, [data, *tree.leaves(original)[1:]])
