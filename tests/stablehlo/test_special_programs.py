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


@pytest.mark.thorough
@pytest.mark.parametrize("name", DRAWS)
def test_in_float32(name: str) -> None:
    """What TPUs compute: two fifths of the results to 2e-5, nine tenths to 5e-4; tails and differences lose digits."""
    arrays = [x.astype(np.float32) for x in drawn(name, 300)]
    if name == "polygamma":  # of whole orders
        arrays[0] = np.floor(arrays[0])
    program = special_program(name, arrays[0].shape, dtype=np.dtype(np.float32))
    assert "f64" not in (text := write_program(program, name))
    found = on_pjrt(text, arrays)[0].astype(np.float64)
    with np.errstate(all="ignore"):
        expected = SPECIAL[name].evaluate(*(x.astype(np.float64) for x in arrays))
    usual = np.logical_and.reduce([(np.abs(x) < 1e30) & ((np.abs(x) > 1e-30) | (x == 0)) for x in [*arrays, expected]])
    usual &= expected != 0
    assert usual.sum() > 20
    error = np.abs(found[usual] / expected[usual] - 1)
    shares = [np.mean(error < bound) for bound in (2e-5, 5e-4, 2e-2)]
    assert shares[0] > 0.4 and shares[1] > 0.9 and shares[2] > 0.99, shares
