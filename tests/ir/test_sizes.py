"""Symbolic sizes: their arithmetic is Python's, and conditions hold exactly where the same decisions are made."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx.ir.dims import SizePinned, hint_of, key_of
from rlx.ir.size_functions import (
    chosen,
    common_divisor,
    computed,
    decided,
    exact_half,
    greatest,
    least,
    root,
    slice_indices,
    span,
    whole,
    whole_number,
)
from rlx.ir.sized_scalars import SizedScalar
from rlx.ir.sizes import SizeScope

_OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a // (abs(b) + 1),
    lambda a, b: a % (abs(b) + 2),
    lambda a, b: -(-a // 4),
    lambda a, b: max(a, b),
    lambda a, b: min(a, b + 3),
    lambda a, b: greatest(a, b),
    lambda a, b: least(a, b),
    lambda a, b: root(abs(a)),
    lambda a, b: chosen(a, 12, b, a),
    lambda a, b: whole(greatest(a, 0) * 0.3 + 1.0),
    lambda a, b: a if a == b else a + 1,
    lambda a, b: b if a > 2 * b else a,
    lambda a, b: sum(slice_indices(slice(1, -2, 2), greatest(a, 1))),
    lambda a, b: span(0, a, 3),
]


def decisions(seed: int, n: Any, m: Any) -> list[Any]:
    """Numbers of a program that computes with two sizes, and decides by them."""
    generator = random.Random(seed)
    values = [n, m, 3, n * m, n + 2]
    for _ in range(8):
        operation = generator.choice(_OPERATIONS)
        values.append(operation(generator.choice(values), generator.choice(values)))
    return values


@pytest.mark.selected("all")
@pytest.mark.parametrize("block", range(4))
def test_values_and_conditions_are_those_of_numbers(block: int) -> None:
    """Where the conditions hold, every expression has the value that the same program computes with numbers."""
    held = 0
    for seed in range(40 * block, 40 * block + 40):
        hints = {"n": 2 + seed % 9, "m": 1 + seed % 5}
        scope = SizeScope(hints)
        found = decisions(seed, *scope.dims)
        assert list(map(hint_of, found)) == decisions(seed, *hints.values())
        run = scope.compiled(found)
        assert run(tuple(hints.values())) == decisions(seed, *hints.values())
        for sizes in itertools.product((1, 2, 3, 7, 8, 20), (1, 4, 5, 33)):
            values = run(sizes)
            held += values is not None
            assert values is None or values == decisions(seed, *sizes), (seed, sizes)
    assert held > 40  # beside the hints


def test_conditions_are_needed() -> None:
    """Without its conditions, an expression has other values than the program: each condition excludes some size."""
    scope = SizeScope({"n": 8})
    (n,) = scope.dims
    value = n * 2 if n > 5 and n != 9 and n % 4 == 0 else n
    checked, unchecked = scope.compiled([value]), scope.compiled([value], checked=False)
    for size in range(1, 40):
        expected = size * 2 if size > 5 and size != 9 and size % 4 == 0 else size
        assert unchecked((size,)) == [2 * size]
        assert (checked((size,)) is not None) == (expected == 2 * size)


def test_equal_expressions_are_one_object() -> None:
    """Expressions are polynomials over names and quotients."""
    scope = SizeScope({"n": 12, "m": 5})
    n, m = scope.dims
    same = [
        ((n * 4) // 4, n), ((n * m) // m, n), (-(-(n * 256) // 64), n * 4), ((n * 2) // 16, n // 8),
        ((n % 8) + 8 * (n // 8), n), ((n * m + 3 * m) // (n + 3), m), ((300 * n) // (200 * n) + n, n + 1),
        (n * m - m * n + n, n), ((n + m) * (n - m) + m * m, n * n), (2 * n + n, n * 3), (n << 0, n << 0),
    ]  # fmt: skip
    assert all(a is b for a, b in same)
    assert n - n == 0 and type(n - n) is int
    assert scope.conditions() == []


def test_what_follows_is_not_recorded() -> None:
    """Bounds that follow from names being positive, or from earlier conditions, are not conditions."""
    scope = SizeScope({"n": 12, "m": 5})
    n, m = scope.dims
    assert n >= 1 and n * m + 1 > 1 and n * n >= n and -n < 0 and n != 0
    assert not scope.conditions()
    assert n > 4 and n > 3 and 2 * n >= 9 and n * m > 4 and n + m > 5
    assert [c.text for c in scope.conditions()] == ["n >= 5"]
    assert not n > 100 and n < 102
    assert [c.text for c in scope.conditions()] == ["n >= 5", "n <= 100"]
    assert n != m and not n == m
    assert len(scope.conditions()) == 3


@pytest.mark.selected("all")
@pytest.mark.parametrize(
    "use",
    [int, float, complex, str, repr, range, math.sqrt, np.zeros, np.asarray, np.float32, "{}".format, lambda n: [0] * n,
     lambda n: n == 12, lambda n: SizedScalar.of(n, np.dtype("f4")).tobytes()],
)  # fmt: skip
def test_a_number_that_is_needed_ends_the_attempt(use: Callable[[Any], Any]) -> None:
    """C code, text and arrays get no number; nor does a decision that leaves one size."""
    scope = SizeScope({"n": 12})
    with pytest.raises(SizePinned):
        use(scope.dims[0])
    assert scope.pinned


def test_a_closed_scope_has_numbers() -> None:
    """What a traced function left elsewhere is a number afterwards."""
    scope = SizeScope({"n": 12})
    (n,) = scope.dims
    scope.closed = True
    assert int(n) == 12 and str(n + 1) == "13" and list(range(n)) == list(range(12)) and n == 12
    assert not scope.conditions()


def test_integers_by_name() -> None:
    """A size is an int to isinstance, and works beside NumPy's integers."""
    (n,) = SizeScope({"n": 12}).dims
    assert isinstance(n, int) and whole_number(n) is n and whole_number(np.int64(3)) == 3
    assert np.int64(3) * n is n * 3 and np.int64(3) + n is n + 3
    assert n in (1, n)
    for in_a_table in (lambda: {12: 1}[n], lambda: n in {12, 13}, lambda: {n: 1}):
        with pytest.raises(SizePinned):
            in_a_table()


def test_functions_without_conditions() -> None:
    """Functions that are evaluated again for each call's sizes."""
    scope = SizeScope({"n": 12})
    (n,) = scope.dims
    assert common_divisor(12, 18) == 6 and common_divisor(0, n) is n and common_divisor(4 * n, 6) == 2
    assert exact_half(6) == 3 and exact_half(5) is None and exact_half(4 * n) is 2 * n and exact_half(n) is None
    first, second = computed(lambda a, b: (a + b, a * b), (n, 5), 2)
    scalar = SizedScalar.of(n, np.dtype("f4"))
    run = scope.compiled([first, second, scalar, scalar.bits()])
    assert not scope.conditions()
    found = run((7,))
    assert found is not None and found[:2] == [12, 35] and found[2] == np.float32(7)
    assert found[3] == int(np.float32(7).view("i4"))
    assert decided(n // 5) == 2 and type(decided(n // 5)) is int
    assert [size for size in range(1, 30) if scope.compiled([])((size,)) is not None] == [10, 11, 12, 13, 14]


def test_keys_differ_between_scopes() -> None:
    """Programs of two traces, whose names may be alike, have different fingerprints."""
    (a,), (b,) = SizeScope({"n": 12}).dims, SizeScope({"n": 12}).dims
    assert key_of(a) != key_of(b) and key_of(a) == key_of(a + 0)
