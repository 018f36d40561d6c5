"""User-written kernels in programs: opencl_call, cuda_call and wgpu_call."""

from __future__ import annotations

from math import prod
from typing import Any

from rlx.errors import UnsupportedError
from rlx.host.callback import result_types
from rlx.ir.types import TensorType
from rlx.ir.user_functions import KernelCall
from rlx.ops.callback import pure_callback
from rlx.trace.flat import as_array
from rlx.trace.primitive import type_of
from rlx.trees import tree

__all__ = ["cuda_call", "opencl_call", "wgpu_call"]

_MOST_ITEMS = 1024  # work-items per work-group, on all devices
_DIMENSIONS = 3
_MOST_GROUPS = 65535  # along a dimension, on WebGPU


def opencl_call(
    source: str,
    name: str,
    result_shape_dtypes: Any,
    *args: Any,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
) -> Any:
    """The outputs of an OpenCL C kernel, launched by programs on the device "opencl".

    The kernel is called as `name(*outputs, *inputs)`, all `__global` pointers to row-major arrays. It must write every
    element of its outputs, which are uninitialised, and must not write to its inputs. It must have no side effects:
    the call may be skipped or repeated. It has no derivative: wrap the call in rlx.custom_jvp or rlx.custom_vjp.
    Under vmap one launch computes up to 65,535 elements of the batch: its work-groups have a third dimension, whose
    index selects the element. A kernel that has three dimensions itself, uses that dimension (`get_global_id(2)`,
    `get_work_dim`) or has local memory is launched once for each element.

    Args:
      source: OpenCL C, with a `__kernel void` of this name.
      name: the kernel's name.
      result_shape_dtypes: the outputs' types: a tree of rlx.ShapeDtypeStruct, or of arrays.
      args: arrays or numbers.
      grid: the number of work-groups along each dimension.
      block: the number of work-items per work-group along each dimension.

    Raises: UnsupportedError for sizes that no device supports; DeviceError if the compiler rejects the source, or if
      operands are on the host.

    >>> import rlx
    >>> twice = '''__kernel void twice(__global float *y, __global const float *x) {
    ...     const int i = get_global_id(0);
    ...     y[i] = 2 * x[i];
    ... }'''
    >>> x = rlx.ShapeDtypeStruct((256,), "float32")
    >>> rlx.eval_shape(lambda x: rlx.opencl_call(twice, "twice", x, x, grid=4, block=64) + 1, x).shape
    (256,)
    """
    return _call("opencl", source, name, result_shape_dtypes, args, grid, block)


def cuda_call(
    source: str,
    name: str,
    result_shape_dtypes: Any,
    *args: Any,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
) -> Any:
    """The outputs of a CUDA C++ kernel, launched by programs on the device "cuda".

    As rlx.opencl_call, except for the language: the kernel is an `extern "C" __global__ void` of this name. Kernels
    with shared memory are also launched once per batch; kernels with `blockIdx.z` or cooperative groups are not.

    Args:
      source: CUDA C++ for NVRTC.
      name: the kernel's name.
      result_shape_dtypes: the outputs' types: a tree of rlx.ShapeDtypeStruct, or of arrays.
      args: arrays or numbers.
      grid: the number of thread blocks along each dimension.
      block: the number of threads per block along each dimension.

    Raises: UnsupportedError for sizes that no device supports; DeviceError if the compiler rejects the source, or if
      operands are on the host.

    >>> import rlx
    >>> twice = 'extern "C" __global__ void twice(float *y, const float *x) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
    >>> x = rlx.ShapeDtypeStruct((256,), "float32")
    >>> rlx.eval_shape(lambda x: rlx.cuda_call(twice, "twice", x, x, grid=1, block=256), x).dtype
    dtype('float32')
    """
    return _call("cuda", source, name, result_shape_dtypes, args, grid, block)


def wgpu_call(source: str, name: str, result_shape_dtypes: Any, *args: Any, grid: int | tuple[int, ...]) -> Any:
    """The outputs of a WGSL kernel, launched by programs on the device "wgpu".

    As rlx.opencl_call, except for the language: outputs, then inputs, are the bindings 0, 1, ... of group 0, row-major
    arrays in `var<storage, read_write>` and `var<storage, read>`. The text has the size of a work-group. Under vmap
    the kernel is launched once for each element.

    Args:
      source: WGSL with a compute entry point of this name.
      name: the entry point's name.
      result_shape_dtypes: the outputs' types: a tree of rlx.ShapeDtypeStruct, or of arrays.
      args: arrays or numbers.
      grid: the number of work-groups along each dimension.

    Raises: UnsupportedError for sizes that no device supports; DeviceError if the compiler rejects the source, or if
      operands are on the host.

    >>> import rlx
    >>> twice = '''@group(0) @binding(0) var<storage, read_write> y: array<f32>;
    ... @group(0) @binding(1) var<storage, read> x: array<f32>;
    ... @compute @workgroup_size(64) fn twice(@builtin(global_invocation_id) i: vec3<u32>) { y[i.x] = 2 * x[i.x]; }
    ... '''
    >>> x = rlx.ShapeDtypeStruct((256,), "float32")
    >>> rlx.eval_shape(lambda x: rlx.wgpu_call(twice, "twice", x, x, grid=4) + 1, x).shape
    (256,)
    """
    if max((grid,) if isinstance(grid, int) else grid, default=0) > _MOST_GROUPS:
        raise UnsupportedError(
            f"The grid of {name} is {grid}; WebGPU has at most {_MOST_GROUPS:,} work-groups along a dimension.",
            "Continue along a second dimension.",
        )
    return _call("wgpu", source, name, result_shape_dtypes, args, grid, 1)


def _call(device: str, source: str, name: str, result: Any, args: tuple[Any, ...], grid: Any, block: Any) -> Any:
    types, structure = result_types(result)
    arrays = [as_array(a, f"an argument of {device}_call") for a in args]
    inputs = tuple(TensorType(t.shape, t.dtype) for t in map(type_of, arrays))
    sizes = _sizes(grid, f"grid of {name}", (1 << 31) - 1), _sizes(block, f"block of {name}", _MOST_ITEMS)
    call = KernelCall(device, source, name, *sizes, inputs, tuple(types))
    return tree.unflatten(structure, pure_callback(*arrays, function=call, vmap_method="sequential"))


def _sizes(given: int | tuple[int, ...], what: str, most: int) -> tuple[int, ...]:
    """Sizes along one to three dimensions, with a product of at most `most`."""
    sizes = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(sizes) <= _DIMENSIONS or any(size < 1 for size in sizes) or prod(sizes) > most:
        raise UnsupportedError(
            f"The {what} is {sizes}.", f"Give one to three positive sizes with a product of at most {most}."
        )
    return sizes
