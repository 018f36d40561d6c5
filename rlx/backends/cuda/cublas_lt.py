"""cuBLASLt, through nvmath-python: rlx has its own handle and workspace, so that graphs can contain products.

CuPy's cuBLAS refuses a stream that is being captured, since it does not know what uses its workspace. Here queueing a
product allocates nothing: the workspace exists, and the algorithm for the shape has been selected.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rlx.backends.cuda.products import (
    MatrixLayout,
    ProductDescription,
    alignment,
    describe,
    matrices,
    promised_alignments,
)
from rlx.backends.gpu.engine import View
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.errors import DeviceError
from rlx.installation import install_command
from rlx.ir.kernels import Buffer, Operand
from rlx.storage import AllocationError

__all__ = ["CublasLt"]

_WORKSPACE = 32 << 20  # bytes: the size that NVIDIA recommends for Hopper
_NOT_SUPPORTED = 15  # the number of this status
_SOME_ADDRESS = 256  # stands for a bias that does not exist yet while algorithms are queried
_ALIGNED = ("A", "B", "C", "D")  # the library's names of left, right, the added matrix, the result


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """The library's descriptors: of the product and of its four matrices; its scalars, and its algorithms by the
    alignments of the matrices: None if there is none."""

    told: ProductDescription
    product: int
    layouts: tuple[int, int, int, int]
    scale: np.ndarray
    share: np.ndarray
    algorithms: dict[tuple[int, ...], np.ndarray | None] = field(default_factory=dict)


class CublasLt:
    """The library on one device, for one stream: products share its workspace, one after the other.

    allocate: memory of the device. address: of a view.
    """

    def __init__(self, allocate: Callable[[int], View], address: Callable[[View], int]) -> None:
        self._allocate, self._address = allocate, address
        self._library: Any = None
        self._handle = 0
        self._workspace: View | None = None
        self._prepared: dict[ProductDescription, _Prepared] = {}
        self._of: WeakKeyDictionary[LibraryProduct, _Prepared] = WeakKeyDictionary()

    # ------------------------------------------------------------------ the library
    def _connect(self) -> None:
        if self._handle:
            return
        try:
            self._library = importlib.import_module("nvmath.bindings.cublasLt")
            self._handle = self._library.create()
        except (ImportError, RuntimeError) as error:  # no package, or the package does not find the library
            remedy = f"{install_command('cuda')} installs it."
            raise DeviceError(f"cuBLASLt is not installed: {error}", remedy) from None
        except self._library.cuBLASLtError as error:
            lesson = "Install a newer driver."
            raise DeviceError(f"cuBLASLt does not start: {error}", lesson) from None

    def _set(self, what: str, kind: str, handle: int, values: Mapping[str, float]) -> None:
        """Set attributes of a descriptor by the library's names, each with the library's width."""
        names, width_of = getattr(self._library, kind), getattr(self._library, f"get_{what}_attribute_dtype")
        for name, value in values.items():
            number = int(getattr(names, name))
            held = np.array([value], width_of(number))
            getattr(self._library, f"{what}_set_attribute")(handle, number, held.ctypes.data, held.nbytes)

    def _set_product(self, handle: int, **values: float) -> None:
        self._set("matmul_desc", "MatmulDescAttribute", handle, values)

    def _layout(self, matrix: MatrixLayout) -> int:
        handle = self._library.matrix_layout_create(matrix.kind, matrix.rows, matrix.columns, matrix.apart)
        batches = {"BATCH_COUNT": matrix.batches, "STRIDED_BATCH_OFFSET": matrix.batch_stride}
        self._set("matrix_layout", "MatrixLayoutAttribute", handle, batches)
        return handle

    def _prepare(self, product: LibraryProduct) -> _Prepared:
        """The library's descriptors of a product; equal products share them."""
        found = self._of.get(product)
        if found is None:
            told = describe(product)
            if told not in self._prepared:
                self._prepared[told] = self._made(told)
            found = self._of[product] = self._prepared[told]
        return found

    def _made(self, told: ProductDescription) -> _Prepared:
        handle = self._library.matmul_desc_create(told.compute, told.scalar_kind)
        transposed = dict(zip(("TRANSA", "TRANSB"), map(int, told.transposed), strict=True))
        epilogue = int(self._library.Epilogue[told.epilogue])
        self._set_product(handle, EPILOGUE=epilogue, **transposed)
        if "BIAS" in told.epilogue:
            self._set_product(handle, BIAS_POINTER=_SOME_ADDRESS, BIAS_BATCH_STRIDE=told.bias_stride)
        if told.kept_apart:
            kept = {"EPILOGUE_AUX_LD": told.kept_apart, "EPILOGUE_AUX_BATCH_STRIDE": told.kept_stride}
            self._set_product(handle, EPILOGUE_AUX_POINTER=_SOME_ADDRESS, **kept)
        layouts = (told.left, told.right, told.added, told.result)
        left, right, added, result = map(self._layout, layouts)
        scale, share = (np.array([number], told.scalars) for number in (told.scale, told.share))
        return _Prepared(told, handle, (left, right, added, result), scale, share)

    # ------------------------------------------------------------------ algorithms
    def _workspace_bytes(self) -> int:
        """The size of the workspace; 0 while the device has no memory for it."""
        if self._workspace is None:
            try:
                self._workspace = self._allocate(_WORKSPACE)
            except AllocationError:
                return 0
        return _WORKSPACE

    def _algorithm(self, prepared: _Prepared, aligned: tuple[int, ...]) -> np.ndarray | None:
        """The library's algorithm for a shape at addresses of these alignments, selected once; None if it has none."""
        if aligned not in prepared.algorithms:
            prepared.algorithms[aligned] = self._chosen(prepared, aligned)
        return prepared.algorithms[aligned]

    def _chosen(self, prepared: _Prepared, aligned: tuple[int, ...]) -> np.ndarray | None:
        library = self._library
        preference = library.matmul_preference_create()
        wanted = {f"MIN_ALIGNMENT_{name}_BYTES": bytes for name, bytes in zip(_ALIGNED, aligned, strict=True)}
        wanted["MAX_WORKSPACE_BYTES"] = self._workspace_bytes()
        self._set("matmul_preference", "MatmulPreferenceAttribute", preference, wanted)
        found, count = np.zeros(1, library.matmul_heuristic_result_dtype), np.zeros(1, np.int32)
        refused = None
        try:
            library.matmul_algo_get_heuristic(
                self._handle, prepared.product, *prepared.layouts, preference, 1, found.ctypes.data, count.ctypes.data
            )
        except library.cuBLASLtError as error:
            refused = error
        library.matmul_preference_destroy(preference)
        if refused is not None and refused.status != _NOT_SUPPORTED:
            raise DeviceError(f"cuBLASLt: {refused}", "The CPU runs the program: rlx.default_device('cpu').")
        return found if refused is None and count[0] and not found["state"][0] else None

    # ------------------------------------------------------------------ products
    def makes(self, product: LibraryProduct) -> bool:
        """Whether the library has an algorithm for a product at any addresses of its operands."""
        self._connect()
        return self._algorithm(self._prepare(product), promised_alignments(product)) is not None

    def multiply(self, product: LibraryProduct, starts: Mapping[Buffer, int], stream: int) -> None:
        """Queue a product. starts: the addresses of buffers."""
        self._connect()

        def place(operand: Operand) -> int:
            return starts[operand.buffer] + operand.offset * operand.buffer.dtype.itemsize

        prepared, end = self._prepare(product), product.epilogue
        places = tuple(map(place, matrices(product)))
        chosen = self._algorithm(prepared, tuple(map(alignment, places)))
        if chosen is None:  # an algorithm for any alignment is valid for these
            chosen = self._algorithm(prepared, promised_alignments(product))
        assert chosen is not None, "the dialect only returns products that the library takes"
        if end is not None and end.bias is not None:
            self._set_product(prepared.product, BIAS_POINTER=place(end.bias))
        beside = (end.kept or end.taken) if end is not None else None
        if beside is not None:
            self._set_product(prepared.product, EPILOGUE_AUX_POINTER=place(beside))
        left, right, added, result = zip(places, prepared.layouts, strict=True)
        workspace = 0 if self._workspace is None else self._address(self._workspace)
        try:
            self._library.matmul(
                self._handle, prepared.product, prepared.scale.ctypes.data, *left, *right, prepared.share.ctypes.data,
                *added, *result, chosen.ctypes.data, workspace, _WORKSPACE if workspace else 0, stream,
            )  # fmt: skip
        except self._library.cuBLASLtError as error:
            raise DeviceError(f"cuBLASLt: {error}", "The CPU runs the program: rlx.default_device('cpu').") from None
