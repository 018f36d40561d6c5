"""Library routines over MLX: transforms, and the factorisations that agree with LAPACK, on the processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rlx.backends.mlx.library import MxArray, mx, on_processor
from rlx.ir.kernels import Library

__all__ = ["ROUTINES", "Routine", "why_not_routine"]

Attributes = dict[str, Any]


class Routine(NamedTuple):
    """A routine of MLX: a function of arrays, the dtypes that it takes, and its other limits."""

    run: Callable[[Sequence[MxArray], Attributes], Sequence[MxArray]]
    dtypes: str  # NumPy's type characters
    refuses: Callable[[Library], str | None] = lambda kernel: None


def why_not_routine(kernel: Library) -> str | None:
    """The reason that a routine runs on the host; None if MLX computes it."""
    if kernel.meaning is not None:
        return None  # a claimed block
    routine = ROUTINES.get(kernel.routine)
    if routine is None:
        return _CAUSES.get(kernel.routine, f"MLX has no routine {kernel.routine}")
    if any(0 in o.shape for o in (*kernel.inputs, *kernel.outputs)):
        return "MLX takes no arrays without elements"
    for operand in (*kernel.inputs, *kernel.outputs):
        dtype = operand.buffer.dtype
        if dtype.char not in routine.dtypes:
            return f"MLX's {kernel.routine} takes no {dtype.name}"
    return routine.refuses(kernel)


# ------------------------------------------------------------------ transforms
def _fft(inputs: Sequence[MxArray], attributes: Attributes) -> Sequence[MxArray]:
    lengths = attributes["lengths"]
    transform = getattr(mx.fft, attributes["kind"] + "n")
    return [transform(inputs[0], s=list(lengths), axes=list(range(-len(lengths), 0)))]


# ------------------------------------------------------------------ factorisations
def _cholesky(inputs: Sequence[MxArray], attributes: Attributes) -> Sequence[MxArray]:
    """The factor, with NaN in the triangle if the matrix is not positive definite, which MLX does not report.

    LAPACK stops at the first pivot that is not positive, and leaves it in place.
    """
    factor = mx.linalg.cholesky(inputs[0], stream=on_processor())
    pivots = mx.diagonal(factor, axis1=-2, axis2=-1)
    succeeded = mx.all(pivots > 0, axis=-1)[..., None, None]
    return [mx.where(succeeded, factor, mx.tril(mx.full(factor.shape, float("nan"), dtype=factor.dtype)))]


def _qr(inputs: Sequence[MxArray], attributes: Attributes) -> Sequence[MxArray]:
    return mx.linalg.qr(inputs[0], stream=on_processor())


def _why_not_qr(kernel: Library) -> str | None:
    rows, columns = kernel.inputs[0].shape[-2:]
    if kernel.attributes.get("full_matrices", False) and rows > columns:
        return "MLX's qr has no full q"
    return None


def _eigh(inputs: Sequence[MxArray], attributes: Attributes) -> Sequence[MxArray]:
    lower = attributes.get("lower", True)
    read = mx.tril(inputs[0]) if lower else mx.triu(inputs[0])  # NaN in the other triangle does not matter
    return _where_finite(read, lambda a: mx.linalg.eigh(a, UPLO="L" if lower else "U", stream=on_processor()))


def _svd(inputs: Sequence[MxArray], attributes: Attributes) -> Sequence[MxArray]:
    vectors = attributes.get("compute_uv", True)

    def factors(a: MxArray) -> Sequence[MxArray]:
        found = mx.linalg.svd(a, compute_uv=vectors, stream=on_processor())
        return found if vectors else [found]

    return _where_finite(inputs[0], factors)


def _why_not_svd(kernel: Library) -> str | None:
    rows, columns = kernel.inputs[0].shape[-2:]
    wanted = kernel.attributes.get("compute_uv", True) and not kernel.attributes.get("full_matrices", False)
    return "MLX's svd computes all of u and v" if wanted and rows != columns else None


def _eig(inputs: Sequence[MxArray], attributes: Attributes) -> Sequence[MxArray]:
    if attributes.get("compute_right", True):
        return _where_finite(inputs[0], lambda a: mx.linalg.eig(a, stream=on_processor()))
    return _where_finite(inputs[0], lambda a: [mx.linalg.eigvals(a, stream=on_processor())])


def _why_not_eig(kernel: Library) -> str | None:
    if kernel.inputs[0].buffer.dtype.kind == "c":
        return "MLX's eigenvectors of complex matrices are wrong: residuals of the size of the matrix"
    return "MLX's eig has no left vectors" if kernel.attributes.get("compute_left", False) else None


def _where_finite(a: MxArray, factorise: Callable[[MxArray], Sequence[MxArray]]) -> Sequence[MxArray]:
    """Factors; all NaN for a matrix that is not finite, for which MLX raises an error or its LAPACK exits."""
    finite = mx.all(mx.isfinite(a), axis=(-2, -1))
    found = factorise(mx.where(finite[..., None, None], a, mx.zeros_like(a)))

    def marked(factor: MxArray) -> MxArray:
        axes = (...,) + (None,) * (factor.ndim - finite.ndim)
        return mx.where(finite[axes], factor, mx.array(float("nan"), factor.dtype))

    return [marked(factor) for factor in found]


_REAL = "fd"

ROUTINES: dict[str, Routine] = {
    "fft": Routine(_fft, "fF"),
    "cholesky": Routine(_cholesky, _REAL),
    "qr": Routine(_qr, _REAL, _why_not_qr),
    "eigh": Routine(_eigh, "fdF"),
    "svd": Routine(_svd, "fdF", _why_not_svd),
    "eig": Routine(_eig, "fF", _why_not_eig),
}
# measured with mlx 0.32.4: the tests of these facts are in tests/backends/test_mlx.py
_CAUSES = {
    "lu": "MLX's lu_factor returns no permutation, and the host solves with the factors",
    "lu_solve": "MLX multiplies by the inverses of triangular matrices: backward errors up to 0.9, LAPACK's are 3e-16",
    "triangular_solve": "MLX multiplies by inverses: backward errors up to 0.9, where substitution has 3e-16",
}
