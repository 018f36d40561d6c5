"""Data-parallel training is training: two and four members learn what one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from modules import load

from rlx.distributed import threads

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "data_parallel.py"


@pytest.mark.parametrize(("count", "dtype"), [(2, "float64"), (4, "float64"), (2, "float32"), (4, "float32")])
def test_members_learn_what_one_does(count: int, dtype: str) -> None:
    example = load(EXAMPLE)  # which compares with one process, to 1e-12 in float64 and 1e-5 in float32
    values = threads.run(count, example.main, dtype)
    assert len(set(values)) == 1
