"""Products: matmul and its kin in all ranks, einsum in all forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparison import agree, draw

import rlx.numpy as rnp
from rlx import errors, lax

SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((7, 5, 2, 3), (7, 1, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((2, 0), (0, 4)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul(shapes: Any) -> None:
    """Every pairing of ranks, broadcast batches, empty contraction."""
    left, right = shapes
    found = rnp.matmul(draw(left), draw(right, seed=1))
    expected = np.matmul(draw(left), draw(right, seed=1))
    assert found.shape == expected.shape
    np.testing.assert_allclose(np.asarray(found), expected, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["i4", "u1", "?", "c8", "f8", "bfloat16", "f2"])
def test_dtypes(dtype: str) -> None:
    """Every kind of number."""
    x, y = draw((2, 3), dtype, -2, 2), draw((3, 2), dtype, -2, 2, seed=1)
    agree("matmul", x, y, traced=False)
    agree("matmul", x, draw((3,)), traced=False)


CALLS: list[tuple[Any, ...]] = [
    ("dot", draw((2, 3)), draw((4, 3, 5))),
    ("dot", draw((2, 3)), 2.0),
    ("inner", draw((2, 3)), draw((4, 3))),
    ("outer", draw((2, 2)), draw((3,))),
    ("vdot", draw((2, 2), "c8"), draw((4,), "c8", seed=1)),
    ("vecdot", draw((2, 3), "c8"), draw((3,), "c8", seed=1)),
    ("matvec", draw((2, 3)), draw((5, 3))),
    ("vecmat", draw((5, 2)), draw((2, 3))),
    ("tensordot", draw((2, 3, 4)), draw((3, 4, 5)), 2),
    ("tensordot", draw((2, 3, 4)), draw((4, 3, 5)), ((1, 2), (1, 0))),
    ("tensordot", draw((2,)), draw((3,)), 0),
    ("kron", draw((2, 3)), draw((4,))),
    ("kron", draw((2,)), draw((2, 2, 1))),
    ("einsum", "ij,jk->ik", draw((2, 3)), draw((3, 4))),
    ("einsum", "ij,jk", draw((2, 3)), draw((3, 4))),
    ("einsum", "bij,bjk->bik", draw((2, 3, 4)), draw((2, 4, 5))),
    ("einsum", "ii->i", draw((3, 3))),
    ("einsum", "ii", draw((3, 3))),
    ("einsum", "iij->ji", draw((3, 3, 2))),
    ("einsum", "ij->", draw((3, 3))),
    ("einsum", "ij->ji", draw((2, 3))),
    ("einsum", "i,j,k->ijk", draw((2,)), draw((3,)), draw((4,))),
    ("einsum", "ab,bc,cd,de->ae", draw((2, 3)), draw((3, 4)), draw((4, 5)), draw((5, 2))),
    ("einsum", "...ij,...jk->...ik", draw((2, 1, 3, 4)), draw((5, 4, 2))),
    ("einsum", "i...,i->...", draw((3, 2, 2)), draw((3,))),
    ("einsum", "ij,ij,ij->j", draw((2, 3)), draw((2, 3), seed=1), draw((2, 3), seed=2)),
    ("einsum", "ij,kl->il", draw((2, 3)), draw((4, 5))),
    ("einsum", "bhqd,bhkd->bhqk", draw((2, 2, 3, 4)), draw((2, 2, 5, 4))),
    ("einsum", "i,i->i", draw((3,), "i4"), draw((3,), "i4", seed=1)),
    ("linalg.norm", draw((3, 4))),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda c: f"{c[0]} {c[1]}"[:30])
def test_calls(call: tuple[Any, ...]) -> None:
    """Each call gives what jax gives."""
    name, *args = call
    agree(name, *args)


def test_einsum_with_numbered_axes_and_paths() -> None:
    """NumPy's other spelling; an explicit order."""
    x, y = draw((2, 3)), draw((3, 4), seed=1)
    found = rnp.einsum(x, [0, 1], y, [1, 2], [0, 2])
    np.testing.assert_allclose(np.asarray(found), x @ y, 1e-5)
    path = rnp.einsum_path("ij,jk,kl->il", x, y, draw((4, 2)))[0]
    assert path in ([(0, 1), (0, 1)], [(1, 2), (0, 1)])
    chained = rnp.einsum("ij,jk,kl->il", x, y, draw((4, 2)), optimize=path)
    named = rnp.einsum("ij,jk,kl->il", x, y, draw((4, 2)), optimize=["einsum_path", *path])
    np.testing.assert_array_equal(named, chained)
    np.testing.assert_allclose(np.asarray(chained), x @ y @ draw((4, 2)), 1e-4)


def test_mistakes_are_explained() -> None:
    """Shapes are named."""
    with pytest.raises(errors.ShapeError, match=r"\(2, 3\).*\(2, 3\)"):
        rnp.ones((2, 3)) @ rnp.ones((2, 3))
    with pytest.raises(errors.ShapeError, match="0-d"):
        rnp.matmul(rnp.ones(3), 2.0)
    with pytest.raises(errors.ShapeError, match="'j'"):
        rnp.einsum("ij,jk->ik", rnp.ones((2, 3)), rnp.ones((4, 2)))
    with pytest.raises(errors.ShapeError, match="'ijk'"):
        rnp.einsum("ijk->i", rnp.ones((2, 3)))


def test_einsum_with_a_product_of_the_caller_s() -> None:
    calls = []

    def dot_general(*args, **options):
        calls.append(args[2])
        return lax.dot_general(*args, **options)

    x = np.arange(6.0).reshape(2, 3)
    found = rnp.einsum("ij,kj->ik", x, x, _dot_general=dot_general)
    np.testing.assert_allclose(found, x @ x.T)
    assert calls == [(((1,), (1,)), ((), ()))]
