"""Products, solvers and sparse derivatives on every device, beside the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_systems import convection, drawn, poisson

import rlx
import rlx.numpy as jnp
from rlx import sparse

MESH, FLOW = sparse.CSR.fromscipy(poisson(4)), sparse.CSR.fromscipy(convection(4))
DRAWN = sparse.CSR.fromscipy(sp.csr_array(drawn(9, 16, 60)))
X = np.linspace(-1.0, 2.0, 16)
COLUMNS = np.sin(np.arange(48.0)).reshape(16, 3)


def local(u: Any) -> Any:
    """A nonlinear function with a sparse Jacobian."""
    v = jnp.pad(u, 1)
    return v[2:] * u - v[:-2] ** 2


def moved(d: Any) -> sparse.CSR:
    """A system near that of the flow."""
    return FLOW.with_data(FLOW.data.astype(d.dtype) + 0.01 * d[: FLOW.nnz])


def preconditioned(x: Any) -> Any:
    """A solution by conjugate gradients."""
    mesh = MESH.astype(x.dtype)
    return sparse.cg(mesh, x, tol=1e-10 if x.dtype == "f8" else 1e-6, M=sparse.jacobi(mesh))[0]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "product": lambda d, x: DRAWN.with_data(d[: DRAWN.nnz]) @ x,
    "columns": lambda d, x: (DRAWN.with_data(d[: DRAWN.nnz]) @ (COLUMNS.astype(x.dtype) * x[:, None])).sum(1),
    "transposed": lambda d, x: x[:9] @ DRAWN.with_data(d[: DRAWN.nnz]),
    "gradient": lambda d, x: rlx.grad(lambda a: ((a @ x) ** 2).sum())(DRAWN.with_data(d[: DRAWN.nnz])).data,
    "second derivative": lambda d, x: rlx.hvp(lambda x: ((DRAWN.astype(x.dtype) @ x) ** 4).sum(), (x,), (d[:16],)),
    "batch": lambda d, x: rlx.vmap(lambda s: DRAWN.with_data(d[: DRAWN.nnz] * s) @ x)(jnp.arange(3, dtype=x.dtype)),
    "sampled": lambda d, x: sparse.sddmm(jnp.outer(x[:9], x), jnp.outer(x, d[:16]), DRAWN).data,
    "sparse product": lambda d, x: ((DRAWN.with_data(d[: DRAWN.nnz]) @ FLOW.astype(x.dtype)) @ x),
    "diagonals": lambda d, x: sparse.DIA(d[:48].reshape(3, 16), [-1, 0, 2], (16, 16)) @ x,
    "traced pattern": lambda d, x: (
        sparse.CSR(d[: DRAWN.nnz], DRAWN.indices + jnp.int32(0 * d[0]), DRAWN.indptr, (9, 16)) @ x
    ),
    "direct": lambda d, x: sparse.spsolve(moved(d), x),
    "gradient of a solution": lambda d, x: rlx.grad(lambda e: sparse.spsolve(FLOW.with_data(e), x).sum())(
        moved(d).data
    ),
    "determinant": lambda d, x: sparse.logdet(moved(d))[None],
    "gradients": lambda d, x: preconditioned(x),
    "incomplete factors": lambda d, x: sparse.ilu0(moved(d))(x),
    "jacobian": lambda d, x: rlx.jacobian(local, sparse=True)(x).data,
    "hessian": lambda d, x: rlx.sparse_hessian(lambda u: (local(u) ** 2).sum())(x).data,
    "newton": lambda d, x: sparse.spsolve(rlx.jacobian(lambda u: local(u) + 9 * u, sparse=True)(x), x),
}


@cache
def missing(device: str) -> str:
    """Why the device cannot run; empty if it can."""
    try:
        return "" if rlx.jit(lambda x: x + 1, device=device)(np.float32(1)) == 2 else "wrong"
    except (rlx.errors.DeviceError, ImportError) as error:
        return str(error)


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["reference", "c", "numba", "opencl", "mlx"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_devices_agree(program: str, device: str) -> None:
    if missing(device):
        pytest.skip(missing(device))
    function = PROGRAMS[program]
    single = device == "mlx"  # float32 alone
    d, x = np.cos(np.arange(64.0)), X
    wanted = np.asarray(rlx.jit(function)(d, x))
    if single:
        d, x = d.astype("f4"), x.astype("f4")
    found = rlx.jit(function, device=device)(d, x)
    tolerance = 2e-4 if single else 1e-11
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(1.0, np.abs(wanted).max()))
