"""Matrix products in cuBLASLt's form: it is column-major, so that the operands are swapped.

Nothing here calls the library: these are numbers only, which tests read without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx.backends.gpu.blas import matrix_of
from rlx.backends.gpu.epilogues import Epilogue, LibraryProduct
from rlx.ir.kernels import Operand

__all__ = [
    "MatrixLayout",
    "ProductDescription",
    "alignment",
    "describe",
    "is_library_product",
    "matrices",
    "promised_alignments",
]

# CUDA's constants: cudaDataType_t, cublasComputeType_t
_TYPES = {
    "float32": 0, "float64": 1, "float16": 2, "complex64": 4, "complex128": 5, "bfloat16": 14,
}  # fmt: skip
_COMPUTE = {"float32": 68, "float64": 70, "complex64": 68, "complex128": 70}
_FAST_TF32 = 77
_NAMES = {"": "", "relu": "RELU", "gelu": "GELU", "gelu gradient": "DGELU"}
_MOST = 1 << 31  # sizes and strides are smaller
_POOLED = 64  # bytes: the alignment of temporaries and constants
_MOST_ALIGNED = 256  # bytes: a larger alignment is not requested
# rows of an activation's auxiliary matrix begin at multiples of this many elements, the whole at multiples of bytes
_KEPT_APART, _KEPT_ALIGNED = 8, 16


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """A column-major matrix with the leading dimension `apart`."""

    kind: int
    rows: int
    columns: int
    apart: int
    batches: int
    batch_stride: int


@dataclass(frozen=True, slots=True)
class ProductDescription:
    """result = epilogue(scale * left * right + share * added).

    left, right: as stored; `transposed` says which of them are transposed. scalars: the dtype of scale and share.
    epilogue: the library's name. bias_stride: the distance between the biases of batches. kept_apart, kept_stride: the
    leading dimension and the batch stride of the activation's auxiliary matrix.
    """

    compute: int
    scalars: str
    left: MatrixLayout
    right: MatrixLayout
    added: MatrixLayout
    result: MatrixLayout
    transposed: tuple[bool, bool]
    scale: float
    share: float
    epilogue: str
    bias_stride: int
    kept_apart: int
    kept_stride: int

    @property
    def scalar_kind(self) -> int:
        """CUDA's constant for the dtype of scalars."""
        return _TYPES[self.scalars]


def is_library_product(product: LibraryProduct) -> bool:
    """Whether cuBLASLt may take a product: one batch dimension at most, sizes of 32 bits, supported dtypes.

    An auxiliary matrix for a gradient must have the alignment that tensor cores need.
    """
    kernel = product.contract
    operands, result = kernel.lhs.buffer.dtype, product.out.buffer.dtype
    narrow = operands.name in ("float16", "bfloat16") and kernel.summed_in.name == "float32"
    plain = operands == kernel.summed_in and operands.name in _COMPUTE
    if not (narrow or plain) or result not in (operands, kernel.summed_in):
        return False
    sizes = (kernel.batches, kernel.rows, kernel.columns, kernel.depth)
    strides = [s for o in product.operands for s in o.strides[-2:]]
    if len(kernel.out.shape) > 3 or 0 in sizes or max(*sizes, *strides) >= _MOST:
        return False
    beside = _beside(product.epilogue)
    return beside is None or (_describe(beside).apart % _KEPT_APART == 0 and _promised(beside) >= _KEPT_ALIGNED)


def _beside(epilogue: Epilogue | None) -> Operand | None:
    """The auxiliary matrix that an activation stores or reads."""
    return (epilogue.kept or epilogue.taken) if epilogue else None


def _describe(operand: Operand) -> MatrixLayout:
    """An operand in the library's layout: its rows are columns there."""
    matrix = matrix_of(operand)
    rows, columns = operand.shape[-2:] if matrix.transposed else operand.shape[:-3:-1]
    batched = len(operand.shape) == 3 and operand.shape[0] > 1
    batches, stride = (operand.shape[0], operand.strides[0]) if batched else (1, 0)
    return MatrixLayout(_TYPES[operand.buffer.dtype.name], rows, columns, matrix.apart, batches, stride)


def describe(product: LibraryProduct) -> ProductDescription:
    """A product in the library's form."""
    kernel, end = product.contract, product.epilogue
    compute = _FAST_TF32 if kernel.tf32 else _COMPUTE[kernel.summed_in.name]
    scale, share, added, name, bias_stride = 1.0, float(kernel.accumulate), product.out, "", 0
    if end is not None:
        scale, name = end.scale, _NAMES[end.activation]
        if end.added is not None:
            added, share = end.added, end.share
        if end.kept is not None:
            name += "_AUX"
        if end.bias is not None:
            name += "_BIAS"
            bias_stride = end.bias.strides[0] if len(end.bias.shape) == 3 and end.bias.shape[0] > 1 else 0
    beside = _beside(end)
    kept = None if beside is None else _describe(beside)
    return ProductDescription(
        compute=compute,
        scalars=kernel.summed_in.name,
        left=_describe(kernel.rhs),
        right=_describe(kernel.lhs),
        added=_describe(added),
        result=_describe(product.out),
        transposed=(matrix_of(kernel.rhs).transposed, matrix_of(kernel.lhs).transposed),
        scale=scale,
        share=share,
        epilogue=name.removeprefix("_") or "DEFAULT",
        bias_stride=bias_stride,
        kept_apart=kept.apart if kept else 0,
        kept_stride=kept.batch_stride if kept else 0,
    )


def matrices(product: LibraryProduct) -> tuple[Operand, Operand, Operand, Operand]:
    """The operands in the library's order: left, right, the added matrix, the result."""
    kernel, end = product.contract, product.epilogue
    added = end.added if end is not None and end.added is not None else product.out
    return kernel.rhs, kernel.lhs, added, product.out


def promised_alignments(product: LibraryProduct) -> tuple[int, ...]:
    """The alignment of each matrix in bytes that is known at compile time."""
    return tuple(map(_promised, matrices(product)))


def _promised(operand: Operand) -> int:
    """Inputs and outputs may be slices of arrays that a loop scans, or another library's memory."""
    size = operand.buffer.dtype.itemsize
    placed = operand.buffer.role in ("temporary", "constant")
    return alignment(_POOLED | operand.offset * size) if placed else size


def alignment(address: int) -> int:
    """The alignment of an address in bytes.

    >>> alignment(0x1008), alignment(1 << 20)
    (8, 256)
    """
    return (address | _MOST_ALIGNED) & -(address | _MOST_ALIGNED)
