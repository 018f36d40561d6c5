"""Quantised weights: few bits a number, with scales for blocks of them.

Everything is made of rlx's public functions, and of one block, the product with a weight that stays packed, which
backends may claim. `import rlx` does not load this package.
"""

from rlx.quant.arrays import NF4_LEVELS, QuantizedArray, dequantize, quantize
from rlx.quant.products import dequant_matmul
from rlx.quant.schemes import QuantScheme

__all__ = ["NF4_LEVELS", "QuantScheme", "QuantizedArray", "dequant_matmul", "dequantize", "quantize"]
