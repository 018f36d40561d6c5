"""Special functions as programs that other compilers run: SciPy's values, limits, and those without code."""

from __future__ import annotations

import numpy as np
import pytest
from special_samples import DRAWS, LIMITS, LOOSE, close_to_scipy, drawn
from test_stablehlo import on_pjrt

from rlx.ir.scalar import SPECIAL
from rlx.stablehlo.writing import write_program
from rlx.standalone.special_functions import has_special_program, special_program


def computed(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    """What PJRT computes."""
    text = write_program(special_program(name, arrays[0].shape), name)
    return on_pjrt(text, arrays)[0]


@pytest.mark.parametrize("name", DRAWS)
def test_values_and_limits(name: str) -> None:
    """Over the function's range, at zero, infinity and NaN, and beyond where there is a function, all at once."""
    arrays = drawn(name, 300)
    if name == "polygamma":  # of whole orders
        arrays[0] = np.floor(arrays[0])
    count = arrays[0].size
    if name in LIMITS:
        axes = np.meshgrid(*[np.array(LIMITS[name])] * len(arrays))
        arrays = [np.concatenate([x, axis.ravel()]) for x, axis in zip(arrays, axes, strict=True)]
    found = computed(name, arrays)
    close_to_scipy(name, found[:count], [x[:count] for x in arrays], LOOSE.get(name, 2e-13))
    limits = SPECIAL[name].evaluate(*(x[count:] for x in arrays))
    np.testing.assert_allclose(found[count:], limits, rtol=1e-10, atol=1e-249)


def test_those_without_code() -> None:
    missing = {name for name in SPECIAL if not has_special_program(name)}
    assert {n.removesuffix("_real_part").removesuffix("_imaginary_part") for n in missing} == {
        "lgamma", "igamma_inverse", "bessel_j", "confluent_hypergeometric", "hypergeometric", "faddeeva",
    }  # fmt: skip
