"""cuBLASLt that is none, under the part of nvmath-python's interface that rlx uses: products are NumPy's, over the
memory of the driver that is none.

It reads descriptors as the library does: matrices lie column by column, attributes have the library's numbers and
widths. What the library would refuse fails here: addresses that an algorithm was not chosen for, rows that overlap, a
workspace that is not there, choosing or describing while a graph is captured.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np

DTYPES: dict[int, Any] = {
    0: np.float32, 1: np.float64, 2: np.float16, 4: np.complex64, 5: np.complex128, 14: ml_dtypes.bfloat16,
}  # fmt: skip


class Epilogue(IntEnum):
    """The library's numbers."""

    DEFAULT, RELU, BIAS, RELU_BIAS = 1, 2, 4, 6
    GELU, GELU_AUX, GELU_BIAS, GELU_AUX_BIAS, DGELU = 32, 160, 36, 164, 192


class MatmulDescAttribute(IntEnum):
    """The library's numbers."""

    TRANSA, TRANSB, EPILOGUE, BIAS_POINTER, BIAS_BATCH_STRIDE = 3, 4, 7, 8, 10
    EPILOGUE_AUX_POINTER, EPILOGUE_AUX_LD, EPILOGUE_AUX_BATCH_STRIDE = 11, 12, 13


class MatrixLayoutAttribute(IntEnum):
    """The library's numbers."""

    BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6


class MatmulPreferenceAttribute(IntEnum):
    """The library's numbers."""

    MAX_WORKSPACE_BYTES = 1
    MIN_ALIGNMENT_A_BYTES, MIN_ALIGNMENT_B_BYTES, MIN_ALIGNMENT_C_BYTES, MIN_ALIGNMENT_D_BYTES = 5, 6, 7, 8


# what is as wide as a pointer; the rest has four bytes
WIDE = {
    "desc": {8: np.int64, 10: np.int64, 11: np.int64, 12: np.int64, 13: np.int64, 7: np.uint32},
    "layout": {6: np.int64},
    "preference": {1: np.uint64},
}


class cuBLASLtError(Exception):
    """nvmath's."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUBLAS_STATUS {status}")
        self.status = status


class FakeCublasLt:
    """The module. refused: epilogues that it has no algorithm for; most: the widest alignment that it insists on."""

    Epilogue = Epilogue
    MatmulDescAttribute = MatmulDescAttribute
    MatrixLayoutAttribute = MatrixLayoutAttribute
    MatmulPreferenceAttribute = MatmulPreferenceAttribute
    cuBLASLtError = cuBLASLtError
    matmul_heuristic_result_dtype = np.dtype(
        [("algo", [("data_", "<u8", (8,))]), ("workspace_size", "<u8"), ("state", "<i4"), ("waves_count", "<f4"),
         ("reserved", "<i4", (4,))]
    )  # fmt: skip

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.refused: set[str] = set()
        self.most = 0
        self.asked: list[str] = []  # epilogues that an algorithm was looked for
        self._numbers = count(1000)
        self._held: dict[int, dict[Any, Any]] = {}

    # ------------------------------------------------------------------ descriptors
    def create(self) -> int:
        if "cublas" in self.cupy.broken:
            raise RuntimeError("Failure finding libcublasLt.so.13")
        return self._made(handle=True)

    def _made(self, **held: Any) -> int:
        assert self.cupy.captured is None, "something is made while a graph is captured"
        number = next(self._numbers)
        self._held[number] = held
        return number

    def matmul_desc_create(self, compute: int, scalars: int) -> int:
        return self._made(compute=compute, scalars=DTYPES[scalars])

    def matrix_layout_create(self, kind: int, rows: int, columns: int, apart: int) -> int:
        assert apart >= rows > 0 and columns > 0
        return self._made(dtype=np.dtype(DTYPES[kind]), rows=rows, columns=columns, apart=apart)

    def matmul_preference_create(self) -> int:
        return self._made(preference=True)

    def matmul_preference_destroy(self, number: int) -> None:
        del self._held[number]

    def get_matmul_desc_attribute_dtype(self, number: int) -> Any:
        return WIDE["desc"].get(number, np.int32)

    def get_matrix_layout_attribute_dtype(self, number: int) -> Any:
        return WIDE["layout"].get(number, np.int32)

    def get_matmul_preference_attribute_dtype(self, number: int) -> Any:
        return WIDE["preference"].get(number, np.uint32)

    def matmul_desc_set_attribute(self, handle: int, number: int, address: int, nbytes: int) -> None:
        self._set(handle, MatmulDescAttribute(number), self.get_matmul_desc_attribute_dtype(number), address, nbytes)

    def matrix_layout_set_attribute(self, handle: int, number: int, address: int, nbytes: int) -> None:
        dtype = self.get_matrix_layout_attribute_dtype(number)
        self._set(handle, MatrixLayoutAttribute(number), dtype, address, nbytes)

    def matmul_preference_set_attribute(self, handle: int, number: int, address: int, nbytes: int) -> None:
        dtype = self.get_matmul_preference_attribute_dtype(number)
        self._set(handle, MatmulPreferenceAttribute(number), dtype, address, nbytes)

    def _set(self, handle: int, attribute: IntEnum, dtype: Any, address: int, nbytes: int) -> None:
        assert nbytes == np.dtype(dtype).itemsize, "CUBLAS_STATUS_INVALID_VALUE"
        self._held[handle][attribute.name] = int(np.frombuffer(ctypes.string_at(address, nbytes), dtype)[0])

    # ------------------------------------------------------------------ algorithms
    def matmul_algo_get_heuristic(
        self, handle: int, product: int, a: int, b: int, c: int, d: int, preference: int, wanted: int, found: int,
        number: int,
    ) -> None:  # fmt: skip
        assert self._held[handle]["handle"] and wanted == 1 and self.cupy.captured is None
        told, limits = self._held[product], self._held[preference]
        aligned = [limits[f"MIN_ALIGNMENT_{name}_BYTES"] for name in "ABCD"]
        epilogue = Epilogue(told["EPILOGUE"])
        self.asked.append(epilogue.name)
        if epilogue.name in self.refused or min(aligned) < self.most:
            raise cuBLASLtError(15)
        result = np.zeros(1, self.matmul_heuristic_result_dtype)
        room = limits["MAX_WORKSPACE_BYTES"]
        result["algo"]["data_"][0] = [*aligned, room, product, a, b]
        result["workspace_size"] = room
        ctypes.memmove(found, result.ctypes.data, result.nbytes)
        ctypes.memmove(number, np.ones(1, np.int32).ctypes.data, 4)

    # ------------------------------------------------------------------ products
    def matmul(
        self, handle: int, product: int, scale: int, a: int, a_layout: int, b: int, b_layout: int, share: int, c: int,
        c_layout: int, d: int, d_layout: int, algorithm: int, workspace: int, workspace_bytes: int, stream: int,
    ) -> None:  # fmt: skip
        if "matmul" in self.cupy.broken:
            raise cuBLASLtError(14)
        assert self._held[handle]["handle"] and stream == self.cupy.own_stream
        *aligned, room, chosen_for, first, second = np.frombuffer(ctypes.string_at(algorithm, 64), np.uint64).tolist()
        assert (chosen_for, first, second) == (product, a_layout, b_layout), "the algorithm of another product"
        assert all(place % wide == 0 for place, wide in zip((a, b, c, d), aligned, strict=True)), "less aligned"
        assert workspace_bytes >= room
        if workspace:
            self.cupy.at(workspace, workspace_bytes)
        told = dict(self._held[product])  # pointers are read now, not when a graph is run
        width = np.dtype(told["scalars"]).itemsize
        numbers = [np.frombuffer(ctypes.string_at(at, width), told["scalars"])[0] for at in (scale, share)]
        layouts = [self._held[layout] for layout in (a_layout, b_layout, c_layout, d_layout)]
        arguments = (told, *numbers, *zip((a, b, c, d), layouts, strict=True))
        if self.cupy.captured is not None:
            self.cupy.captured.append((self.compute, *arguments))
            return
        self.compute(*arguments)

    def matrix(
        self, place: int, layout: dict[str, Any], apart: int | None = None, stride: int | None = None
    ) -> np.ndarray:
        """A view of living memory, (batches, rows, columns)."""
        dtype, rows, columns = layout["dtype"], layout["rows"], layout["columns"]
        apart = layout["apart"] if apart is None else apart
        stride, batches = layout["STRIDED_BATCH_OFFSET"] if stride is None else stride, layout["BATCH_COUNT"]
        size = (batches - 1) * stride + (columns - 1) * apart + rows
        flat = self.cupy.at(place, size * dtype.itemsize).view(dtype)
        strides = tuple(s * dtype.itemsize for s in (stride, 1, apart))
        return np.lib.stride_tricks.as_strided(flat, (batches, rows, columns), strides)

    def compute(self, told: dict[Any, Any], scale: Any, share: Any, *given: tuple[int, dict[str, Any]]) -> None:
        """result = epilogue(scale * left * right + share * added), summed in the dtype of scalars."""
        kind, epilogue = told["scalars"], Epilogue(told["EPILOGUE"])
        left, right = (self.matrix(*pair).astype(kind) for pair in given[:2])
        if told["compute"] == 77:
            left, right = (rounded_to_tf32(x) for x in (left, right))
        left = left.transpose(0, 2, 1) if told["TRANSA"] else left
        right = right.transpose(0, 2, 1) if told["TRANSB"] else right
        result = self.matrix(*given[3])
        assert told["compute"] in ((70,) if np.dtype(kind).itemsize > 8 or kind is np.float64 else (68, 77))
        assert not any(np.may_share_memory(result, self.matrix(*pair)) for pair in given[:2])
        assert given[2][0] == given[3][0] or not np.may_share_memory(result, self.matrix(*given[2]))
        with np.errstate(all="ignore"):
            value = scale * (left @ right)
            if share:
                value = value + share * self.matrix(*given[2]).astype(kind)
            if "BIAS" in epilogue.name:
                layout = {**given[3][1], "columns": 1}
                bias = self.matrix(told["BIAS_POINTER"], layout, 0, told["BIAS_BATCH_STRIDE"])
                assert not np.may_share_memory(result, bias)
                value = value + bias.astype(kind)
            if "AUX" in epilogue.name or epilogue is Epilogue.DGELU:
                assert told["EPILOGUE_AUX_LD"] % 8 == 0 and told["EPILOGUE_AUX_POINTER"] % 16 == 0
                strides = told["EPILOGUE_AUX_LD"], told["EPILOGUE_AUX_BATCH_STRIDE"]
                beside = self.matrix(told["EPILOGUE_AUX_POINTER"], given[3][1], *strides)
                assert not np.may_share_memory(result, beside), "read and written in no order that is known"
                if epilogue is Epilogue.DGELU:
                    value = value * gelu_slope(beside.astype(kind))
                else:
                    beside[...] = value
            if epilogue.name.startswith("RELU"):
                value = np.maximum(value, 0)
            elif epilogue.name.startswith("GELU"):
                value = value * (1 + np.tanh(inside_gelu(value))) / 2
            result[...] = value
        self.cupy.log.append(("matmul", epilogue.name, told["compute"], *result.shape, left.shape[2]))


def inside_gelu(x: np.ndarray) -> np.ndarray:
    """What the tanh of GELU is taken of."""
    return np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)


def gelu_slope(x: np.ndarray) -> np.ndarray:
    """GELU's derivative, by the chain rule."""
    tanh = np.tanh(inside_gelu(x))
    return (1 + tanh) / 2 + x / 2 * (1 - tanh**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)


def rounded_to_tf32(x: np.ndarray) -> np.ndarray:
    """Ten bits behind the point, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~np.uint32(0x1FFF)).view(np.float32)
