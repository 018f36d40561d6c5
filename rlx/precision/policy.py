"""Precision policies: the float in which each kind of operation computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import ml_dtypes
import numpy as np

from rlx.errors import RlxError
from rlx.precision.block_scale import CastConfig
from rlx.trace.primitive import registry

__all__ = ["OperationKind", "Precision", "PrecisionPolicy", "operation_kind"]


class Precision(Enum):
    """A float in which an operation may compute instead of float32.

    >>> import rlx
    >>> rlx.precision.Precision("bfloat16").dtype
    dtype(bfloat16)
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @property
    def dtype(self) -> np.dtype:
        """Its dtype."""
        return np.dtype(ml_dtypes.bfloat16) if self is Precision.BFLOAT16 else np.dtype(self.value)


class OperationKind(Enum):
    """The kinds of operations that a precision policy distinguishes.

    COMPUTE: products (matrix products, convolutions). ELEMENTWISE: sums, products, selection and bounded functions of
    elements. REDUCTION: sums, maxima and cumulative ones. SENSITIVE: functions that lose precision or overflow in 16
    bits (exp, log, powers, square roots, special functions). DATA_MOVEMENT: elements moved, not changed. BOUNDARY: all
    else (comparisons, casts, bits, sorting, library routines, control flow, callbacks), which computes in the
    program's dtypes.

    >>> import rlx
    >>> rlx.precision.operation_kind("reduce_sum")
    <OperationKind.REDUCTION: 'reduction'>
    """

    COMPUTE = "compute"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    SENSITIVE = "sensitive"
    DATA_MOVEMENT = "data_movement"
    BOUNDARY = "boundary"


_NAMES = {
    OperationKind.COMPUTE: "dot_general conv_general_dilated",
    OperationKind.ELEMENTWISE: "absolute add clamp copysign divide erf erfc fma logistic maximum minimum multiply"
    " negative select subtract tanh",
    OperationKind.REDUCTION: "argmax argmin cumlogsumexp cummax cummin cumprod cumsum overlap_add pmax pmin psum"
    " reduce_max reduce_min reduce_prod reduce_sum reduce_window scatter_add scatter_max scatter_min scatter_mul"
    " select_and_scatter_add",
    OperationKind.SENSITIVE: "acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e betainc cbrt cos cosh"
    " digamma erf_inv exp exp2 expm1 igamma igammac integer_power lgamma log log1p logaddexp polygamma power remainder"
    " rsqrt sin sinh sqrt square tan zeta",
    OperationKind.DATA_MOVEMENT: "broadcast_in_dim concatenate dynamic_slice dynamic_update_slice gather pad reshape"
    " reverse scatter slice stop_gradient transpose windows",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def operation_kind(primitive: str) -> OperationKind:
    """The kind of a primitive, by its name.

    >>> operation_kind("dot_general"), operation_kind("exp").value
    (<OperationKind.COMPUTE: 'compute'>, 'sensitive')
    """
    return _KINDS.get(primitive, OperationKind.BOUNDARY)


@dataclass(frozen=True)
class PrecisionPolicy:
    """The precision of each kind of operation; only float32 values are narrowed.

    movement: None keeps the precision of moved elements. overrides: precisions of single primitives, by name. If
    reductions and sensitive functions keep float32, so do the elementwise operations that lead to one or to a library
    routine (from a product on, for instance), and those that take its result: softmax, normalisations, losses and
    solves are float32 as a whole. Products of 16-bit operands are summed in float32. cast: operands of matrix products
    are rounded to eight bits with a scale for each block along the (last) contracted axis, instead of to `compute`;
    this does not apply to convolutions.

    Create one with a class method, or specify everything:

    >>> PrecisionPolicy.mixed().elementwise
    <Precision.BFLOAT16: 'bfloat16'>
    >>> PrecisionPolicy.custom(compute="float16", overrides={"tanh": "float16"}).precision("tanh").value
    'float16'
    """

    compute: Precision = Precision.FLOAT32
    elementwise: Precision = Precision.FLOAT32
    reduction: Precision = Precision.FLOAT32
    sensitive: Precision = Precision.FLOAT32
    movement: Precision | None = None
    overrides: Mapping[str, Precision] = field(default_factory=dict)
    cast: CastConfig | None = None

    @classmethod
    def float32(cls) -> PrecisionPolicy:
        """No change."""
        return cls()

    @classmethod
    def float16(cls) -> PrecisionPolicy:
        """Everything in float16; sums inside products and reductions in float32."""
        half = Precision.FLOAT16
        return cls(half, half, half, half)

    @classmethod
    def bfloat16(cls) -> PrecisionPolicy:
        """Everything in bfloat16; sums inside products and reductions in float32."""
        half = Precision.BFLOAT16
        return cls(half, half, half, half)

    @classmethod
    def mixed(cls, half: Precision | str = Precision.BFLOAT16) -> PrecisionPolicy:
        """Products and elementwise operations in 16 bits; reductions, softmax, norms, losses in float32."""
        return cls(compute=_precision(half), elementwise=_precision(half))

    @classmethod
    def mixed_conservative(cls, half: Precision | str = Precision.BFLOAT16) -> PrecisionPolicy:
        """Operands of products in 16 bits; everything else in float32."""
        return cls(compute=_precision(half))

    @classmethod
    def custom(
        cls,
        *,
        compute: Precision | str = Precision.FLOAT32,
        elementwise: Precision | str = Precision.FLOAT32,
        reduction: Precision | str = Precision.FLOAT32,
        sensitive: Precision | str = Precision.FLOAT32,
        movement: Precision | str | None = None,
        overrides: Mapping[str, Precision | str] | None = None,
        cast: CastConfig | None = None,
    ) -> PrecisionPolicy:
        """A custom policy. Raises RlxError for unknown names."""
        given = {name: _precision(value) for name, value in (overrides or {}).items()}
        for name in given:
            if name not in registry:
                raise RlxError(f"A precision policy names {name!r}, which is not a primitive.", _KNOWN)
            if operation_kind(name) is OperationKind.BOUNDARY:
                raise RlxError(f"A precision policy names {name!r}, which computes in its operands' dtypes.", _KNOWN)
        return cls(
            _precision(compute),
            _precision(elementwise),
            _precision(reduction),
            _precision(sensitive),
            None if movement is None else _precision(movement),
            given,
            cast,
        )

    def precision(self, primitive: str) -> Precision | None:
        """The precision of a primitive; None for the precision of its operands, or for a boundary."""
        found = self.overrides.get(primitive)
        if found is not None:
            return found
        match operation_kind(primitive):
            case OperationKind.COMPUTE:
                return self.compute
            case OperationKind.ELEMENTWISE:
                return self.elementwise
            case OperationKind.REDUCTION:
                return self.reduction
            case OperationKind.SENSITIVE:
                return self.sensitive
            case OperationKind.DATA_MOVEMENT:
                return self.movement
        return None

    @property
    def is_identity(self) -> bool:
        """Whether no operation is narrowed."""
        chosen = [self.compute, self.elementwise, self.reduction, self.sensitive, *self.overrides.values()]
        unmoved = self.movement in (None, Precision.FLOAT32) and self.cast is None
        return unmoved and all(p is Precision.FLOAT32 for p in chosen)


_KNOWN = "Name primitives as rlx.make_program(f)(...) prints them: dot_general, tanh, reduce_sum, ..."


def _precision(value: Precision | str) -> Precision:
    try:
        return Precision(value)
    except ValueError:
        known = ", ".join(p.value for p in Precision)
        raise RlxError(f"There is no precision {value!r}.", f"There are: {known}.") from None
