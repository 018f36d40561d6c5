"""The memory plan of a call: lifetimes of random programs, report, picture."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
import rlx.numpy as jnp
from rlx.errors import RlxError
from rlx.explain.memory_report import MemoryPlan, MemoryPlanOptions

X = np.eye(24, dtype="f4")
SVG = "{http://www.w3.org/2000/svg}"


def random_program(seed: int) -> Any:
    """Matrix products, nests and reductions in a random graph."""
    numbers = random.Random(seed)

    def function(x: Any) -> Any:
        values = [x, x[:12] @ x]
        for _ in range(numbers.randrange(3, 14)):
            one, other = numbers.choice(values), numbers.choice(values)
            match numbers.randrange(5):
                case 0:
                    values.append(one @ x)
                case 1:
                    values.append(jnp.tanh(one) + 1)
                case 2:
                    values.append(one @ other.T @ other)
                case 3:
                    values.append(jnp.cumsum(one[: len(one) // 2 + 1], 1))
                case _:
                    values.append(one - jnp.max(one, 0))
        return [numbers.choice(values) for _ in range(2)]

    return function


def overlapping(plan: MemoryPlan) -> list[tuple[str, str]]:
    """Pairs of temporaries that share bytes while both are live, and not by handing their place over."""
    found = []
    for number, one in enumerate(plan.buffers):
        for other in plan.buffers[:number]:
            live = one.first <= other.last and other.first <= one.last
            shared = one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes
            handed_over = one.alias == other.name and one.first == other.last
            if live and shared and not handed_over:
                found.append((one.name, other.name))
    return found


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), alignment=st.sampled_from([16, 64, 256]))
def test_nothing_live_overlaps_in_random_programs(seed: int, alignment: int) -> None:
    plan = rlx.inspect(random_program(seed))(X).plan
    if plan is None:
        return
    for found in (MemoryPlan.of(plan), MemoryPlan.of(plan, MemoryPlanOptions(alignment))):
        assert not overlapping(found)
        assert found.peak <= found.arena and 0 < found.efficiency <= 1
        assert all(b.offset + b.nbytes <= found.arena for b in found.buffers)
    assert all(b.offset % alignment == 0 for b in found.buffers)


def chain(x: Any) -> Any:
    for _ in range(4):
        x = jnp.tanh(x @ x) @ x
    return x


def test_report() -> None:
    found = rlx.inspect(chain)(X).memory
    text = found.report()
    assert f"arguments {X.nbytes} B, outputs {X.nbytes} B, temporaries {found.arena} B" in text
    assert "peak live" in text and "lower bound: efficiency 100.0%" in text
    assert found.efficiency == 1 and found.peak == found.arena == found.temporaries
    for buffer in found.buffers:
        line = next(line for line in text.splitlines() if f" {buffer.name} " in line)
        assert f"{buffer.first}-{buffer.last}" in line and str(buffer.nbytes) in line
    assert len(found.buffers) >= 4 and str(found) == repr(found) == text


def test_places_that_are_handed_over_are_told() -> None:
    found = rlx.inspect(lambda x: jnp.sort(jnp.tanh(jnp.sort(x))))(X).memory
    (buffer,) = [b for b in found.buffers if b.alias]
    given_by = next(b for b in found.buffers if b.name == buffer.alias)
    assert buffer.offset == given_by.offset and buffer.first == given_by.last
    assert f"in place of {given_by.name}" in found.report()
    assert found.arena == X.nbytes


def test_inner_plans_have_arenas_of_their_own() -> None:
    def scanned(x: Any) -> Any:
        return rlx.lax.scan(lambda c, v: (jnp.cumsum(jnp.tanh(c @ v) @ c, 0), None), x, jnp.stack([x] * 3))[0]

    found = rlx.inspect(scanned)(X).memory
    (where, inner), *_ = found.nested
    assert where.startswith("kernel ") and inner.arena > 0
    assert f"inside {where}, {inner.name}:" in found.report()


def test_picture(tmp_path: Path) -> None:
    found = rlx.inspect(chain)(X).memory
    picture = ElementTree.fromstring(found.svg())
    boxes = [r for r in picture.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    assert len(boxes) == len(found.buffers)
    for box, buffer in zip(boxes, found.buffers, strict=True):
        title = box.find(f"{SVG}title")
        assert title is not None and title.text is not None and title.text.startswith(f"{buffer.name} float32")
        assert float(box.get("width", 0)) > 0 and float(box.get("height", 0)) > 0
    tall = {b.name: float(box.get("height", 0)) for b, box in zip(found.buffers, boxes, strict=True)}
    assert max(tall.values()) == pytest.approx(min(tall.values()))
    path = found.save_svg(tmp_path / "arena.svg")
    assert path.read_text(encoding="utf-8") == found.svg() + "\n"
    assert found.svg() in found._repr_html_() and "peak live" in found._repr_html_()


def test_nothing_to_place() -> None:
    found = rlx.inspect(lambda x: x + 1)(X).memory
    assert found.buffers == () and found.arena == 0 and found.efficiency == 1
    assert ElementTree.fromstring(found.svg()).tag == f"{SVG}svg"
    assert rlx.inspect(lambda x: x)(X).memory.report().startswith(f"arguments {X.nbytes} B")


# ------------------------------------------------------------------ by the names of rlx.opt
def sorted_twice(x: Any) -> Any:
    return jnp.sort(jnp.sort(x) + 1)


def test_plans_of_every_subject() -> None:
    graph = rlx.Graph.trace(sorted_twice, X)
    module = rlx.GraphModule.trace(sorted_twice, X)
    found = rlx.opt.plan_memory(graph)
    assert isinstance(found, rlx.opt.MemoryPlan) and found.arena == X.nbytes
    for subject in (graph.program, module, module.into_lir(), rlx.inspect(sorted_twice)(X).plan):
        other = rlx.opt.plan_memory(subject)
        assert (other.arena, other.peak) == (found.arena, found.peak)


def test_options_move_nothing() -> None:
    plan = rlx.inspect(lambda x: jnp.sort(jnp.sort(x[:5, :5]) + 1))(X).plan
    assert plan is not None
    before = dict(plan.offsets)
    small = rlx.opt.plan_memory_with_options(plan, rlx.opt.MemoryPlanOptions(alignment=4))
    large = rlx.opt.plan_memory_with_options(plan, rlx.opt.MemoryPlanOptions(alignment=4096))
    assert small.arena < plan.arena < large.arena and large.arena % 4096 == 0
    assert dict(plan.offsets) == before


def test_elements_of_one_size() -> None:
    wide = rlx.Graph.trace(sorted_twice, np.zeros((24, 24)))
    assert rlx.opt.plan_memory(wide).arena == 2 * rlx.opt.plan_memory_f32_uniform(wide).arena
    assert not overlapping(rlx.opt.plan_memory_f32_uniform(wide))


@pytest.mark.parametrize("wrong", [{"alignment": 0}, {"alignment": 2.5}, {"element_bytes": -1}])
def test_options_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(RlxError, match="cannot be planned with"):
        MemoryPlanOptions(**wrong)
