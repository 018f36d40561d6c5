"""Library kernels that run in native code, without Python and its lock.

A kernel that cannot (LAPACK lacks a routine here, or there is no native form) is a host step:
`host_reason` says why.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from math import log2, prod

import numpy as np

from rlx.backends.cpu.routines.action_code import VECTOR_BYTES, lane_count
from rlx.backends.cpu.routines.blas import load_blas
from rlx.backends.cpu.routines.lane_scripts import LANE_ROUTINES, suits_lanes
from rlx.backends.cpu.routines.lanes import LANE_ACTIONS, lanes_text
from rlx.backends.cpu.routines.lapack import FACTORISATIONS
from rlx.backends.cpu.routines.lapack_spectral import SPECTRA
from rlx.backends.cpu.routines.packed_blocks import DECODE, DOTS, product_text
from rlx.backends.cpu.routines.packed_products import PACKED_ACTIONS, PACKED_PRODUCT, fill_packed_product
from rlx.backends.cpu.routines.script_builder import MatrixAddress, MissingRoutine, Script
from rlx.backends.cpu.routines.scripts import ACTIONS, script_step
from rlx.backends.cpu.routines.sparse_scripts import SPARSE_ACTIONS, SPARSE_ROUTINES, fill_sparse
from rlx.backends.cpu.routines.sparse_text import CARRY, PUSH, ROWS, SAMPLE, sparse_text
from rlx.backends.cpu.routines.sparse_triangle_text import INCOMPLETE, PULL, SPREAD, triangle_text
from rlx.backends.cpu.routines.spectrum import SPECTRUM_ACTIONS, spectrum_text
from rlx.backends.cpu.routines.spectrum_scripts import fourier_passes, write_pass
from rlx.backends.cpu.routines.splat_scripts import SPLAT_ACTIONS, SPLAT_BLOCKS, fill_splats, splat_layout
from rlx.backends.cpu.routines.splat_text import SPLAT_FUNCTIONS, SplatLayout, splat_text
from rlx.backends.cpu.runtime.cost import THREAD_NANOSECONDS
from rlx.backends.cpu.runtime.native import NativeFunction
from rlx.backends.cpu.runtime.native_compiler import filler_text, module_text
from rlx.backends.cpu.runtime.store import default_store, fingerprint
from rlx.backends.cpu.runtime.threads import get_num_threads
from rlx.errors import UnsupportedError
from rlx.ir.kernels import Buffer, Library

__all__ = ["host_reason", "library_rows", "native_addresses"]

ROUTINES = FACTORISATIONS | SPECTRA
SCRIPT_NANOSECONDS = 200.0
# nanoseconds for the cube of a matrix's order
FACTORS = {"eigh": 1.0, "svd": 3.0, "eig": 5.0, "schur": 5.0, "sylvester": 10.0}
FACTOR = 0.1

SlotOf = Callable[[Buffer], int]


# ------------------------------------------------------------- native functions
def _scripts(dtype: np.dtype | None) -> tuple[NativeFunction, ...]:
    return (script_step, *ACTIONS)


def _packed(dtype: np.dtype | None) -> tuple[NativeFunction, ...]:
    return PACKED_ACTIONS


@cache
def native_addresses(family: str, dtype: np.dtype | None = None) -> dict[str, int]:
    """Native functions by name, from disk or compiled: functions of scripts, perhaps for a dtype."""
    functions = _FAMILIES[family](dtype)
    names = [function.name for function in functions]
    return _addresses_in(f"{family} {dtype.str if dtype else ''} ", names, lambda: module_text(functions))


def _addresses_in(key: str, names: Sequence[str], module: Callable[[], str]) -> dict[str, int]:
    """The addresses of functions that a module's text defines."""
    name = "rlx_scripts"
    filler = default_store().address(key.encode() + fingerprint(), name, lambda: module() + filler_text(name, names))
    words = (ctypes.c_int64 * len(names))()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(filler)(ctypes.addressof(words))
    return dict(zip(names, words, strict=True))


@cache
def _lane_functions(dtype: np.dtype) -> dict[str, int]:
    """The actions on matrices in lanes."""
    return _addresses_in(f"lanes {dtype.str} ", [*LANE_ACTIONS], lambda: lanes_text(dtype))


@cache
def _spectrum_functions(real: np.dtype) -> dict[str, int]:
    """The actions of Fourier transforms."""
    return _addresses_in(f"spectrum {real.str} ", [*SPECTRUM_ACTIONS], lambda: spectrum_text(real))


@cache
def _packed_functions(scheme: str) -> dict[str, int]:
    """The loops over the blocks of a scheme."""
    return _addresses_in(f"packed {scheme} ", [*DOTS.values(), DECODE], lambda: product_text(scheme))


@cache
def _sparse_functions(dtype: np.dtype, index: np.dtype) -> dict[str, int]:
    """The loops over stored elements."""
    key = f"{dtype.str} {index.str} "
    products = _addresses_in(f"sparse {key}", (ROWS, PUSH, SAMPLE, CARRY), lambda: sparse_text(dtype, index))
    triangles = (PULL, SPREAD, INCOMPLETE)
    return products | _addresses_in(f"triangles {key}", triangles, lambda: triangle_text(dtype, index))


def _sparse(dtype: np.dtype | None) -> tuple[NativeFunction, ...]:
    return SPARSE_ACTIONS


@cache
def _splat_functions(layout: SplatLayout) -> dict[str, int]:
    """The loops over splats of a layout."""
    return _addresses_in(f"splats {layout} ", SPLAT_FUNCTIONS, lambda: splat_text(layout))


def _splats(dtype: np.dtype | None) -> tuple[NativeFunction, ...]:
    return SPLAT_ACTIONS


_FAMILIES = {
    "scripts": _scripts,
    "packed": _packed,
    "sparse": _sparse,
    "splats": _splats,
}


# ------------------------------------------------------------- scripts
def _matrix_scripts(kernel: Library, slot_of: SlotOf) -> list[Script]:
    """The script of a routine of linear algebra."""
    if kernel.routine not in ROUTINES:
        raise MissingRoutine(f"{kernel.routine} has no native form")
    if any(0 in operand.shape for operand in (*kernel.inputs, *kernel.outputs)):
        raise MissingRoutine("an operand is empty")
    try:
        blas = load_blas()
    except UnsupportedError as error:
        raise MissingRoutine(str(error)) from error
    fill, core = ROUTINES[kernel.routine]
    script = Script(kernel, slot_of, native_addresses("scripts"), blas.fortran, core)
    script.nanoseconds = script.batch * _matrix_cost(kernel)
    if kernel.routine in LANE_ROUTINES and suits_lanes(script):
        lanes = lane_count(script.dtype)
        script.use(_lane_functions(script.dtype))
        script.turns = -(-script.batch // lanes)
        fill = LANE_ROUTINES[kernel.routine]
    fill(script)
    return [script]


def _fourier_scripts(kernel: Library, slot_of: SlotOf, between: Callable[[int], MatrixAddress]) -> list[Script]:
    """A script for each axis of a Fourier transform."""
    if 0 in kernel.inputs[0].shape:
        raise MissingRoutine("an operand is empty")
    lengths = tuple(kernel.attributes["lengths"])

    def new_script() -> Script:
        return Script(kernel, slot_of, native_addresses("scripts"), lambda name: 0, len(lengths))

    model = new_script()
    item = 2 * model.real_item
    passes = fourier_passes(
        kernel.attributes["kind"], model.batch, lengths, model.inputs[0], model.outputs[0],
        lambda numbers: between(numbers * item),
    )  # fmt: skip
    scripts = []
    for work in passes:
        script = new_script()
        script.use(_spectrum_functions(np.dtype(f"f{model.real_item}")))
        script.turns = work.blocks(VECTOR_BYTES // item)
        script.nanoseconds = script.turns * work.length * (2.0 + log2(work.length))
        write_pass(script, work)
        scripts.append(script)
    return scripts


def _packed_scripts(kernel: Library, slot_of: SlotOf) -> list[Script]:
    """The script of a product with a packed matrix."""
    script = Script(kernel, slot_of, native_addresses("scripts"), lambda name: 0)
    script.use(native_addresses("packed"))
    fill_packed_product(script, _packed_functions(kernel.attributes["scheme"]))
    return [script]


def _sparse_scripts(kernel: Library, slot_of: SlotOf, between: Callable[[int], MatrixAddress]) -> list[Script]:
    """The scripts of a product with a sparse matrix, of a triangular solve, or of a factorisation."""
    index = kernel.inputs[SPARSE_ROUTINES[kernel.routine][1]].buffer.dtype

    def new_script() -> Script:
        script = Script(kernel, slot_of, native_addresses("scripts"), lambda name: 0, len(kernel.inputs[0].shape))
        script.use(native_addresses("sparse"))
        return script

    functions = _sparse_functions(kernel.inputs[0].buffer.dtype, index)
    return fill_sparse(kernel.routine, new_script, functions, between)


def _splat_scripts(kernel: Library, slot_of: SlotOf) -> list[Script]:
    """The script that draws splats, or of its gradient."""
    script = Script(kernel, slot_of, native_addresses("scripts"), lambda name: 0)
    script.use(native_addresses("splats"))
    fill_splats(script, _splat_functions(splat_layout(kernel)))
    return [script]


def _matrix_cost(kernel: Library) -> float:
    """Rough nanoseconds for one matrix."""
    shape = kernel.inputs[0].shape[-2:]
    sides = sorted((*shape, *kernel.inputs[-1].shape[-1:]))[-2:]
    work = FACTORS.get(kernel.routine, FACTOR) * prod(sides) * max(shape)
    return SCRIPT_NANOSECONDS + work + 2.0 * prod(shape)


# ------------------------------------------------------------- rows
def host_reason(kernel: Library) -> str | None:
    """Why a kernel is a step of Python code; None if it is not.

    >>> from rlx.ir.kernels import Library
    >>> host_reason(Library("matrix_sqrt", (), ()))
    'matrix_sqrt has no native form'
    """
    try:
        _kernel_scripts(kernel, lambda buffer: 0, lambda nbytes: MatrixAddress(0))
    except MissingRoutine as missing:
        return str(missing)
    return None


def _kernel_scripts(kernel: Library, slot_of: SlotOf, between: Callable[[int], MatrixAddress]) -> Sequence[Script]:
    if kernel.routine == "fft":
        return _fourier_scripts(kernel, slot_of, between)
    if kernel.routine == PACKED_PRODUCT:
        return _packed_scripts(kernel, slot_of)
    if kernel.routine in SPLAT_BLOCKS:
        return _splat_scripts(kernel, slot_of)
    if kernel.routine in SPARSE_ROUTINES:
        return _sparse_scripts(kernel, slot_of, between)
    return _matrix_scripts(kernel, slot_of)


def library_rows(
    kernel: Library, slot_of: SlotOf, arena_slot: Callable[[int, int], int], arena: int, launch: int
) -> list[int] | None:
    """The rows of a kernel, or None if it must be a host step.

    Args:
      slot_of: the slot of a buffer.
      arena_slot: makes a slot for bytes of the arena: offset and number.
      arena: the first byte of the arena that the kernel may use.
      launch: the address of parallel_regions.launch.
    """
    behind = arena

    def between(nbytes: int) -> MatrixAddress:
        nonlocal behind
        slot = arena_slot(behind, nbytes)
        behind += -(-nbytes // VECTOR_BYTES) * VECTOR_BYTES
        return MatrixAddress(slot)

    try:
        scripts = _kernel_scripts(kernel, slot_of, between)
    except MissingRoutine:
        return None
    step = native_addresses("scripts")["script_step"]
    rows: list[int] = []
    for script in scripts:
        parts = max(1, int(script.nanoseconds / THREAD_NANOSECONDS))
        tasks = max(1, min(script.turns, parts, 2 * get_num_threads()))
        scratch = arena_slot(behind, tasks * script.scratch_bytes)
        head = [script.turns, tasks, parts, scratch, script.scratch_bytes, launch]
        rows += script.row(step, head)
    return rows
