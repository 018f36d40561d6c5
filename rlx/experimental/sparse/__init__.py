"""rlx.experimental.sparse: sparse arrays under JAX's names. rlx.sparse has static patterns and solvers."""

from rlx.experimental.sparse import linalg
from rlx.experimental.sparse.arrays import (
    BCOO,
    BCSR,
    CuSparseEfficiencyWarning,
    JAXSparse,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    todense,
)
from rlx.experimental.sparse.functions import (
    bcoo_dot_general,
    bcoo_fromdense,
    bcoo_multiply_dense,
    bcoo_reduce_sum,
    bcoo_reshape,
    bcoo_sum_duplicates,
    bcoo_todense,
    bcoo_transpose,
    bcsr_dot_general,
    bcsr_fromdense,
    bcsr_todense,
    empty,
    eye,
    grad,
    value_and_grad,
)
from rlx.experimental.sparse.sparsified import sparsify

__all__ = [
    "BCOO",
    "BCSR",
    "CuSparseEfficiencyWarning",
    "JAXSparse",
    "SparseEfficiencyError",
    "SparseEfficiencyWarning",
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
    "linalg",
    "sparsify",
    "todense",
    "value_and_grad",
]
