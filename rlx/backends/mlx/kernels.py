"""Products, sorts and library routines over MLX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.mlx.blocks import BLOCKS
from rlx.backends.mlx.library import ALIKE, MxArray, dtype_of_memory, mx
from rlx.backends.mlx.loops import Buffers
from rlx.backends.mlx.narrow import decode
from rlx.backends.mlx.routines import ROUTINES
from rlx.backends.mlx.views import flat, overwrite, read
from rlx.ir.kernels import Callback, Contract, Library, Operand, Sort
from rlx.ir.types import is_narrow
from rlx.ir.user_functions import DeviceCall

__all__ = ["run_call", "run_contract", "run_library", "run_sort", "why_not_call", "why_not_contract"]


# ------------------------------------------------------------------ operands
def _complex_parts(operand: Operand, buffers: Buffers) -> tuple[MxArray, MxArray]:
    """The real and the imaginary parts of a strided view."""
    strides = tuple(2 * s for s in operand.strides)
    memory = buffers[operand.buffer]
    real, imaginary = (read(memory, operand.shape, strides, 2 * operand.offset + part) for part in (0, 1))
    return real, imaginary


def _view(operand: Operand, buffers: Buffers) -> MxArray:
    """A strided view, of MLX's dtype if it has one."""
    memory, dtype = buffers[operand.buffer], operand.buffer.dtype
    if dtype.name in ALIKE:
        memory = mx.view(flat(memory), ALIKE[dtype.name])
    return read(memory, operand.shape, operand.strides, operand.offset)


def _whole(operand: Operand, buffers: Buffers) -> MxArray:
    """A contiguous operand, including dense dimensions of stride 0."""
    view = _view(operand, buffers)
    return view if view.shape == operand.shape else mx.broadcast_to(view, operand.shape)


def _parts(value: MxArray) -> MxArray:
    """A complex64 array as pairs of real numbers, along a new last axis."""
    return mx.stack([mx.real(value), mx.imag(value)], axis=-1)


def _write(operand: Operand, value: MxArray, buffers: Buffers, scale: int = 1) -> None:
    """Write a value through a strided view; `scale` 2: its last axis holds the parts of complex numbers."""
    shape, strides = operand.shape, tuple(scale * s for s in operand.strides)
    if scale == 2:
        shape, strides = (*shape, 2), (*strides, 1)
    buffer = operand.buffer
    result = overwrite(
        buffers.get(buffer), scale * buffer.size, shape, strides, scale * operand.offset, mx.reshape(value, shape)
    )
    assert result is not None, "a written operand is a slice"
    buffers[buffer] = result


# ------------------------------------------------------------------ products
def why_not_contract(kernel: Contract) -> str | None:
    """The reason that a product runs on the host; None if MLX computes it."""
    same = kernel.summed_in == kernel.lhs.buffer.dtype == kernel.out.buffer.dtype
    return None if same and not kernel.tf32 else "MLX does not specify the dtype in which it sums narrow products"


def run_contract(kernel: Contract, buffers: Buffers) -> None:
    """A product of matrices by mx.matmul, which takes transposed and repeated operands without copying them."""
    dtype = kernel.out.buffer.dtype
    if dtype.kind == "c":
        _write(kernel.out, _complex_product(kernel, buffers), buffers, scale=2)
        return
    lhs, rhs = _matrix(kernel.lhs, buffers), _matrix(kernel.rhs, buffers)
    if kernel.accumulate:
        product = mx.addmm(_matrix(kernel.out, buffers), lhs, rhs)
    else:
        product = mx.matmul(lhs, rhs)
    _write(kernel.out, _batched(product, kernel), buffers)


def _matrix(operand: Operand, buffers: Buffers) -> MxArray:
    """A view with matrices of the given sizes; a batch that repeats one matrix is not expanded."""
    return _sized(_view(operand, buffers), operand)


def _sized(view: MxArray, operand: Operand) -> MxArray:
    wanted = (*view.shape[:-2], *operand.shape[-2:])
    return view if view.shape == wanted else mx.broadcast_to(view, wanted)


def _batched(product: MxArray, kernel: Contract) -> MxArray:
    return product if product.shape == kernel.out.shape else mx.broadcast_to(product, kernel.out.shape)


def _complex_product(kernel: Contract, buffers: Buffers) -> MxArray:
    if kernel.out.buffer.dtype == np.complex64:
        lhs, rhs = _matrix(kernel.lhs, buffers), _matrix(kernel.rhs, buffers)
        product = _parts(_batched(mx.matmul(lhs, rhs), kernel))
    else:
        # MLX has no complex128: products of the parts
        (a, b), (c, d) = (
            tuple(_sized(part, operand) for part in _complex_parts(operand, buffers))
            for operand in (kernel.lhs, kernel.rhs)
        )
        real, imaginary = mx.matmul(a, c) - mx.matmul(b, d), mx.matmul(a, d) + mx.matmul(b, c)
        product = mx.stack([_batched(real, kernel), _batched(imaginary, kernel)], axis=-1)
    if kernel.accumulate:
        product = product + mx.stack(_complex_parts(kernel.out, buffers), axis=-1)
    return product


# ------------------------------------------------------------------ sorting
def run_sort(kernel: Sort, buffers: Buffers) -> None:
    """Sort rows by stable sorts from the last key to the first."""
    shape = (kernel.rows, kernel.length)
    if 0 in shape:
        for source, target in zip(kernel.inputs, kernel.outputs, strict=False):
            buffers[target] = buffers[source]
        return
    if len(kernel.inputs) == 1 and not kernel.index and not is_narrow(kernel.inputs[0].dtype):
        source = kernel.inputs[0]
        if source.dtype.kind != "c":
            buffers[kernel.outputs[0]] = mx.sort(mx.reshape(buffers[source], shape), axis=-1)
            return
    order = None
    for key in reversed(_keys(kernel, buffers)):
        if order is None:
            order = mx.argsort(key, axis=-1)
        else:
            again = mx.argsort(mx.take_along_axis(key, order, axis=-1), axis=-1)
            order = mx.take_along_axis(order, again, axis=-1)
    assert order is not None
    for source, target in zip(kernel.inputs, kernel.outputs, strict=False):
        buffers[target] = _taken(buffers[source], order, source.dtype.kind == "c")
    if kernel.index:
        target = kernel.outputs[-1]
        # unsigned numbers of 32 bits
        buffers[target] = mx.view(order, mx.int32) if target.dtype == np.int32 else order.astype(mx.int64)


def _keys(kernel: Sort, buffers: Buffers) -> list[MxArray]:
    shape = (kernel.rows, kernel.length)
    keys: list[MxArray] = []
    for buffer in kernel.inputs[: kernel.keys]:
        array = buffers[buffer]
        if buffer.dtype.kind == "c":
            pairs = mx.reshape(array, (*shape, 2))
            keys += [pairs[..., 0], pairs[..., 1]]
        else:
            array = decode(buffer.dtype, array) if is_narrow(buffer.dtype) else array
            keys.append(mx.reshape(array, shape))
    return keys


def _taken(array: MxArray, order: MxArray, pairs: bool) -> MxArray:
    if not pairs:
        return mx.take_along_axis(mx.reshape(array, order.shape), order, axis=-1)
    rows = mx.reshape(array, (*order.shape, 2))
    places = mx.broadcast_to(mx.expand_dims(order, -1), rows.shape)
    return mx.take_along_axis(rows, places, axis=1)


# ------------------------------------------------------------------ library routines
def run_library(kernel: Library, buffers: Buffers) -> None:
    """Run a routine or a block with MLX's function."""
    inputs = [_whole(o, buffers) for o in kernel.inputs]
    if kernel.meaning is not None:
        results: Sequence[MxArray] = [BLOCKS[kernel.routine](inputs, kernel.attributes)]
    else:
        results = ROUTINES[kernel.routine].run(inputs, kernel.attributes)
    for operand, result in zip(kernel.outputs, results, strict=True):
        _write_native(operand, result, buffers)


def _write_native(operand: Operand, value: MxArray, buffers: Buffers) -> None:
    """Write a value of MLX's dtype."""
    dtype = operand.buffer.dtype
    if dtype.kind == "c":
        _write(operand, _parts(value), buffers, 2)
    else:
        _write(operand, mx.view(value, dtype_of_memory(dtype)) if dtype.name in ALIKE else value, buffers)


# ------------------------------------------------------------------ users' functions
def why_not_call(kernel: Callback) -> str | None:
    """The reason that a user's function runs on the host; None if it is a function of MLX arrays."""
    if isinstance(kernel.function, DeviceCall) and kernel.function.device == "mlx":
        return None
    return "a Python function"


def run_call(kernel: Callback, buffers: Buffers) -> None:
    """Run a user's function of MLX arrays as part of the trace."""
    for operand, result in zip(
        kernel.outputs, kernel.function.apply(*(_whole(o, buffers) for o in kernel.inputs)), strict=True
    ):
        _write_native(operand, result, buffers)
