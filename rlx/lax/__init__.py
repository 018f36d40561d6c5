"""rlx.lax: the primitive operations and control flow, as in jax.lax.

These functions do not promote dtypes: operands have one dtype, or are Python numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from rlx.lax import (
    barrier,
    collectives,
    composition,
    conditional,
    convolution,
    elementwise,
    fourier,
    indexing,
    loops,
    parametric,
    patches,
    product,
    ragged,
    random_bits,
    reduction,
    scanning,
    shape,
    solving,
    sorting,
    window_shapes,
    windows,
)
from rlx.lax.barrier import *
from rlx.lax.collectives import *
from rlx.lax.composition import *
from rlx.lax.conditional import *
from rlx.lax.convolution import *
from rlx.lax.elementwise import *
from rlx.lax.fourier import *
from rlx.lax.indexing import *
from rlx.lax.loops import *
from rlx.lax.parametric import *
from rlx.lax.patches import *
from rlx.lax.product import *
from rlx.lax.ragged import *
from rlx.lax.random_bits import *
from rlx.lax.reduction import *
from rlx.lax.scanning import *
from rlx.lax.shape import *
from rlx.lax.solving import *
from rlx.lax.sorting import *
from rlx.lax.window_shapes import *
from rlx.lax.windows import *
from rlx.offered_names import offer_names as _offer_names
from rlx.ops import precision
from rlx.ops.precision import *
from rlx.sharding.constraint import with_sharding_constraint

if _TYPE_CHECKING:  # imported on first use
    from rlx.lax import linalg as linalg

__all__ = [
    "linalg",
    "with_sharding_constraint",
]
__all__ += barrier.__all__
__all__ += collectives.__all__
__all__ += composition.__all__
__all__ += conditional.__all__
__all__ += convolution.__all__
__all__ += elementwise.__all__
__all__ += fourier.__all__
__all__ += indexing.__all__
__all__ += loops.__all__
__all__ += parametric.__all__
__all__ += patches.__all__
__all__ += precision.__all__
__all__ += product.__all__
__all__ += ragged.__all__
__all__ += random_bits.__all__
__all__ += reduction.__all__
__all__ += scanning.__all__
__all__ += shape.__all__
__all__ += solving.__all__
__all__ += sorting.__all__
__all__ += window_shapes.__all__
__all__ += windows.__all__


_offer_names(globals(), {"linalg": "rlx.lax.linalg"})
