"""Scripts for small matrices of a large batch: a block fills the lanes of vectors, see lanes.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rlx.backends.cpu.routines.action_code import VECTOR_BYTES, lane_count
from rlx.backends.cpu.routines.script_builder import MatrixAddress, Script

__all__ = ["LARGEST_ORDER", "LANE_ROUTINES", "suits_lanes"]

LARGEST_ORDER = 32
FEWEST_BLOCKS = 0.5


def suits_lanes(script: Script) -> bool:
    """Whether the matrices are small and many."""
    largest = max(size for operand in script.kernel.inputs for size in operand.shape[len(script.batch_shape) :])
    return largest <= LARGEST_ORDER and script.batch >= FEWEST_BLOCKS * lane_count(script.dtype)


def _vectors(script: Script, elements: int) -> MatrixAddress:
    return script.scratch(elements * VECTOR_BYTES * (2 if script.is_complex else 1))


def _first_of_block(script: Script, place: MatrixAddress) -> MatrixAddress:
    return replace(place, step=place.step * lane_count(script.dtype))


def _move(
    script: Script, action: str, lanes: MatrixAddress, place: MatrixAddress, sizes: tuple[int, int],
    order: MatrixAddress | None = None,
) -> None:  # fmt: skip
    """The action "pack" or "unpack", perhaps of rows in an order."""
    numbers, where = sizes[1] * script.item // script.real_item, _first_of_block(script, place)
    if order is None:
        script.act(f"{action}_lanes", lanes, where, sizes[0] * numbers, place.step, script.batch)
    else:
        order = _first_of_block(script, order)
        script.act(f"{action}_ordered", lanes, where, order, numbers, place.step, script.batch, sizes[0])


def _packed(script: Script, number: int, order: MatrixAddress | None = None) -> MatrixAddress:
    """Lanes that contain an input."""
    rows, columns = script.sizes(number)
    lanes = _vectors(script, rows * columns)
    _move(script, "pack", lanes, script.inputs[number], (rows, columns), order)
    return lanes


def _conjugate(script: Script, lanes: MatrixAddress, elements: int) -> None:
    if script.is_complex and script.attributes.get("conjugate_a", False):
        script.act("conjugate_lanes", lanes, elements)


def cholesky(script: Script) -> None:
    """NaN for those that fail."""
    order = script.kernel.inputs[0].shape[-1]
    lanes = _packed(script, 0)
    script.act("cholesky_lanes", lanes, order)
    _move(script, "unpack", lanes, script.outputs[0], (order, order))


def lu(script: Script) -> None:
    """Pivots are chosen lane by lane."""
    rows, columns = script.kernel.inputs[0].shape[-2:]
    steps = min(rows, columns)
    packed, pivots, permutation = script.outputs
    lanes = _packed(script, 0)
    found = script.scratch(VECTOR_BYTES * steps)
    script.act("lu_lanes", lanes, found, rows, columns)
    _move(script, "unpack", lanes, packed, (rows, columns))
    script.act(
        "unpack_pivots", found, _first_of_block(script, pivots), _first_of_block(script, permutation), steps, rows,
        script.batch,
    )  # fmt: skip


def triangular_solve(script: Script) -> None:
    """From the right: the transposed system."""
    attributes = script.attributes
    left = attributes.get("left_side", True)
    turned = attributes.get("transpose_a", False) == left
    lower = attributes.get("lower", True) != turned
    rows, columns = sizes = script.sizes(1)
    order, count = sizes if left else (columns, rows)
    matrix, lanes = _packed(script, 0), _packed(script, 1)
    _conjugate(script, matrix, order * order)
    unit = attributes.get("unit_diagonal", False)
    steps = ((1, order) if turned else (order, 1)) + ((columns, 1) if left else (1, columns))
    script.act("substitute_lanes", matrix, lanes, order, count, int(lower), int(unit), *steps)
    _move(script, "unpack", lanes, script.outputs[0], sizes)


def lu_solve(script: Script) -> None:
    """Rows are interchanged while moving into the lanes, or out of the lanes."""
    transposed = script.attributes.get("transpose_a", False)
    rows, columns = sizes = script.sizes(2)
    permutation, target = script.inputs[1], script.outputs[0]
    factors = _packed(script, 0)
    _conjugate(script, factors, rows * rows)
    lanes = _packed(script, 2, None if transposed else permutation)
    steps = ((1, rows) if transposed else (rows, 1)) + (columns, 1)
    script.act("substitute_lanes", factors, lanes, rows, columns, 1, int(not transposed), *steps)
    script.act("substitute_lanes", factors, lanes, rows, columns, 0, int(transposed), *steps)
    _move(script, "unpack", lanes, target, sizes, permutation if transposed else None)


LANE_ROUTINES: dict[str, Callable[[Script], None]] = {
    "cholesky": cholesky,
    "lu": lu,
    "triangular_solve": triangular_solve,
    "lu_solve": lu_solve,
}
