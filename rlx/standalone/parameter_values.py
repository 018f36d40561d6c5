"""Arguments whose values are part of an exported function: its parameters as constants, in the source or in a file."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from rlx.backends.c.weights import WeightFile, named_constants
from rlx.backends.loops.executable import elements
from rlx.ir.kernels import Buffer, Plan
from rlx.ir.rename import renamed
from rlx.ir.types import memory_dtype
from rlx.serialization import safetensors
from rlx.serialization.contents import Contents

__all__ = ["weight_file", "with_values"]


def with_values(plan: Plan, names: Sequence[str], values: Sequence[np.ndarray]) -> Plan:
    """The plan with constants of these names and values in place of its first inputs."""
    read = {b for kernel in plan.kernels for b in kernel.reads}
    constants = {
        old: Buffer(old.dtype, old.size, "constant", np.asarray(value), name)
        for old, name, value in zip(plan.inputs, names, values, strict=False)
        if old in read
    }
    inputs = plan.inputs[len(names) :]
    kept = tuple(b for b in plan.buffers if b not in plan.inputs[: len(names)])
    kernels = tuple(renamed(kernel, constants) for kernel in plan.kernels)
    return replace(plan, inputs=inputs, kernels=kernels, buffers=(*kept, *constants.values()))


def weight_file(plan: Plan) -> WeightFile:
    """The constants of a plan as safetensors. Each is aligned to its elements if the file is aligned to 8 bytes."""
    constants = named_constants(plan)
    # elements of decreasing size need no padding, which the format does not have
    order = sorted(constants, key=lambda name: -memory_dtype(constants[name].dtype).itemsize)
    arrays = {name: _storable(constants[name]) for name in order}
    written = io.BytesIO()
    safetensors.write(written, Contents(arrays, {}))
    data = written.getvalue()
    head = 8 + struct.unpack_from("<Q", data)[0]
    ends = accumulate((array.nbytes for array in arrays.values()), initial=head)
    offsets = dict(zip(order, ends, strict=False))
    return WeightFile(data, tuple(offsets[name] for name in constants), head)


def _storable(constant: Buffer) -> np.ndarray:
    """A constant in its own dtype, or as its codes if the format lacks that."""
    value = np.ascontiguousarray(constant.value)
    if safetensors.holds(value.dtype):
        return value
    codes = elements(constant.elements)
    return codes.view(np.float64) if codes.dtype.kind == "c" else codes
