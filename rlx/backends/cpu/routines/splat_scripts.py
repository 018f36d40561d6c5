"""Splats in native code: the blocks `splat_rasterise` and its gradient. See splat_text.py for the loops.

A tile of the image is one iteration of a script. Tiles share nothing, so that results are the same for any number of
threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rlx.backends.cpu.routines.script_builder import MatrixAddress, Script
from rlx.backends.cpu.routines.scripts import ACTION_HEAD, MATRIX, PLACE_WORDS, operand_place
from rlx.backends.cpu.routines.splat_text import SPLAT_FUNCTIONS, state_numbers
from rlx.backends.cpu.runtime.native import NativeSignature, Word, clear_bytes, load_int32, minimum, native
from rlx.ir.splats import RASTERISE, splat_layout

__all__ = ["SPLAT_ACTIONS", "fill_splats"]

_RUN = 32  # splats that are drawn before opaque pixels are counted
_PIXEL_NANOSECONDS = 0.3  # of one splat

call_begin = NativeSignature("void", ("ptr", "ptr", "i64"))
call_draw = NativeSignature("i64", ("ptr",) * 5 + ("i64",) * 2)
call_finish = NativeSignature("void", ("ptr", "ptr"))
call_begin_back = NativeSignature("i64", ("ptr",) * 4)
call_draw_back = NativeSignature("void", ("ptr",) * 6 + ("i64",) * 2)

# Fields of an action: nine places, then these.
FIELDS = ACTION_HEAD + 9 * PLACE_WORDS
BEGIN = FIELDS
DRAW = FIELDS + 1
FINISH = FIELDS + 2
BEGIN_BACK = FIELDS + 3
DRAW_BACK = FIELDS + 4
TILES = FIELDS + 5
CAPACITY = FIELDS + 6  # places in the order
SPLAT_BYTES = FIELDS + 7


@native
def draw_tile(state: Word, action: Word) -> int:
    """[image, seen, splats, order, start, end, origin, memory]: a tile of the image."""
    image = operand_place(state, action, 0)
    seen = operand_place(state, action, 1)
    splats = operand_place(state, action, 2)
    order = operand_place(state, action, 3)
    first = load_int32(operand_place(state, action, 4))
    end = load_int32(operand_place(state, action, 5))
    origin = operand_place(state, action, 6)
    memory = operand_place(state, action, 7)
    call_begin(action[BEGIN], memory, seen, first)
    unfinished = 1
    while first < end and unfinished:
        last = minimum(first + _RUN, end)
        unfinished = call_draw(action[DRAW], memory, seen, splats, order, origin, first, last)
        first = last
    call_finish(action[FINISH], memory, image)
    return 0


@native
def draw_tile_back(state: Word, action: Word) -> int:
    """[found, seen, splats, order, start, image, origin, memory, cotangent]: cotangents of the splats of a tile.

    Places up to the next tile's that no pixel has seen get zeros.
    """
    found = operand_place(state, action, 0)
    seen = operand_place(state, action, 1)
    splats = operand_place(state, action, 2)
    order = operand_place(state, action, 3)
    starts = operand_place(state, action, 4)
    image = operand_place(state, action, 5)
    origin = operand_place(state, action, 6)
    memory = operand_place(state, action, 7)
    cotangent = operand_place(state, action, 8)
    first = load_int32(starts)
    following = action[CAPACITY]
    if state[MATRIX] + 1 < action[TILES]:
        following = load_int32(starts + 4)
    last = call_begin_back(action[BEGIN_BACK], memory, seen, image, cotangent)
    if last < first:
        last = first
    call_draw_back(action[DRAW_BACK], memory, seen, splats, order, origin, found, first, last)
    clear_bytes(found + last * action[SPLAT_BYTES], (following - last) * action[SPLAT_BYTES])
    return 0


SPLAT_ACTIONS = (draw_tile, draw_tile_back)


def fill_splats(script: Script, functions: Mapping[str, int]) -> None:
    """One action for each tile; `functions`: addresses of SPLAT_FUNCTIONS."""
    layout = splat_layout(script.kernel)
    given = dict(zip(script.attributes["operands"], script.inputs, strict=False))
    (capacity,), (tiles,) = (script.kernel.inputs[n].shape for n in (1, 2))
    item = script.item
    memory = script.scratch(item * state_numbers(layout))
    script.turns = tiles
    script.nanoseconds = _PIXEL_NANOSECONDS * layout.pixels * capacity
    picture, seen = item * layout.pixels * (layout.channels + 1), 4 * layout.pixels
    back = script.kernel.routine != RASTERISE

    def at(name: str, step: int) -> MatrixAddress:
        return replace(given[name], step=step)

    found = [replace(p, step=step) for p, step in zip(script.outputs, (0,) if back else (picture, seen), strict=True)]
    places = [
        found[0],
        at("last", seen) if back else found[1],
        at("splats", 0),
        at("order", 0),
        at("starts", 4),
        at("image", picture) if back else at("ends", 4),
        at("origins", 2 * item),
        memory,
        at("cotangent", picture) if back else MatrixAddress(0),
    ]
    addresses = [functions[name] for name in SPLAT_FUNCTIONS]
    name = "draw_tile_back" if back else "draw_tile"
    script.act(name, *places, *addresses, tiles, capacity, item * layout.numbers)
