"""The four program transforms together."""

from __future__ import annotations

from rlx.transforms import table
from rlx.transforms.batch import batch_program, batch_walk
from rlx.transforms.jvp import jvp_program, jvp_walk
from rlx.transforms.split import separate_program, split_program
from rlx.transforms.transpose import backward_walk, transpose_program

__all__ = [
    "backward_walk",
    "batch_program",
    "batch_walk",
    "jvp_program",
    "jvp_walk",
    "separate_program",
    "split_program",
    "transpose_program",
]

table.transforms.jvp = jvp_program
table.transforms.split = split_program
table.transforms.separate = separate_program
table.transforms.transpose = transpose_program
table.transforms.batch = batch_program
