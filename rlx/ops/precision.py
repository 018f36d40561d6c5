"""The requested precision of a product or a function: Precision, DotAlgorithm, AccuracyMode and related types.

rlx computes every product in the operands' dtype or wider. A request for less than float32 lets devices round float32
operands to tf32 (ten fraction bits), which they multiply faster; other devices ignore it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from rlx.config import config
from rlx.errors import UnsupportedError
from rlx.ir.types import dtype_of, is_float
from rlx.ops.contract import DotDimensionNumbers, accumulation_dtype, cast, dot_general

__all__ = [
    "AccuracyMode",
    "DotAlgorithm",
    "DotAlgorithmPreset",
    "Precision",
    "PrecisionLike",
    "Tolerance",
]


class AccuracyMode(enum.Enum):
    """The requested precision of an elementwise function. rlx has one implementation of each.

    HIGHEST and DEFAULT give the same results.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.exp2(jnp.float32(3), accuracy=lax.AccuracyMode.HIGHEST).item()
    8.0
    """

    HIGHEST = 1
    DEFAULT = 2


class Tolerance(NamedTuple):
    """The error that an elementwise function may have: absolute, relative, in units in the last place.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.exp(jnp.float32(0), accuracy=lax.Tolerance(ulps=2)).item()
    1.0
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


class Precision(enum.Enum):
    """The requested precision of a product. HIGH lets float32 be rounded to tf32; DEFAULT and HIGHEST do not.

    >>> from rlx import lax
    >>> lax.Precision("float32")
    Precision.HIGHEST
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        return _PRECISION_NAMES.get(value) if isinstance(value, (str, type(None))) else None

    def __repr__(self) -> str:
        return f"Precision.{self.name}"

    def __str__(self) -> str:
        return self.name


_PRECISION_NAMES: dict[str | None, Precision] = {
    None: Precision.DEFAULT,
    "default": Precision.DEFAULT,
    "fastest": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT,
    "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH,
    "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST,
    "float32": Precision.HIGHEST,
}


class DotAlgorithm(NamedTuple):
    """A way to compute products: the dtypes that operands are rounded to, and the dtype of the sum.

    rlx uses the dtype of the sum. Operands are only rounded to tf32, and only if one product of 16-bit floats is
    requested and the device has such units.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> algorithm = lax.DotAlgorithm(jnp.float16, jnp.float16, jnp.float32)
    >>> lax.dot(jnp.ones(3, jnp.float16), jnp.ones(3, jnp.float16), precision=algorithm).item()
    3.0
    """

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """Named algorithms: dtypes of the operands, of the sum, and the number of products for one.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> x = jnp.ones(3, jnp.bfloat16)
    >>> lax.dot(x, x, precision=lax.DotAlgorithmPreset.BF16_BF16_F32).item()
    3.0
    """

    DEFAULT = 0
    ANY_F8_ANY_F8_F32 = 1
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 2
    ANY_F8_ANY_F8_ANY = 3
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 4
    F16_F16_F16 = 5
    F16_F16_F32 = 6
    BF16_BF16_BF16 = 7
    BF16_BF16_F32 = 8
    BF16_BF16_F32_X3 = 9
    BF16_BF16_F32_X6 = 10
    BF16_BF16_F32_X9 = 11
    TF32_TF32_F32 = 12
    TF32_TF32_F32_X3 = 13
    F32_F32_F32 = 14
    F64_F64_F64 = 15

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"

    @property
    def accumulation_type(self) -> np.dtype | None:
        """The dtype of the sum; None if any dtype is allowed."""
        parts = self.name.removesuffix("_FAST_ACCUM").split("_")
        return _ACCUMULATORS.get(next((p for p in reversed(parts) if not p.startswith("X")), ""))


_ACCUMULATORS = {
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}

PrecisionLike = (
    None | str | Precision | tuple[str, str] | tuple[Precision, Precision] | DotAlgorithm | DotAlgorithmPreset
)


def accumulation_of(precision: Any) -> np.dtype | None:
    """The dtype of the sum that a `precision` argument requests; None if it requests none.

    Raises UnsupportedError for an invalid argument.
    """
    if isinstance(precision, DotAlgorithm):
        return dtype_of(precision.accumulation_type)
    if isinstance(precision, DotAlgorithmPreset):
        return precision.accumulation_type
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        return DotAlgorithmPreset[precision].accumulation_type
    _parts(precision)
    return None


def _parts(precision: Any) -> Sequence[Any]:
    """The request for each operand: a Precision, or its name. Raises UnsupportedError for other values."""
    parts = precision if isinstance(precision, Sequence) and not isinstance(precision, str) else (precision,)
    for part in parts:
        if not isinstance(part, Precision) and part not in _PRECISION_NAMES:
            raise UnsupportedError(
                f"There is no precision {part!r}.",
                "Use None, a lax.Precision, a lax.DotAlgorithmPreset, or one of their names: "
                f"{', '.join(name for name in _PRECISION_NAMES if name)}.",
            )
    return parts


# requests no more exact than tf32: names, JAX's names for GPUs, and algorithms of one product of rounded operands
_COARSE_NAMES = frozenset((Precision.HIGH, "high", "bfloat16_3x", "tensorfloat32", "fastest", "bfloat16"))
_COARSE_PRESETS = frozenset("F16_F16_F16 F16_F16_F32 BF16_BF16_BF16 BF16_BF16_F32 TF32_TF32_F32".split())
_COARSE_DTYPES = frozenset((np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)))


def tf32_param(precision: Any, dtype: np.dtype) -> dict[str, bool]:
    """The parameter tf32 of a product of such operands, if `precision` allows rounding; None: the setting's."""
    asked = config.default_matmul_precision if precision is None else precision
    return {"tf32": True} if asked is not None and dtype == np.float32 and _is_coarse(asked) else {}


def _is_coarse(precision: Any) -> bool:
    if isinstance(precision, DotAlgorithm):
        rounded = {dtype_of(precision.lhs_precision_type), dtype_of(precision.rhs_precision_type)}
        return precision.num_primitive_operations == 1 and rounded <= _COARSE_DTYPES
    if isinstance(precision, DotAlgorithmPreset) or precision in DotAlgorithmPreset.__members__:
        return getattr(precision, "name", precision) in _COARSE_PRESETS
    return all(part in _COARSE_NAMES for part in _parts(precision))


def product(x: Any, y: Any, numbers: DotDimensionNumbers, precision: Any, preferred: np.dtype | None) -> Any:
    """dot_general with the precision `precision`; None: of the setting default_matmul_precision."""
    asked = config.default_matmul_precision if precision is None else precision
    if asked is None:
        return dot_general(x, y, dimension_numbers=numbers, preferred_dtype=preferred)
    wide = accumulation_of(asked)
    if wide is None or not is_float(x.dtype) or accumulation_dtype(x.dtype, preferred).itemsize >= wide.itemsize:
        coarse = tf32_param(asked, x.dtype)
        return dot_general(x, y, dimension_numbers=numbers, preferred_dtype=preferred, **coarse)
    result = x.dtype if preferred is None else preferred
    return cast(dot_general(cast(x, wide), cast(y, wide), dimension_numbers=numbers, preferred_dtype=None), result)
