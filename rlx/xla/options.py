"""The operations and dtypes that XLA gets from rlx."""

from __future__ import annotations

from rlx.backends.claims import Claims
from rlx.ir.types import bits_of, supported_dtypes
from rlx.stablehlo.writing.writer import ROUTINES

__all__ = ["CLAIMS", "TPUS", "emulates_float64"]

TPUS = ("v5e", "v6e")  # the kinds that libtpu compiles for without one
# XLA's compiler for processors ends the process at some operations on numbers of less than a byte
_DTYPES = frozenset(dtype for dtype in supported_dtypes if bits_of(dtype) >= 8)
CLAIMS = Claims(routines=ROUTINES.routines, dtypes=_DTYPES)


def emulates_float64(platform: str) -> bool:
    """Whether a platform, or a kind of TPU, computes float64 with several numbers of float32."""
    return platform == "tpu" or platform in TPUS
