"""rlx.scipy.cluster and rlx.scipy.integrate against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.integrate
from linalg_cases import batch_is_a_loop, close, matrix

import rlx
from rlx import errors
from rlx.testing import check_grads

vq = rlx.scipy.cluster.vq.vq


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_vector_quantisation(dtype: str) -> None:
    points, codes = (4 * matrix(9, 3)).astype(dtype), (4 * matrix(4, 3, seed=1)).astype(dtype)
    for x, y in ((points, codes), (points[:, 0], codes[:, 0])):
        expected = scipy.cluster.vq.vq(x.astype("f8"), y.astype("f8"))
        for run in (vq, rlx.jit(vq)):
            for found, value in zip(run(x, y), expected, strict=True):
                np.testing.assert_allclose(found, value, rtol=1e-5)


def test_derivatives_and_batches_of_vector_quantisation() -> None:
    points, codes = matrix(5, 2), matrix(3, 2, seed=1)
    check_grads(lambda x, y: vq(x, y)[1], (points, codes), order=2)
    batch_is_a_loop(vq, (points, codes), (0, None))


def test_wrong_codes() -> None:
    for first, second in (((3, 2), (2,)), ((3, 2), (2, 3)), ((3, 2), (0, 2)), ((2, 2, 2), (2, 2, 2))):
        with pytest.raises(errors.ShapeError, match="vq got observations"):
            vq(np.ones(first), np.ones(second))


def test_trapezoid() -> None:
    y, x = matrix(3, 5), np.cumsum(np.arange(5.0))
    close(rlx.scipy.integrate.trapezoid(y, x), scipy.integrate.trapezoid(y, x))
    close(rlx.scipy.integrate.trapezoid(y, dx=0.5, axis=0), scipy.integrate.trapezoid(y, dx=0.5, axis=0))
