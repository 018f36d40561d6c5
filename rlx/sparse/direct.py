"""Direct solvers: factors of sparse matrices, which derivatives use again."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ConcretizationTypeError, InputTypeError, OptionError, ShapeError, SingularMatrixError
from rlx.numpy.promotion import promote_inexact
from rlx.ops.sparse_solves import csr_logdet, csr_solve
from rlx.routines.sparse_solves import SparseFactor, factor_of
from rlx.sparse.compressed import CSR, known_pattern
from rlx.sparse.matrix import SparseMatrix
from rlx.sparse.patterns import is_known
from rlx.trace.flat import as_array

__all__ = ["Factor", "factorized", "logdet", "slogdet", "spsolve"]

_ASSUMPTIONS = ("general", "symmetric", "positive definite")
_ORDERINGS = (None, "colamd", "minimum degree", "natural")
_ALIKE = 1e-6  # the largest difference of elements that are taken for equal, relative to the largest element


def _system(name: str, A: Any, assume: str, ordering: str | None) -> CSR:
    """The square matrix by rows; of one that is assumed to be symmetric, its symmetric part."""
    if assume not in _ASSUMPTIONS:
        raise OptionError(f"{name} got assume={assume!r}.", f"There are {', '.join(map(repr, _ASSUMPTIONS))}.")
    if ordering not in _ORDERINGS:
        raise OptionError(f"{name} got ordering={ordering!r}.", f"There are {', '.join(map(repr, _ORDERINGS))}.")
    if not isinstance(A, SparseMatrix):
        raise InputTypeError(
            f"{name} got {type(A).__name__} for a sparse matrix.",
            "Use sparse.from_dense(A); dense systems are solved by rlx.numpy.linalg.solve.",
        )
    if A.shape[0] != A.shape[1]:
        raise ShapeError(f"{name} got a matrix of shape {A.shape}.", "It must be square; sparse.lsqr takes others.")
    matrix = A.tocsr()
    return matrix if assume == "general" else _symmetric_part(name, matrix, assume)


def _symmetric_part(name: str, matrix: CSR, assume: str) -> CSR:
    """(A + A.T) / 2, so that the derivative is symmetric too; with A.H for a positive definite matrix."""
    known_pattern(name, matrix, f"assume={assume!r} compares places")
    turned = matrix.T.tocsr()
    turned = turned.conj() if assume == "positive definite" else turned
    unique, other = matrix.sum_duplicates(), turned.sum_duplicates()
    total = unique + other
    if is_known(matrix.data) and matrix.nnz:
        difference = np.abs(np.asarray((unique - other).data)).max()
        if difference > _ALIKE * np.abs(np.asarray(matrix.data)).max():
            raise OptionError(
                f"{name} got assume={assume!r} for a matrix that differs from its transpose by {difference:.3g}.",
                'Pass assume="general", or the matrix (A + A.T) / 2.',
            )
    return total * 0.5


def _values(name: str, matrix: CSR, *others: Any) -> tuple[Array, ...]:
    """The elements and other operands in one floating dtype."""
    return tuple(promote_inexact(name, matrix.data, *map(as_array, others)))


def spsolve(
    A: Any, b: Any, *, assume: str = "general", ordering: str | None = None, refine: int = 1,
    factor_dtype: str | None = None,
) -> Array:  # fmt: skip
    """The solution of A x = b, by factors of A. The gradient solves the transposed system with the same factors.

    Args:
      A: a square sparse matrix. b: dense [order] or [order, columns].
      assume: "general"; "symmetric" or "positive definite" take half the memory, solve with the symmetric part of A (a
        positive definite one may be Hermitian), and have symmetric derivatives.
      ordering: of the elimination: "colamd", "minimum degree" (of A + A.T), "natural" (as given), or None: the one that
        suits `assume`.
      refine: steps of iterative refinement in double precision.
      factor_dtype: "float32" for factors in single precision, with three or more steps of refinement.

    Returns x, of b's shape. In compiled functions a singular matrix gives NaN.

    Raises: SingularMatrixError if a matrix that is not traced is singular; ShapeError, InputTypeError, OptionError for
      arguments that do not fit, a matrix that is not symmetric as assumed among them; ConcretizationTypeError for
      traced indices of a matrix that is assumed to be symmetric.

    The factors are SuperLU's (Li 2005), on the host. A positive definite matrix of 500 rows or more has Cholesky's, by
    fronts (Duff and Reid 1983).

    >>> import numpy as np
    >>> from rlx import sparse
    >>> A = sparse.CSR.from_dense(np.array([[4.0, 1.0], [0.0, 2.0]]))
    >>> sparse.spsolve(A, np.array([6.0, 4.0]))
    Array([1., 2.], dtype=float64)
    """
    matrix = _system("spsolve", A, assume, ordering)
    if factor_dtype not in (None, "float32"):
        raise OptionError(f"spsolve got factor_dtype={factor_dtype!r}.", 'There are None and "float32".')
    data, right = _values("spsolve", matrix, b)
    if right.ndim not in (1, 2) or right.shape[0] != matrix.shape[0]:
        raise ShapeError(
            f"spsolve got b of shape {right.shape} for a matrix of shape {matrix.shape}.",
            f"b has {matrix.shape[0]} rows, and one or two axes.",
        )
    columns = right if right.ndim == 2 else right[:, None]
    options = {"assume": assume, "ordering": ordering, "refine": refine, "factor_dtype": factor_dtype}
    x = csr_solve(data, matrix.indices, matrix.indptr, columns, transposed=False, **options)
    if is_known(x) and x.size and bool(jnp.isnan(x).any()) and bool(jnp.isfinite(right).all()):
        _refuse_singular("spsolve", data)
    return x if right.ndim == 2 else x[:, 0]


def _refuse_singular(name: str, data: Array) -> None:
    if bool(jnp.isfinite(data).all()):
        raise SingularMatrixError(
            f"{name} got a singular matrix: a pivot is exactly zero.",
            "Look for an empty row or column; sparse.lsqr gives a least squares solution.",
        )


def slogdet(A: Any, *, assume: str = "general", ordering: str | None = None) -> tuple[Array, Array]:
    """The sign of the determinant of a square sparse matrix, and the logarithm of its absolute value.

    The derivative needs the inverse at the stored places alone, which are found from the factors (Takahashi, Fagan and
    Chin 1973); the second derivative takes two solves for each column.

    Arguments and errors are the same as in `spsolve`. For a singular matrix the sign is 0 and the logarithm -inf.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sign, log = sparse.slogdet(sparse.diags([2.0, -1.0], dtype="float64"))
    >>> float(sign), round(float(log), 6)
    (-1.0, 0.693147)
    """
    matrix = _system("slogdet", A, assume, ordering)
    (data,) = _values("slogdet", matrix)
    return csr_logdet(data, matrix.indices, matrix.indptr, assume=assume, ordering=ordering)


def logdet(A: Any, *, assume: str = "general", ordering: str | None = None) -> Array:
    """The logarithm of the absolute value of the determinant: the second result of `slogdet`.

    >>> from rlx import sparse
    >>> float(sparse.logdet(sparse.eye(3)))
    0.0
    """
    return slogdet(A, assume=assume, ordering=ordering)[1]


class Factor:
    """The factors of a sparse matrix that is not traced, for several solves: the result of `factorized`.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> factor = sparse.factorized(sparse.diags([2.0, 4.0], dtype="float64"))
    >>> factor.solve(np.ones(2)).tolist(), round(float(factor.logdet()), 6)
    ([0.5, 0.25], 2.079442)
    """

    def __init__(self, matrix: CSR, assume: str, ordering: str | None, refine: int) -> None:
        self.matrix, self.assume, self.ordering, self.refine = matrix, assume, ordering, refine
        self._factor = self._factored()

    def _factored(self) -> SparseFactor:
        system = _system("factorized", self.matrix, self.assume, self.ordering)
        (data,) = _values("factorized", system)
        if not is_known(data):
            raise ConcretizationTypeError(
                "factorized got a traced matrix.", "Use spsolve in compiled functions: it keeps its factors."
            )
        pattern = known_pattern("factorized", system, "factors are computed at once")
        options = {"assume": self.assume, "ordering": self.ordering, "factor_dtype": None}
        found = factor_of(np.asarray(data), pattern.indices, pattern.indptr, options)
        if found.factor is None and system.shape[0]:
            _refuse_singular("factorized", data)
        return found

    def solve(self, b: Any, trans: bool = False) -> Array:
        """x with A x = b, or A.T x = b; b is dense [order] or [order, columns]."""
        right = np.asarray(b)
        if right.ndim not in (1, 2) or right.shape[0] != self.matrix.shape[0]:
            raise ShapeError(f"Factor.solve got b of shape {right.shape} for a matrix of {self.matrix.shape}.")
        return as_array(self._factor.solve(right, trans, self.refine))

    def update(self, values: Any) -> Factor:
        """The factors of the matrix of the same pattern with other elements: its ordering is used again."""
        return Factor(self.matrix.with_data(values), self.assume, self.ordering, self.refine)

    def logdet(self) -> Array:
        """The logarithm of the absolute value of the determinant."""
        return as_array(np.asarray(self._factor.logdet()[1]))


def factorized(A: Any, *, assume: str = "general", ordering: str | None = None, refine: int = 1) -> Factor:
    """The factors of a square sparse matrix that is not traced, for solves with several right-hand sides.

    Arguments and errors are the same as in `spsolve`, and ConcretizationTypeError for a traced matrix.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> factor = sparse.factorized(sparse.eye(2))
    >>> factor.update(np.array([2.0, 4.0])).solve(np.ones(2)).tolist()
    [0.5, 0.25]
    """
    if not isinstance(A, SparseMatrix):
        raise InputTypeError(f"factorized got {type(A).__name__} for a sparse matrix.", "Use sparse.from_dense(A).")
    return Factor(A.tocsr(), assume, ordering, refine)
