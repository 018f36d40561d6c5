"""The array API standard: versions, inspection, dtypes, data exchange, and corners of single functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as rnp
from rlx import errors
from rlx.config import scoped


def test_version_and_namespace() -> None:
    """Arrays lead to the module, which names its version."""
    assert rnp.__array_api_version__ == "2024.12"
    x = rnp.ones(2)
    assert x.__array_namespace__() is rnp and x.__array_namespace__(api_version="2023.12") is rnp
    with pytest.raises(ValueError, match="1999"):
        x.__array_namespace__(api_version="1999.12")


def test_inspection() -> None:
    """Capabilities, devices, dtypes by kind, defaults as configured."""
    info = rnp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert rnp.zeros((1,) * 64).ndim == info.capabilities()["max dimensions"]
    assert info.default_device() in info.devices() == rlx.devices("cpu")
    assert info.default_dtypes()["real floating"] == np.float32 and info.default_dtypes()["indexing"] == np.int32
    with scoped(default_float=np.dtype("f8")):
        assert info.default_dtypes()["complex floating"] == np.complex128
    assert set(info.dtypes(kind="bool")) == {"bool"} and len(info.dtypes()) == 13
    assert set(info.dtypes(kind=("real floating", "complex floating"))) < set(info.dtypes(kind="numeric"))
    assert all(rnp.zeros(1, dtype=d).dtype == d for d in info.dtypes().values())
    with pytest.raises(errors.DtypeError, match="colour"):
        info.dtypes(kind="colour")
    with pytest.raises(errors.DeviceError):
        info.dtypes(device="abacus")


def test_result_type_of_dtypes() -> None:
    """The module's dtypes are strong, Python's classes are weak."""
    assert rnp.result_type(rnp.int8, rnp.int64) == np.int64
    assert rnp.result_type(rnp.int8, int) == np.int8
    assert rnp.float32 != "not a dtype" and rnp.float32 != (1, 2) and rnp.float32 == "float32"


def test_copy_false() -> None:
    """asarray shares memory or raises."""
    x = np.ones(2, "f4")
    shared = rnp.asarray(x, copy=False)
    assert np.shares_memory(np.asarray(shared), x) and rnp.asarray(shared, copy=False) is shared
    with pytest.raises(ValueError, match="copy"):
        rnp.asarray(x, rnp.float64, copy=False)


def test_data_exchange() -> None:
    """DLPack there and back, with copies on demand."""
    x = rnp.arange(6.0).reshape(2, 3)
    assert x.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(x).tolist() == x.tolist() == rnp.from_dlpack(x).tolist()
    values = np.arange(3)
    assert np.shares_memory(np.asarray(rnp.from_dlpack(values)), values)
    assert not np.shares_memory(np.asarray(rnp.from_dlpack(values, copy=True)), values)


def test_masks_with_axes_of_no_elements() -> None:
    """A mask may have size 0 where the array does not; axes of size 0 can be picked from by nothing."""
    assert rnp.ones(3)[np.zeros(0, bool)].shape == (0,)
    assert rnp.ones((0, 2))[np.zeros(0, bool)].shape == (0, 2)
    assert rnp.ones((0, 2))[np.zeros((0, 2), bool)].shape == (0,)
    assert rnp.repeat(rnp.ones(0), np.zeros(0, int)).shape == (0,)
    with pytest.raises(IndexError, match="size 0"):
        rnp.ones(0)[np.zeros(1, int)]


SIGNED = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, np.inf, -np.inf, np.nan], "f4")


@pytest.mark.parametrize("name", ["remainder", "floor_divide", "fmod"])
@pytest.mark.parametrize("way", [lambda f: f, rlx.jit], ids=["eager", "jit"])
def test_signs_of_zero_in_quotients(name: str, way: Any) -> None:
    """Bit for bit NumPy's results."""
    x, y = np.meshgrid(SIGNED, SIGNED)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    found = np.asarray(way(getattr(rnp, name))(x, y))
    np.testing.assert_array_equal(found, expected)
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[there], np.signbit(expected)[there])


def test_remainder_has_derivatives_at_multiples() -> None:
    """1 with respect to x, -floor(x / y) with respect to y, also where the result is a zero."""
    for x, y in ((6.0, 3.0), (-6.0, 3.0), (6.0, -3.0), (7.0, 3.0)):
        assert [v.item() for v in rlx.grad(rnp.remainder, (0, 1))(x, y)] == [1.0, -np.floor(x / y)]


def test_corners_of_single_functions() -> None:
    """Widened running sums, exact complex fills, linspace in the wanted precision, 0-d nonzero."""
    assert rnp.cumulative_sum(np.ones(2, "u1")).dtype == np.uint32
    assert rnp.cumulative_prod(np.ones(2, "i2")).dtype == np.int16  # only sums are widened, as in JAX
    assert rnp.full_like(np.zeros(1, "c16"), 16777217j).item() == 16777217j
    assert rnp.linspace(16777217.0, 0.0, 1, dtype=rnp.float64).item() == 16777217.0
    assert rnp.cumsum(np.array([-1, 1, 0]), dtype=bool).tolist() == [True, True, True]
    with pytest.raises(errors.ShapeError, match="atleast_1d"):
        rnp.nonzero(rnp.float32(1))
    assert rnp.argwhere(rnp.float32(1)).shape == (1, 0)
    assert rnp.gcd(np.array([12, 0, -8, 2**31 - 1], "i4"), 18).tolist() == [6, 18, 2, 1]


def test_matmul_broadcasts_all_leading_axes() -> None:
    """Axes of size 0, 1 and 2 on either side, or missing on one."""
    leads = [shape for rank in range(3) for shape in np.ndindex(*(3,) * rank)]
    for left in leads:
        for right in leads:
            x, y = np.ones((*left, 2, 3), "f4"), np.ones((*right, 3, 1), "f4")
            try:
                expected = (x @ y).shape
            except ValueError:
                with pytest.raises(errors.ShapeError):
                    rnp.matmul(x, y)
                continue
            assert rnp.matmul(x, y).shape == expected


def test_axes_outside_are_index_errors_too() -> None:
    """As NumPy's AxisError: ValueError and IndexError."""
    for kind in (ValueError, IndexError, errors.ShapeError):
        with pytest.raises(kind, match="axis 2"):
            rnp.sum(np.ones((2, 2)), axis=2)
        with pytest.raises(kind, match="axis -3"):
            rnp.expand_dims(np.ones(1), -3)
