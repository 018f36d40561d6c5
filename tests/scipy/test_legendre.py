"""lpmn and lpmn_values beside jax's."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import rlx
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.scipy.special import lpmn, lpmn_values

POINTS = np.array([-1.0, -0.9, -0.3, 0.0, 0.2, 0.77, 1.0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("last", [0, 3])
@pytest.mark.selected(1)
def test_values_and_derivatives_are_jax_s(last: int) -> None:
    with jax.enable_x64(True), rlx.enable_x64():
        for normalised in (False, True):
            wanted = jax.scipy.special.lpmn_values(last, last, POINTS, normalised)
            found = np.asarray(lpmn_values(last, last, POINTS, normalised))
            np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-9, atol=1e-9)
        _, slopes = jax.scipy.special.lpmn(last, last, POINTS)
        np.testing.assert_allclose(np.asarray(lpmn(last, last, POINTS)[1]), np.asarray(slopes), rtol=1e-8, atol=1e-8)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Pass equal numbers"):
        lpmn_values(1, 2, POINTS, False)
    with pytest.raises(DtypeError, match="Pass float32 or float64"):
        lpmn(1, 1, np.arange(3))
    with pytest.raises(ShapeError, match="Pass a vector"):
        lpmn(1, 1, np.zeros((2, 2)))
