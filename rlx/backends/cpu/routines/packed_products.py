"""Products with matrices that stay packed: the block `dequantized_product` in native code.

The rows of the matrix are cut into tiles; each is one iteration of a script (see scripts.py). For few rows of x, every
row of the tile is decoded in registers and multiplied directly. For many, part of the tile is decoded into the task's
own memory, which stays in its core's cache, and BLAS multiplies by it. The whole decoded matrix is never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from rlx.backends.cpu.routines.blas import load_blas
from rlx.backends.cpu.routines.gemm import NOT_TRANSPOSED, ROW_MAJOR, TRANSPOSED, call_single
from rlx.backends.cpu.routines.packed_blocks import DECODE, DOTS, PackedScheme, packed_scheme
from rlx.backends.cpu.routines.script_builder import MatrixAddress, MissingRoutine, Script
from rlx.backends.cpu.routines.scripts import ACTION_HEAD, MATRIX, PLACE_WORDS, place
from rlx.backends.cpu.runtime.native import NativeSignature, Word, minimum, native, pointer_operation
from rlx.errors import UnsupportedError
from rlx.ir.types import TensorType

__all__ = ["PACKED_ACTIONS", "PACKED_PRODUCT", "fill_packed_product", "takes_packed_product"]

PACKED_PRODUCT = "dequantized_product"
FEW_ROWS = 16  # of x: up to here decoding anew for every four is cheaper than a tile
DOT_TILE_BYTES = 1 << 16  # of packed rows in a tile whose rows are multiplied directly
TILE_ROWS = 240
TILE_DEPTH = 256  # numbers of a row in a tile: 240 KiB with its rows; each of two threads has two tiles
_BYTE_NANOSECONDS = 0.15
_PRODUCT_NANOSECONDS = 0.02

call_dot = NativeSignature("void", ("ptr",) * 2 + ("i64",) * 2 + ("ptr",) * 3 + ("i64",) * 5)
call_decode = NativeSignature("void", ("ptr", "i64") + ("ptr",) * 3 + ("i64",) * 5)

multiply_single = pointer_operation(
    "{a}factor = inttoptr i64 {1} to ptr\n{b} = load float, ptr {a}factor\n{c} = load float, ptr {a}\n"
    "{c}all = fmul float {b}, {c}\nstore float {c}all, ptr {a}\n{result} = add i64 0, 0"
)

# Fields of an action, after the places of x, elements, scales, zeros, results, the global scale and the tile.
FIELDS = ACTION_HEAD + 7 * PLACE_WORDS
DOT_FUNCTION = FIELDS
FOUR_FUNCTION = FIELDS + 1  # the same for four rows of x at once
DECODE_FUNCTION = FIELDS + 2
ROWS = FIELDS + 3  # of x
COLUMNS = FIELDS + 4  # of the result: rows of the matrix
BLOCKS = FIELDS + 5  # of a row
ELEMENTS_BYTES = FIELDS + 6  # of a row
SCALES_BYTES = FIELDS + 7
ZEROS_BYTES = FIELDS + 8
TILE = FIELDS + 9  # rows of a tile
BLOCK_ELEMENTS = FIELDS + 10
BLOCK_BYTES = FIELDS + 11
BLOCK_SCALES = FIELDS + 12
BLOCK_ZEROS = FIELDS + 13
DEPTH_BLOCKS = FIELDS + 14  # of a row in a tile
GEMM = FIELDS + 15
SCALED = FIELDS + 16  # whether there is a global scale


@native
def scale_results(action: Word, out: Word, rows: Word, factor: Word) -> int:
    """Multiply the results of a tile by the global scale."""
    if action[SCALED]:
        for row in range(action[ROWS]):
            for column in range(rows):
                multiply_single(out + 4 * (action[COLUMNS] * row + column), factor)
    return 0


@native
def multiply_packed_rows(state: Word, action: Word) -> int:
    """Results of a tile, decoded once for every four rows of x."""
    x = place(state, action + 8 * ACTION_HEAD)
    elements = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    scales = place(state, action + 8 * (ACTION_HEAD + 2 * PLACE_WORDS))
    zeros = place(state, action + 8 * (ACTION_HEAD + 3 * PLACE_WORDS))
    out = place(state, action + 8 * (ACTION_HEAD + 4 * PLACE_WORDS))
    columns = action[COLUMNS]
    rows = minimum(action[TILE], columns - state[MATRIX] * action[TILE])
    width = 4 * action[BLOCKS] * action[BLOCK_ELEMENTS]
    row = 0
    while row < action[ROWS]:
        function = action[DOT_FUNCTION]
        step = 1
        if row + 4 <= action[ROWS]:
            function = action[FOUR_FUNCTION]
            step = 4
        call_dot(
            function, out + 4 * columns * row, x + width * row, 4 * columns, width, elements, scales, zeros,
            rows, action[BLOCKS], action[ELEMENTS_BYTES], action[SCALES_BYTES], action[ZEROS_BYTES],
        )  # fmt: skip
        row = row + step
    return scale_results(action, out, rows, place(state, action + 8 * (ACTION_HEAD + 5 * PLACE_WORDS)))


@native
def multiply_packed_tile(state: Word, action: Word) -> int:
    """Results of a tile, which is decoded part by part for BLAS."""
    x = place(state, action + 8 * ACTION_HEAD)
    elements = place(state, action + 8 * (ACTION_HEAD + PLACE_WORDS))
    scales = place(state, action + 8 * (ACTION_HEAD + 2 * PLACE_WORDS))
    zeros = place(state, action + 8 * (ACTION_HEAD + 3 * PLACE_WORDS))
    out = place(state, action + 8 * (ACTION_HEAD + 4 * PLACE_WORDS))
    tile = place(state, action + 8 * (ACTION_HEAD + 6 * PLACE_WORDS))
    columns = action[COLUMNS]
    rows = minimum(action[TILE], columns - state[MATRIX] * action[TILE])
    length = action[BLOCKS] * action[BLOCK_ELEMENTS]
    done = 0
    while done < action[BLOCKS]:
        blocks = minimum(action[DEPTH_BLOCKS], action[BLOCKS] - done)
        depth = blocks * action[BLOCK_ELEMENTS]
        call_decode(
            action[DECODE_FUNCTION], tile, 4 * depth, elements + done * action[BLOCK_BYTES],
            scales + done * action[BLOCK_SCALES], zeros + done * action[BLOCK_ZEROS],
            rows, blocks, action[ELEMENTS_BYTES], action[SCALES_BYTES], action[ZEROS_BYTES],
        )  # fmt: skip
        call_single(
            action[GEMM], ROW_MAJOR, NOT_TRANSPOSED, TRANSPOSED, action[ROWS], rows, depth, 1,
            x + 4 * done * action[BLOCK_ELEMENTS], length, tile, depth, done != 0, out, columns,
        )  # fmt: skip
        done = done + blocks
    return scale_results(action, out, rows, place(state, action + 8 * (ACTION_HEAD + 5 * PLACE_WORDS)))


PACKED_ACTIONS = (multiply_packed_rows, multiply_packed_tile)


def takes_packed_product(types: tuple[TensorType, ...], attributes: Mapping[str, Any]) -> bool:
    """Whether this backend has a rule for the scheme, and the operands are of the kinds that it is for."""
    scheme = packed_scheme(attributes["scheme"])
    # behind its operands a block has the constants of its equations
    given = dict(zip(attributes["operands"], types, strict=False))
    x, elements = given["x"], given["elements"]
    return (
        scheme is not None
        and given.keys() - {"global_scale"} == {"x", "elements", *_apart(scheme)}
        and x.dtype == given.get("global_scale", x).dtype == np.float32
        and elements.dtype.itemsize == 1
        and 0 not in (*x.shape, *elements.shape)
        and elements.shape[-1] % scheme.nbytes == 0
        and x.shape[-1] == elements.shape[-1] // scheme.nbytes * scheme.elements
        and all(
            given[name].size * given[name].dtype.itemsize == elements.size // scheme.nbytes * nbytes
            for name, nbytes in _apart(scheme).items()
        )
    )


def _apart(scheme: PackedScheme) -> dict[str, int]:
    """Bytes of a block that are stored outside its elements, by the operand that has them."""
    parts = {"scales": scheme.scales, "zeros": scheme.zeros}
    return {name: nbytes for name, nbytes in parts.items() if nbytes}


def fill_packed_product(script: Script, functions: Mapping[str, int]) -> None:
    """One action for each tile; `functions`: the addresses of the scheme's DOTS and DECODE."""
    scheme = _scheme(script.attributes["scheme"])
    x, elements = (operand.shape for operand in script.kernel.inputs[:2])
    rows, columns, blocks = x[0], elements[0], elements[1] // scheme.nbytes
    few = rows <= FEW_ROWS
    depth = max(1, min(blocks, TILE_DEPTH // scheme.elements))
    if few:
        tile = max(1, min(columns, DOT_TILE_BYTES // elements[1]))
    else:
        tile = max(1, min(columns, TILE_ROWS))
    strides = (elements[1], blocks * scheme.scales, blocks * scheme.zeros)
    script.turns = -(-columns // tile)
    script.nanoseconds = columns * elements[1] * _BYTE_NANOSECONDS
    if not few:
        script.nanoseconds += _PRODUCT_NANOSECONDS * rows * columns * blocks * scheme.elements
    scratch = MatrixAddress(0) if few else script.scratch(4 * tile * depth * scheme.elements)
    given = dict(zip(script.attributes["operands"], script.inputs, strict=False))
    steps = {"x": 0, **dict(zip(("elements", "scales", "zeros"), (tile * nbytes for nbytes in strides), strict=True))}
    places = [
        *(replace(given[name], step=step) if name in given else MatrixAddress(0) for name, step in steps.items()),
        replace(script.outputs[0], step=4 * tile),
        replace(given.get("global_scale", MatrixAddress(0)), step=0),
        scratch,
    ]
    script.act(
        "multiply_packed_rows" if few else "multiply_packed_tile",
        *places,
        functions[DOTS[1]],
        functions[DOTS[4]],
        functions[DECODE],
        rows,
        columns,
        blocks,
        *strides,
        tile,
        scheme.elements,
        scheme.nbytes,
        scheme.scales,
        scheme.zeros,
        depth,
        0 if few else _gemm(),
        "global_scale" in given,
    )


def _scheme(name: str) -> PackedScheme:
    scheme = packed_scheme(name)
    if scheme is None:
        raise MissingRoutine(f"{name} has no native form")
    return scheme


@cache
def _gemm() -> int:
    """The address of BLAS's product of matrices."""
    try:
        return load_blas().address("sgemm")
    except UnsupportedError as error:
        raise MissingRoutine(str(error)) from error
