"""Quantised weights: a few bits per number, with a scale per block.

Everything is made of rlx's public functions, and of one block, the product with a weight that stays packed, which
backends may claim. `import rlx` does not load this package.
"""

from rlx.offered_names import offer_names
from rlx.quant.arrays import NF4_LEVELS, QuantizedArray, dequantize, double_quantize, quantize
from rlx.quant.calibration import Calibrator, calibrate
from rlx.quant.integer_conversion import integer_program
from rlx.quant.integer_program import IntegerProgram
from rlx.quant.products import dequant_matmul
from rlx.quant.propagation import quant_propagate, quantized_weight_bits
from rlx.quant.ragged_products import dequant_ragged_dot
from rlx.quant.records import CalibrationEntry, CalibrationRecord, QuantMap, quantize_dequantize
from rlx.quant.scales import QuantizedScales
from rlx.quant.schemes import QuantScheme
from rlx.quant.taps import insert_q_dq, taps_of
from rlx.quant.training import fake_quantize, first_scale, lsq, observed_scale

__all__ = [
    "NF4_LEVELS",
    "CalibrationEntry",
    "CalibrationRecord",
    "Calibrator",
    "IntegerProgram",
    "QuantMap",
    "QuantScheme",
    "QuantizedArray",
    "QuantizedScales",
    "calibrate",
    "dequant_matmul",
    "dequant_ragged_dot",
    "dequantize",
    "double_quantize",
    "fake_quantize",
    "first_scale",
    "insert_q_dq",
    "integer_program",
    "lsq",
    "observed_scale",
    "quant_propagate",
    "quantize",
    "quantize_dequantize",
    "quantized_weight_bits",
    "taps_of",
]

offer_names(globals())
