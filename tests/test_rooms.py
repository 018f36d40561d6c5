"""The files that `jit(f)(x)` visits, in order: no stage of the compiler returns to the files of an earlier one.

Except for the files in SHARED, which define the data of several stages. All stages ask the primitives (`rlx/ops`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlx
import rlx.numpy as jnp

PACKAGE = Path(rlx.__file__).resolve().parent
# the first file of each stage, in order, and the rooms that do the stage's work
STAGES = (
    ("trace/tracing.py", ("trace", "numpy")),
    ("passes/place_exchanges.py", ("passes",)),
    ("lowering/lower.py", ("lowering",)),
    ("planning/choose_product_layouts.py", ("planning",)),
    ("backends/{device}/", ("backends",)),
)
# files that later stages visit, too
SHARED = {
    "the table of steps, and the cache of executables": {"passes/pipeline.py"},
    "what an equation is": {"trace/primitive.py", "trace/lower.py"},
    "what nests are": {"lowering/nest.py", "lowering/nodes.py"},
}


def files_visited(function: Callable[[], Any]) -> list[str]:
    """The files of rlx whose functions a call runs, in order; consecutive calls in one file are one visit."""
    visited: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{PACKAGE}/"):
            name = path[len(str(PACKAGE)) + 1 :]
            if not visited or visited[-1] != name:
                visited.append(name)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return visited


def visited_again(visited: list[str], device: str) -> dict[str, int]:
    """Files that belong to a stage, and that later stages visit, with the number of visits."""
    starts = [start.format(device=device) for start, _ in STAGES]
    found: dict[str, int] = {}
    stage = 0
    for name in visited:
        if stage < len(STAGES) and name.startswith(starts[stage]):
            stage += 1
        if any(name.startswith(f"{room}/") for _, rooms in STAGES[: max(stage - 1, 0)] for room in rooms):
            found[name] = found.get(name, 0) + 1
    assert stage == len(STAGES), f"{starts[stage]} was not visited"
    return found


def program(x: Any) -> Any:
    """A product, a map and a sum."""
    return jnp.tanh(x @ x).sum()


@pytest.mark.parametrize("device", ["cpu", "opencl"])
def test_stages_do_not_return_to_earlier_ones(device: str) -> None:
    if device == "opencl":
        pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")
    x = jnp.ones((5, 5))
    rlx.jit(lambda x: jnp.sinh(x), device=device)(x)  # loads the modules
    jitted = rlx.jit(program, device=device)
    again = visited_again(files_visited(lambda: jitted(x)), device)
    assert again.keys() == set().union(*SHARED.values())


def test_returns_to_earlier_stages_are_found() -> None:
    """A file of tracing in planning is found; files of no stage, and of the current one, are not."""
    order = [start.format(device="cpu") + "x.py" * start.endswith("/") for start, _ in STAGES]
    assert visited_again([*order, "ir/kernels.py", "backends/cpu/table.py"], "cpu") == {}
    assert visited_again([*order[:4], "trace/flat.py", "planning/fuse.py", order[4]], "cpu") == {"trace/flat.py": 1}
