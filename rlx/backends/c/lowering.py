"""What lowering goes by where kernels become C."""

from __future__ import annotations

from rlx.ir.options import LoweringOptions

__all__ = ["C_LOWERING"]

# kernels run one after the other, not band by band; long sums are cut in chunks, which makes them exacter
C_LOWERING = LoweringOptions(least_bands=0)
