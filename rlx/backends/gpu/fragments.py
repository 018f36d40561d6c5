"""Fragments: the parts that the work-items of a warp hold of matrices that a device multiplies as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx.backends.c.dialect import CDialect
from rlx.backends.loops.printing import Printer
from rlx.code.tree import Expression, Register, substituted

__all__ = ["FRAGMENT_ROWS", "FRAGMENT_WORDS", "LANE", "NUMBER", "Chain", "Fragments", "numbered"]

FRAGMENT_ROWS = 16  # rows of sums in a fragment
LANE = Register(np.dtype(np.int32), "lane")  # the index of a work-item in its warp
NUMBER = Register(np.dtype(np.int32), "number")  # the index of one of a work-item's sums
FRAGMENT_WORDS = 8  # 32-bit words of each row of the left matrix, and of each column of the right one


@dataclass(frozen=True, slots=True)
class Chain:
    """How sums become an operand of the next product in place: rounded and packed in pairs, in the order of a
    work-item's sums and of neighbouring fragments.

    rows: the number of a fragment's rows of which a work-item has parts; it has equally many sums of each. apart: the
    distance between work-items that share a row. turned: whether this holds for the transposed product, operands
    swapped.

    If an operand has twice the words that a work-item's sums give, the work-item has every second number of its row,
    and the work-item at distance `apart` has the others.
    """

    rows: int
    apart: int
    turned: bool


@dataclass(frozen=True, slots=True)
class Fragments:
    """A matrix unit: a warp adds products to 16 rows of some columns of sums; each row and column has 8 words.

    name: the contents of a word: one number ("tf32"), two ("f16", "bf16") or four ("s8", "e4m3"). items: work-items of
    a warp. columns: of the sums. left, right: for each word that a work-item has, its row (in the right matrix its
    column) and the index of the word in it. sums: the number of a work-item's sums, of the dtype `summed_in`; row,
    column: the position of its sum `NUMBER`. These are expressions in `LANE`. chain: how sums become operands of
    another product, if they can. moves: whether a warp loads words as matrices (`LoadMatrix`), and copies to a group's
    memory overlap with products (`AsyncCopy`).
    """

    name: str
    items: int
    columns: int
    left: tuple[tuple[Expression, Expression], ...]
    right: tuple[tuple[Expression, Expression], ...]
    sums: int
    row: Expression
    column: Expression
    chain: Chain | None = None
    summed_in: str = "float32"
    moves: bool = False


def numbered(expression: Expression, number: str = "") -> str:
    """The text of an expression of fragments, with the text of a number."""
    return Printer(CDialect()).plain(substituted(expression, {NUMBER: Register(NUMBER.dtype, number)}))
