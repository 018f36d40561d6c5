"""Matrix products as cuBLASLt is told of them: it counts in columns, so that operands change places.

Nothing here calls it: numbers only, which tests read without the library.
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

# numbers of CUDA's: cudaDataType_t, cublasComputeType_t
_TYPES = {
    "float32": 0, "float64": 1, "float16": 2, "complex64": 4, "complex128": 5, "bfloat16": 14,
}  # fmt: skip
_COMPUTE = {"float32": 68, "float64": 70, "complex64": 68, "complex128": 70}
_FAST_TF32 = 77
_NAMES = {"": "", "relu": "RELU", "gelu": "GELU", "gelu gradient": "DGELU"}
_MOST = 1 << 31  # sizes and strides are less
_POOLED = 64  # bytes: temporaries and constants begin at multiples of it
_MOST_ALIGNED = 256  # bytes: more is not asked for
# rows of what an activation keeps, or is given, begin at multiples of so many elements, the whole of so many bytes
_KEPT_APART, _KEPT_ALIGNED = 8, 16


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """A matrix that lies column by column: `apart` elements from one to the next."""

    kind: int
    rows: int
    columns: int
    apart: int
    batches: int
    batch_stride: int


@dataclass(frozen=True, slots=True)
class ProductDescription:
    """result = epilogue(scale * left * right + share * added).

    left, right: as they lie; `transposed` says of which the transpose is meant. scalars: the dtype of scale and share.
    epilogue: the library's name. bias_stride: from the bias of a batch to the next one's. kept_apart, kept_stride: of
    what the activation keeps, or is given.
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
        """CUDA's number of the dtype of scalars."""
        return _TYPES[self.scalars]


def is_library_product(product: LibraryProduct) -> bool:
    """Whether cuBLASLt might take a product: one batch dimension at most, sizes of 32 bits, dtypes that it has.

    What it keeps for a gradient has to lie as its tensor cores read it.
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
    """What an activation keeps, or is given."""
    return (epilogue.kept or epilogue.taken) if epilogue else None


def _describe(operand: Operand) -> MatrixLayout:
    """An operand as the library sees it: its rows are columns there."""
    matrix = matrix_of(operand)
    rows, columns = operand.shape[-2:] if matrix.transposed else operand.shape[:-3:-1]
    batched = len(operand.shape) == 3 and operand.shape[0] > 1
    batches, stride = (operand.shape[0], operand.strides[0]) if batched else (1, 0)
    return MatrixLayout(_TYPES[operand.buffer.dtype.name], rows, columns, matrix.apart, batches, stride)


def describe(product: LibraryProduct) -> ProductDescription:
    """A product as the library is told of it."""
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
    """The operands in the library's order: left, right, what is added, the result."""
    kernel, end = product.contract, product.epilogue
    added = end.added if end is not None and end.added is not None else product.out
    return kernel.rhs, kernel.lhs, added, product.out


def promised_alignments(product: LibraryProduct) -> tuple[int, ...]:
    """Of each matrix the bytes that its address is a multiple of, wherever it lies."""
    return tuple(map(_promised, matrices(product)))


def _promised(operand: Operand) -> int:
    """Inputs and outputs may be slices of what a loop goes over, or another library's."""
    size = operand.buffer.dtype.itemsize
    placed = operand.buffer.role in ("temporary", "constant")
    return alignment(_POOLED | operand.offset * size) if placed else size


def alignment(address: int) -> int:
    """The bytes that an address is a multiple of.

    >>> alignment(0x1008), alignment(1 << 20)
    (8, 256)
    """
    return (address | _MOST_ALIGNED) & -(address | _MOST_ALIGNED)
