"""How exact a product or a function is asked to be: Precision, DotAlgorithm, AccuracyMode and their kin.

rlx computes every product in the operands' dtype or wider, so that a request never makes it less exact.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from rlx.errors import UnsupportedError
from rlx.ir.types import dtype_of

__all__ = [
    "AccuracyMode",
    "DotAlgorithm",
    "DotAlgorithmPreset",
    "Precision",
    "PrecisionLike",
    "Tolerance",
]


class AccuracyMode(enum.Enum):
    """How exact an elementwise function is asked to be. rlx has one implementation of each.

    HIGHEST and DEFAULT give the same results.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.exp2(jnp.float32(3), accuracy=lax.AccuracyMode.HIGHEST).item()
    8.0
    """

    HIGHEST = 1
    DEFAULT = 2


class Tolerance(NamedTuple):
    """The error that an elementwise function may have: absolute, relative, in units of the last place.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.exp(jnp.float32(0), accuracy=lax.Tolerance(ulps=2)).item()
    1.0
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


class Precision(enum.Enum):
    """How exact a product is asked to be. Those of rlx are always as exact as the dtype allows.

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
    """A way to compute products: the dtypes that operands are rounded to, and that of the sum.

    rlx takes from it the dtype of the sum, and does not round operands.

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
    """Named algorithms: dtypes of the operands, of the sum, and how many products make one.

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
        """The dtype of the sum; None where any will do."""
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
    """The dtype in which a `precision` argument asks for sums; None where it leaves that open.

    Raises UnsupportedError for what is none.
    """
    if isinstance(precision, DotAlgorithm):
        return dtype_of(precision.accumulation_type)
    if isinstance(precision, DotAlgorithmPreset):
        return precision.accumulation_type
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        return DotAlgorithmPreset[precision].accumulation_type
    pair = precision if isinstance(precision, Sequence) and not isinstance(precision, str) else (precision,)
    for part in pair:
        if not isinstance(part, Precision) and part not in _PRECISION_NAMES:
            raise UnsupportedError(
                f"There is no precision {part!r}.",
                "Use None, a lax.Precision, a lax.DotAlgorithmPreset, or one of their names: "
                f"{', '.join(name for name in _PRECISION_NAMES if name)}.",
            )
    return None
