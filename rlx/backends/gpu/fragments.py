"""Fragments: what the items of a warp hold of matrices that a device multiplies as a whole."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FRAGMENT_ROWS", "FRAGMENT_WORDS", "Chain", "Fragments"]

FRAGMENT_ROWS = 16  # of sums
FRAGMENT_WORDS = 8  # of 32 bits that each row of the left matrix has, and each column of the right one


@dataclass(frozen=True, slots=True)
class Chain:
    """How sums are an operand of the next product, where they lie: rounded and packed in pairs, in the order of an
    item's sums and of neighbouring fragments.

    rows: of a fragment, of which an item has parts; of each it has as many sums. apart: how far apart the items lie
    that share a row. turned: whether this is so of the transposed product, its operands the other way round.

    Where an operand has twice as many words as an item's sums give, the item has every second number of its row, and
    one `apart` has the others.
    """

    rows: int
    apart: int
    turned: bool


@dataclass(frozen=True, slots=True)
class Fragments:
    """A unit for matrices: a warp adds to 16 rows of some columns of sums what 8 words of each row and column give.

    name: of what a word has, one number ("tf32"), two ("f16", "bf16") or four ("s8", "e4m3"). items: of a warp.
    columns: of the sums. left, right: each word that an item has, as the row (of the right matrix the column) and the
    number of the word in it. sums: how many an item has, of the dtype `summed_in`; row, column: those of its sum {0}.
    These are texts; in them `lane` is the number of an item in its warp. chain: how sums are multiplied again, if they
    are.
    """

    name: str
    items: int
    columns: int
    left: tuple[tuple[str, str], ...]
    right: tuple[tuple[str, str], ...]
    sums: int
    row: str
    column: str
    chain: Chain | None = None
    summed_in: str = "float32"
