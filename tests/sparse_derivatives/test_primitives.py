"""Every primitive of the registry: what it reads, against the elements of its dense derivative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from primitive_cases import Case, cases

from rlx.ir.index_sets import stored
from rlx.ir.types import is_complex, is_inexact
from rlx.ops.library import LibraryPrimitive
from rlx.trace.primitive import registry
from rlx.trace.tracing import close_over, trace_program
from rlx.transforms.dependence import Assumption, dependence_of
from rlx.transforms.forward import jvp

# operands without a derivative rule, and operations without one
HELD_FIXED = {"polygamma": {0}, "bessel_j": {0}, "expint_n": {0}}
NEVER = {"reduce", "householder_product", "packed_qr", "schur", "hessenberg", "tridiagonal"}
POINTS = 3


def moving(case: Case) -> list[int]:
    """The operands that may have tangents."""
    fixed = HELD_FIXED.get(case.primitive.name, set())
    return [n for n, a in enumerate(case.arrays) if is_inexact(a.dtype) and n not in fixed]


def detected(case: Case, local: bool = False) -> tuple[list[list[np.ndarray]], tuple[Assumption, ...]]:
    """For each result and each moving operand the pattern as a bool matrix, for known integers; and the assumptions."""
    numbers = moving(case)

    def function(*args: Any) -> Any:
        return case.bind(*args)

    program = close_over(*trace_program(function, case.types))
    values = [None if n in numbers and not local else a for n, a in enumerate(case.arrays)]
    found, assumptions = dependence_of(program, [n in numbers for n in range(len(values))], values, local)
    shapes = [t.shape for t in case.result_types]
    empty = [[np.zeros((t.size, case.arrays[n].size), bool) for n in numbers] for t in case.result_types]
    for sets, shape, row in zip(found, shapes, empty, strict=True):
        for number, one in sets.items():
            row[numbers.index(number)][...] = stored(one, shape).matrix.toarray()
    return empty, assumptions


def directions(a: np.ndarray) -> Any:
    """(element, direction): each element's, in both parts of a complex number."""
    for element in range(a.size):
        for unit in (1, 1j) if is_complex(a.dtype) else (1,):
            direction = np.zeros(a.size, a.dtype)
            direction[element] = unit
            yield element, direction.reshape(a.shape)


def nonzeros(case: Case, points: int) -> list[list[np.ndarray]]:
    """For each result and moving operand, where the derivative is not zero at one of some points near the sample."""
    generator = np.random.default_rng(0)
    numbers = moving(case)
    found = [[np.zeros((t.size, case.arrays[n].size), bool) for n in numbers] for t in case.result_types]
    for point in range(points):
        arrays = [a * (1 + 1e-3 * point * generator.normal(size=a.shape)).astype(a.real.dtype) if n in numbers else a
                  for n, a in enumerate(case.arrays)]  # fmt: skip
        for place, n in enumerate(numbers):

            def of_one(x: Any, n: int = n, arrays: Any = arrays) -> Any:
                return case.bind(*arrays[:n], x, *arrays[n + 1 :])

            for element, direction in directions(arrays[n]):
                _, tangents = jvp(of_one, (arrays[n],), (direction,))
                for row, t in zip(found, tangents, strict=True):
                    value = np.asarray(t)
                    if is_inexact(value.dtype):
                        row[place][:, element] |= value.reshape(-1) != 0
    return found


def is_checked(case: Case) -> bool:
    if not case.is_wide or case.primitive.name in NEVER:
        return False
    return bool(moving(case)) and any(is_inexact(t.dtype) for t in case.result_types)


checked = [c for c in cases() if is_checked(c)]


def differences(case: Case, points: int) -> tuple[int, int]:
    """The numbers of missing and of superfluous places."""
    pairs = [
        (a, b)
        for mine, true in zip(detected(case)[0], nonzeros(case, points), strict=True)
        for a, b in zip(mine, true, strict=True)
    ]
    return sum(int((b & ~a).sum()) for a, b in pairs), sum(int((a & ~b).sum()) for a, b in pairs)


# the derivative at one point chooses elements, or the rule is by whole axes
CHOICES = set("select remainder maximum minimum clamp reduce_max reduce_min cummax cummin".split())
CHOICES |= set(
    "scatter_min scatter_max sort top_k select_and_gather_add select_and_scatter_add reduce_window scatter_mul".split()
)
WHOLE_AXES = set("cumsum cumprod cumlogsumexp triangular_solve tridiagonal_solve lu_solve sylvester".split())
WHOLE_AXES |= {name for name, p in registry.items() if isinstance(p, LibraryPrimitive) and name != "csr_product"}
WHOLE_AXES |= {name for name, p in registry.items() if not p.states_reading}


@pytest.mark.parametrize("name", sorted({c.primitive.name for c in checked}))
def test_the_pattern_has_every_element_of_the_derivative(name: str) -> None:
    """No place is missing; none is superfluous, but where an operation chooses, or is stated by whole axes."""
    for case in (c for c in checked if c.primitive.name == name):
        missing, superfluous = differences(case, POINTS)
        assert not missing, case
        assert not superfluous or name in CHOICES | WHOLE_AXES, (case, superfluous)


@pytest.mark.parametrize("name", sorted(CHOICES - {"scatter_mul"}))
def test_the_pattern_at_a_point_has_what_is_chosen_there(name: str) -> None:
    """It has every element of the derivative there, and is not larger than the pattern for all values."""
    for case in (c for c in checked if c.primitive.name == name):
        here, everywhere = detected(case, local=True)[0], detected(case)[0]
        for mine, most, true in zip(here, everywhere, nonzeros(case, 1), strict=True):
            for a, b, c in zip(mine, most, true, strict=True):
                assert not (c & ~a).any(), case
                assert not (a & ~b).any(), case


def test_every_rule_by_whole_axes_without_a_statement_is_reported() -> None:
    """A dense answer for want of a rule names the primitive."""
    reported = set()
    for case in checked:
        if not case.primitive.states_reading and any(case.arrays[n].size > 1 for n in moving(case)):
            _, assumptions = detected(case)
            assert [a.operation for a in assumptions] == [case.primitive.name], case
            assert "no rule" in assumptions[0].reason
            reported.add(case.primitive.name)
    assert reported  # at least one primitive has none
