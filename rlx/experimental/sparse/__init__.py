"""rlx.experimental.sparse: sparse arrays under JAX's names. rlx.sparse has static patterns and solvers."""

from rlx.experimental.sparse import arrays, functions, linalg
from rlx.experimental.sparse.arrays import *
from rlx.experimental.sparse.functions import *
from rlx.experimental.sparse.sparsified import sparsify

__all__ = ["linalg", "sparsify"]
__all__ += arrays.__all__
__all__ += functions.__all__
