"""Operations and bytes of kernels, against counts by hand and by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
import rlx.nn
import rlx.numpy as jnp
from rlx.ir.kernels import Kernel, Library, Loops, Plan
from rlx.ir.routine_work import _COUNTS, routine_flops
from rlx.ir.work import Work, _distinct, certain_work, kernel_work, plan_work
from rlx.routines import LIBRARY_ROUTINES


def shape(*sizes: int, dtype: str = "float32") -> rlx.ShapeDtypeStruct:
    return rlx.ShapeDtypeStruct(sizes, dtype)


def plan_of(function: Callable[..., Any], *args: Any) -> Plan:
    found = rlx.inspect(function)(*args).plan
    assert found is not None
    return found


def only(function: Callable[..., Any], *args: Any) -> Kernel:
    (kernel,) = plan_of(function, *args).kernels
    return kernel


A, B = shape(100), shape(40, 60)
# (function, arguments, (flops, transcendentals, reads, writes))
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[float, float, int, int]]] = {
    "chain": (lambda x: jnp.tanh(x) * 2 + 1, (A,), (200, 100, 400, 400)),
    "two reads": (lambda x, y: x + y, (A, shape(100, dtype="float64")), (100, 0, 1200, 800)),
    "one operand twice": (lambda x: x * x, (A,), (100, 0, 400, 400)),
    "row broadcast": (lambda x, y: x + y, (B, shape(60)), (2400, 0, 9600 + 240, 9600)),
    "function of the row": (lambda x, y: x + jnp.exp(y)[:, None], (B, shape(40)), (2400, 40, 9600 + 160, 9600)),
    "reduction": (lambda x: jnp.sum(x, 1), (B,), (2400, 0, 9600, 160)),
    "softmax": (rlx.nn.softmax, (B,), (4 * 2400, 2400, 9600, 9600)),
    "integers": (lambda x: x * 3 + 1, (shape(100, dtype="int32"),), (0, 0, 400, 400)),
    "part of an array": (lambda x: x[10:30] * 2, (A,), (20, 0, 80, 80)),
    "every second": (lambda x: x[::2] * 2, (A,), (50, 0, 200, 200)),
    "neighbours": (lambda x: x[2:] + x[1:-1] + x[:-2], (A,), (196, 0, 400, 392)),
    "gather": (lambda x, i: x[i] * 2, (A, shape(7, dtype="int32")), (7, 0, 28 + 28, 28)),
    "matrix product": (lambda x, y: x @ y, (B, shape(60, 8)), (2 * 40 * 60 * 8, 0, 9600 + 1920, 1280)),
    "square": (lambda x: x @ x, (shape(20, 20),), (16000, 0, 1600, 1600)),
    "complex product": (
        lambda x, y: x @ y,
        (shape(4, 5, dtype="complex64"), shape(5, 6, dtype="complex64")),
        (8 * 120, 0, 8 * 50, 8 * 24),
    ),
    "batch of products": (lambda x, y: x @ y, (shape(3, 8, 8), shape(3, 8, 8)), (3 * 1024, 0, 1536, 768)),
    "sort": (jnp.sort, (A,), (0, 0, 400, 400)),
}


@pytest.mark.parametrize("name", CASES)
def test_counts(name: str) -> None:
    function, args, (flops, transcendentals, reads, writes) = CASES[name]
    assert kernel_work(only(function, *args)) == Work(flops, transcendentals, reads, writes)


@pytest.mark.parametrize("name", CASES)
def test_certain_work_is_part_of_the_work(name: str) -> None:
    function, args, (flops, _, reads, writes) = CASES[name]
    found = certain_work(only(function, *args))
    assert found.flops in (0, flops) and found.transcendentals == 0
    assert found.reads <= reads and found.writes <= writes
    if name in ("chain", "two reads", "row broadcast", "reduction", "softmax", "every second", "square"):
        assert (found.reads, found.writes) == (reads, writes)


def test_certain_work_leaves_out_what_depends_on_values() -> None:
    index = shape(7, dtype="int32")
    assert certain_work(only(lambda x, i: x[i] * 2, A, index)) == Work(0, 0, 28, 28)
    scattered = plan_of(lambda x, i: x.at[i].add(1.0), A, index).kernels[-1]
    assert certain_work(scattered).writes <= 28 < kernel_work(scattered).bytes
    windows = certain_work(only(lambda x: rlx.lax.reduce_window(x, 0.0, rlx.lax.add, (4,), (1,), "VALID"), A))
    assert windows.reads <= 400
    assert certain_work(only(jnp.sort, A)) == Work()
    assert certain_work(only(lambda x: x[:0] * 2, A)) == Work()


@given(st.lists(st.tuples(st.integers(-12, 12), st.integers(0, 5)), max_size=4))
def test_elements_reached_for_certain(dimensions: list[tuple[int, int]]) -> None:
    """Never more than an index map reaches, and all of them where no element is reached twice."""
    strides, sizes = [stride for stride, _ in dimensions], [size for _, size in dimensions]
    places = [
        sum(i * stride for i, stride in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, sizes))
    ]
    count = _distinct(strides, sizes)
    assert count <= len(set(places))
    packed = sorted(dimensions, key=lambda d: abs(d[0]))
    rows = all(abs(s) > sum(abs(t) * (n - 1) for t, n in packed[:k]) for k, (s, _) in enumerate(packed))
    if places and rows:
        assert count == len(places)


def test_loops_multiply_what_is_inside() -> None:
    def scanned(c: Any, xs: Any) -> Any:
        return rlx.lax.scan(lambda c, x: (c @ x, jnp.sum(c)), c, xs)

    found = plan_work(plan_of(scanned, shape(16, 16), shape(9, 16, 16)))
    assert found.exact and found.flops == 9 * (2 * 16**3 + 16 * 16)
    assert found.reads >= 4 * (256 + 9 * 256) and found.writes >= 4 * (256 + 9)


def test_what_is_not_known_is_said() -> None:
    turns = only(lambda x: rlx.lax.while_loop(lambda v: jnp.sum(v) < 9, lambda v: v * 2 + 1, x), A)
    assert kernel_work(turns) == Work(300, 0, 400, 400, exact=False)
    plan = plan_of(lambda p, x: rlx.lax.cond(p, lambda v: v @ v, lambda v: v + 1, x), shape(dtype="bool"), shape(9, 9))
    work = plan_work(plan)
    assert work.flops == 2 * 9**3 and not work.exact
    called = plan_of(lambda x: rlx.pure_callback(np.sin, shape(100), x), A)
    assert not plan_work(called).exact and plan_work(called).bytes == 800


def test_sums_and_intensity() -> None:
    one, other = Work(10, 2, 4, 4), Work(1, 0, 0, 4, False)
    assert one + other == Work(11, 2, 4, 8, False) and one.repeated(3) == Work(30, 6, 12, 12)
    assert one.bytes == 8 and one.intensity == 1.5
    assert Work().intensity == 0 and Work(flops=1).intensity == math.inf


def test_by_the_names_of_jax() -> None:
    compiled = rlx.jit(lambda x: jnp.exp(x) + 1).lower(A).compile()
    assert compiled.cost_analysis() == {"flops": 100.0, "transcendentals": 100.0, "bytes accessed": 800.0}
    assert rlx.jit(lambda x: x).lower(A).compile().cost_analysis()["flops"] == 0


# ------------------------------------------------------------------ enumeration
def touched(kernel: Loops, loads: bool) -> int:
    """Bytes that the index maps really reach, one iteration after the other."""
    found: set[tuple[int, int]] = set()
    accesses = [s.access for s in kernel.stores]
    if loads:
        accesses = [i.attribute for i in kernel.instructions if i.op == "load"]
    for access in accesses:
        for index in itertools.product(*map(range, kernel.sizes)):
            found.add((access.operand, access.offset + sum(map(int.__mul__, access.strides, index))))
    sizes = [b.dtype.itemsize // (2 if b.dtype.kind == "c" else 1) for b in kernel.operands]
    return sum(sizes[operand] for operand, _ in found)


VIEWS: list[Callable[[Any], Any]] = [
    lambda x: x[:, ::-1],
    lambda x: x[1:, :3],
    lambda x: x.T,
    lambda x: x[::2, 1::2],
    lambda x: jnp.broadcast_to(x[:1], x.shape),
    lambda x: x + x[:, :1],
    lambda x: x * jnp.roll(x, 1, 0),
    lambda x: jnp.sum(x, 0),
    lambda x: jnp.max(x, 1),
]


@settings(max_examples=40, deadline=None)
@given(
    views=st.lists(st.sampled_from(VIEWS), min_size=1, max_size=3),
    sizes=st.tuples(st.integers(2, 6), st.integers(4, 7)),
    dtype=st.sampled_from(["float32", "float64", "complex64"]),
)
def test_bytes_are_those_that_the_index_maps_reach(
    views: list[Callable[[Any], Any]], sizes: tuple[int, int], dtype: str
) -> None:
    def function(x: Any) -> Any:
        return [view(x) + 1 for view in views if dtype != "complex64" or view is not VIEWS[-1]]

    if dtype == "complex64" and all(view is VIEWS[-1] for view in views):
        return
    for kernel in plan_of(function, shape(*sizes, dtype=dtype)).kernels:
        assert isinstance(kernel, Loops)
        work = kernel_work(kernel)
        assert touched(kernel, True) <= work.reads <= sum(b.nbytes for b in kernel.reads)
        assert touched(kernel, False) <= work.writes <= sum(b.nbytes for b in kernel.writes)


# ------------------------------------------------------------------ routines
def test_every_routine_is_counted() -> None:
    assert set(_COUNTS) == set(LIBRARY_ROUTINES)


N = 30
SQUARE = shape(N, N)
ROUTINES: list[tuple[Callable[..., Any], tuple[Any, ...], float]] = [
    (jnp.linalg.cholesky, (SQUARE,), N**3 / 3),
    (jnp.linalg.det, (SQUARE,), 2 * N**3 / 3),
    (jnp.linalg.solve, (SQUARE, shape(N, 4)), 2 * N**3 / 3 + 2 * N**2 * 4),
    (jnp.linalg.qr, (SQUARE,), 8 * N**3 / 3),
    (lambda x: jnp.linalg.qr(x, mode="r"), (shape(50, 20),), 4 * 20**2 * (50 - 20 / 3)),
    (jnp.linalg.eigh, (SQUARE,), 9 * N**3),
    (jnp.linalg.svd, (SQUARE,), 21 * N**3),
    (lambda x: jnp.linalg.svd(x, compute_uv=False), (SQUARE,), 8 * N**3 / 3),
    (jnp.linalg.eigvals, (shape(2, N, N),), 2 * 10 * N**3),
    (jnp.fft.fft, (shape(5, 64, dtype="complex64"),), 5 * 5 * 64 * 6),
    (jnp.fft.rfft, (shape(5, 64),), 5 * 2.5 * 64 * 6),
    (jnp.fft.irfft, (shape(5, 33, dtype="complex64"),), 5 * 2.5 * 64 * 6),
    (jnp.fft.fft2, (shape(8, 16, dtype="complex64"),), 5 * 128 * 7),
]


@pytest.mark.parametrize(("function", "args", "expected"), ROUTINES)
def test_routines(function: Callable[..., Any], args: tuple[Any, ...], expected: float) -> None:
    kernels = [k for k in plan_of(function, *args).kernels if isinstance(k, Library)]
    assert sum(routine_flops(k) or 0.0 for k in kernels) == pytest.approx(expected)


def test_routines_of_nothing() -> None:
    kernel = next(k for k in plan_of(jnp.linalg.cholesky, SQUARE).kernels if isinstance(k, Library))
    unknown = Library("none such", kernel.inputs, kernel.outputs)
    assert routine_flops(unknown) is None and not kernel_work(unknown).exact
