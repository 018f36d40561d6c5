"""log |beta(a, b)| by Stirling's series, for operands whose log gammas would cancel.

The terms of a and b are gathered so that none is much larger than the result (DiDonato and Morris,
1992). For small or negative operands SciPy's function is exact.
"""

from __future__ import annotations

import math
from typing import Any

from rlx.ops.formulas import Formula

__all__ = ["log_beta_formula"]

# from here on the series below has an error under one unit in the last place of its value
LARGE = 10.0
COEFFICIENTS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def _remainder(x: Any) -> Any:
    """lgamma(x) - ((x - 1/2) log(x) - x + log(2 pi) / 2) for x >= LARGE."""
    inverse = 1 / x
    power = inverse * inverse
    series = power * COEFFICIENTS[-1]
    for coefficient in reversed(COEFFICIENTS[1:-1]):
        series = (series + coefficient) * power
    return inverse * (series + COEFFICIENTS[0])


def _log_beta(s: Any, a: Any, b: Any) -> Any:
    small, large = s.min(a, b), s.max(a, b)
    is_series = (large >= LARGE) & (large < math.inf) & (small > 0)
    # in cases that are not selected, the operands only have to be valid
    big, little = s.select(is_series, large, LARGE), s.select(is_series, small, 1.0)
    both = little >= LARGE
    common = _remainder(big) - _remainder(big + little) - (big - 0.5) * s.log1p(little / big)
    second = s.select(both, little, LARGE)
    of_both = _remainder(second) + 0.5 * s.log(2 * math.pi / second) - second * s.log1p(big / second)
    of_one = s.special("lgamma", little) - little * (s.log(big + little) - 1)
    series = common + s.select(both, of_both, of_one)
    return s.select(is_series, series, s.special("log_beta", a, b))


log_beta_formula = Formula(_log_beta)
