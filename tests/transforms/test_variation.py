"""The axes over which results vary, by the rule of each primitive: as batching maps them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.ir.program import Equation, Program, Var
from rlx.trace.primitive import Primitive, Sample, registry, type_of
from rlx.transforms.programs import batch_program

# results that batching computes once, and the rule says to vary: the rank of a matrix whose values are not mapped
COARSE = {"csr_lstsq"}


def with_samples(collective: bool) -> list[str]:
    """Primitives without programs that have samples."""
    plain = {name: p for name, p in registry.items() if not p.region and not p.inlined and p.collective == collective}
    return sorted(name for name, p in plain.items() if next(p.samples(), None) is not None)


def mapped(primitive: Primitive, sample: Sample, mask: list[bool], axis: str) -> list[bool]:
    """Whether batching over an axis maps each result."""
    inputs = [Var(type_of(a)) for a in sample.args]
    types = primitive.type(*(v.type for v in inputs), **sample.params)
    outputs = [Var(t) for t in (types if primitive.multiple else (types,))]
    equation = Equation(primitive, tuple(inputs), sample.params, tuple(outputs))
    return [bool(x) for x in batch_program(Program(inputs, [equation], outputs), 3, mask, axis_name=axis)[1]]


def said(primitive: Primitive, sample: Sample, mask: list[bool], results: int, axis: str) -> list[bool]:
    found: Any = primitive.varies(*(frozenset([axis] if m else []) for m in mask), **sample.params)
    return [axis in axes for axes in (found if isinstance(found, tuple) else [found] * results)]


def check(name: str, sample: Sample, axis: str) -> None:
    primitive, count = registry[name], len(sample.args)
    masks = [[i == k for i in range(count)] for k in range(count)] + [[False] * count]
    for mask in masks:
        expected = mapped(primitive, sample, mask, axis)
        found = said(primitive, sample, mask, len(expected), axis)
        assert found == expected or (name in COARSE and all(f >= e for f, e in zip(found, expected, strict=True)))


@pytest.mark.thorough
@pytest.mark.parametrize("name", with_samples(False))
def test_results_vary_as_batching_maps_them(name: str) -> None:
    for sample in registry[name].samples():
        try:
            check(name, sample, "i")
        except NotImplementedError:
            assert name.startswith("csr_")  # no batching over the values of a sparse matrix


PARAMS: dict[str, dict[str, Any]] = {
    "all_gather": {"axis_name": "i", "axis": 0, "size": 3},
    "all_to_all": {"axis_name": "i", "split": 0, "concat": 0, "size": 3},
    "axis_index": {"axis_name": "i"},
    "once": {"axis_name": ("i",)},
    "ppermute": {"axis_name": "i", "permutation": ((0, 1),)},
    "psum_scatter": {"axis_name": "i", "axis": 0},
    "recast": {"axis_name": ("i",), "to": "reduced"},
    "total": {"axis_name": ("i",)},
}
OPERANDS = {"axis_index": 0, "once": 2, "total": 2}


@pytest.mark.parametrize("name", sorted(name for name, p in registry.items() if p.collective))
def test_results_of_collectives_vary_as_batching_maps_them(name: str) -> None:
    args = tuple([np.ones(3, np.float32)] * OPERANDS.get(name, 1))
    sample = Sample(args, PARAMS.get(name, {"axis_name": ("i",)}))
    check(name, sample, "i")
    check(name, sample, "another")
