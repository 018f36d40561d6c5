"""What describes a device is data of its backend: no pass has numbers of its own for it, and passes heed the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.backends.reference.run import run_plan
from rlx.ir.kernels import Contract, Loops, Plan, RowTiles, Scan, members
from rlx.ir.options import ChunkLimits, LoweringOptions, ProductLimits, ProductType
from rlx.ir.show_plan import describe_plan, show_plan
from rlx.passes.pipeline import lower_to_plan

PACKAGE = Path(rlx.__file__).resolve().parent
# module-level numbers of passes that say nothing of a device, and why they are there
NUMBERS = {
    "lowering/nest_builder.py: _SOURCES_KEPT": "names in labels",
    "lowering/nodes.py: _WEIGHT_LIMIT": "keeps the count of a tree's nodes small",
    "planning/arena.py: _LARGEST_BY_SIZE": "time of planning",
    "planning/row_tiles.py: _MOST_KERNELS": "time of planning",
    "planning/row_tiles.py: _MOST_PASSED": "time of planning",
    "planning/fuse.py: _CANDIDATES": "time of planning",
    "planning/fuse.py: _SIBLINGS": "time of planning",
    "passes/rematerialize.py: _MOST_ROUNDS": "time of planning",
    "passes/rematerialize.py: _LONGEST_CHAIN": "time of planning",
    "passes/rematerialize.py: _SHORTEST_GAP": "equations between uses, before there are kernels",
    "passes/rematerialize.py: _FRUITLESS_ROUNDS": "time of planning",
    "planning/schedule.py: _LABEL_NAMES": "names in labels",
    "passes/pads.py: _MOST_TERMS": "size of a program",
}


def numbers(path: Path) -> Iterator[str]:
    """The names of a module that are bound to numbers, or to expressions of nothing else."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        leaves = [n for n in ast.walk(value) if isinstance(n, ast.Constant)]
        others = [n for n in ast.walk(value) if isinstance(n, (ast.Name, ast.Dict, ast.Lambda))]
        plain = not others or (isinstance(value, ast.Call) and ast.unparse(value.func) == "range")
        if leaves and plain and all(isinstance(n.value, (int, float)) for n in leaves):
            yield f"{path.relative_to(PACKAGE)}: {', '.join(map(ast.unparse, targets)).strip('()')}"


def test_no_pass_has_a_number_of_one_device():
    files = [path for folder in ("passes", "lowering", "planning") for path in (PACKAGE / folder).glob("*.py")]
    found = [name for path in files for name in numbers(path)]
    assert sorted(found) == sorted(NUMBERS), "a number that describes a device is a field of LoweringOptions"


def plan_of(function, *arrays: np.ndarray, **options) -> Plan:
    return lower_to_plan(rlx.make_program(function)(*arrays), options=LoweringOptions(**options))


def run(plan: Plan, *arrays: np.ndarray) -> list[np.ndarray]:
    outputs = [np.empty(buffer.size, buffer.dtype) for buffer in plan.outputs]
    run_plan(plan, [a.reshape(-1) for a in arrays], outputs)
    return outputs


@pytest.mark.parametrize(("rows", "chunks"), [(64, 16), (160, 32), (600, 128), (5000, 512)])
def test_a_device_of_many_units_gets_many_chunks(rows, chunks):
    """The largest power of two that leaves each chunk some rows."""
    x = np.random.default_rng(0).normal(size=(rows, 300)).astype(np.float32)
    many = ChunkLimits(counts=tuple(1 << n for n in range(1, 10)))
    plan = plan_of(lambda x: x.max(axis=0), x, chunks=many)
    assert [k.chunks for k in plan.kernels if isinstance(k, Loops)][0] == chunks
    np.testing.assert_array_equal(run(plan, x)[0], x.max(axis=0))
    few, none = plan_of(lambda x: x.max(axis=0), x), plan_of(lambda x: x.sum(axis=0), x, chunks=ChunkLimits(counts=()))
    assert few.kernels[0].chunks == 16 and [k.chunks for k in none.kernels] == [1]


def test_numbers_of_chunks_that_cannot_be_combined_are_refused():
    with pytest.raises(ValueError, match="20"):
        ChunkLimits(counts=(4, 20))


def test_products_take_in_their_neighbours_by_the_options():
    """Windows, padding and results are local to a group; what it computes stays. Small products stay by themselves,
    unless they read windows."""
    x, kernel = (np.sin(np.arange(np.prod(s))).reshape(s).astype(np.float32) for s in ((2, 3, 9, 9), (16, 3, 3, 3)))

    def convolve(x, kernel):
        return jnp.maximum(rlx.lax.conv(x, kernel, (1, 1), "SAME"), 0)

    apart, *all_fused = (plan_of(convolve, x, kernel, products=ProductLimits(fused=n)) for n in (0, 16, 17))
    assert apart.arena and not any(isinstance(k, RowTiles) for k in apart.kernels)
    for fused in all_fused:
        (group,) = fused.kernels
        assert isinstance(group, RowTiles) and len(group.local) == 2 and fused.arena == 0
        assert [type(k) for k in group.kernels] == [Loops, Contract, Loops]
        for one, other in zip(run(fused, x, kernel), run(apart, x, kernel), strict=True):
            np.testing.assert_array_equal(one, other)
    square = np.ones((16, 16), np.float32)
    plans = [plan_of(lambda x: jnp.maximum(x @ x, 0), square, products=ProductLimits(fused=n)) for n in (16, 17)]
    assert [[type(k) for k in plan.kernels] for plan in plans] == [[RowTiles], [Contract, Loops]]


def test_patches_and_loops_go_by_the_options():
    x, kernel = np.zeros((8, 3, 16, 16), np.float32), np.zeros((4, 3, 3, 3), np.float32)
    small = ProductLimits(patches=4096)

    def convolve(x, kernel):
        return rlx.lax.conv(x, kernel, (1, 1), "SAME")

    scans = [[k for k in plan.kernels if isinstance(k, Scan)] for plan in (
        plan_of(convolve, x, kernel), plan_of(convolve, x, kernel, products=small),
    )]  # fmt: skip
    assert not scans[0] and scans[1]

    def step(carry, row):
        return carry, jnp.tanh(row @ carry)

    w, xs = np.zeros((8, 8), np.float32), np.zeros((5, 4, 8), np.float32)
    for limits, inside in ((ProductLimits(), 0), (ProductLimits(loop_bytes=10), 1)):
        plan = plan_of(lambda w, xs: rlx.lax.scan(step, w, xs), w, xs, products=limits)
        (loop,) = [k for k in plan.kernels if isinstance(k, Scan)]
        assert sum(isinstance(k, Contract) for k in loop.body.kernels) == inside


@pytest.mark.parametrize("alignment", [64, 256])
def test_temporaries_begin_where_the_device_wants(alignment):
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    plan = plan_of(lambda x: jnp.sort(jnp.sort(x) * 2.0) @ x.T, x, alignment=alignment)
    assert len(set(plan.offsets.values())) > 1
    assert all(offset % alignment == 0 for offset in plan.offsets.values())
    np.testing.assert_allclose(run(plan, x)[0].reshape(7, 7), np.sort(x * 2, -1) @ x.T, rtol=1e-5)


# ------------------------------------------------------------------ products
TYPES = tuple(ProductType.of(*names) for names in (
    ("bfloat16", "float32"), ("float16", "float32"), ("float8_e4m3fn", "float32"), ("int8", "int32"), ("float32",)
))  # fmt: skip
NARROW = ProductLimits(types=TYPES)


def products(plan: Plan) -> list[tuple[str, str, str]]:
    """Dtypes of operands, sums and results of every product."""
    found = [k for k in plan.kernels if isinstance(k, Contract)]
    return [(k.lhs.buffer.dtype.name, k.summed_in.name, k.out.buffer.dtype.name) for k in found]


@pytest.mark.parametrize(("operands", "preferred", "out"), [
    ("bfloat16", None, "bfloat16"), ("bfloat16", "float32", "float32"), ("float16", None, "float16"),
    ("float8_e4m3fn", "float32", "float32"), ("int8", None, "int8"), ("int8", "int32", "int32"),
])  # fmt: skip
def test_narrow_operands_stay_narrow_where_the_device_takes_them(operands, preferred, out):
    """The product reads the narrow arrays; elsewhere they are widened, and the numbers are the same."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-20, 20, s).astype(operands) for s in ((12, 20), (20, 8)))

    def function(a, b):
        return rlx.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=preferred) * 2

    plan = plan_of(function, a, b, products=NARROW)
    assert products(plan) == [(operands, "int32" if operands == "int8" else "float32", out)]
    wide = plan_of(function, a, b)
    assert all("32" in lhs for lhs, _, _ in products(wide))
    for result, expected in zip(run(plan, a, b), run(wide, a, b), strict=True):
        np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32))


def test_a_sum_wider_than_the_products_of_the_device_is_made_of_wider_operands():
    a = np.ones((4, 4), np.float16)
    plan = plan_of(lambda a: rlx.lax.dot_general(a, a, (((1,), (0,)), ((), ())), preferred_element_type="float64"), a,
                   products=ProductLimits(types=(*TYPES, ProductType.of("float64"))))  # fmt: skip
    assert products(plan) == [("float64", "float64", "float64")]
    np.testing.assert_array_equal(run(plan, a)[0], 4.0)


def test_a_device_without_products_gets_loops():
    a = np.random.default_rng(0).normal(size=(5, 5))
    plan = plan_of(lambda a: a @ a, a, products=NARROW)
    assert products(plan) == []
    np.testing.assert_allclose(run(plan, a)[0].reshape(5, 5), a @ a)


def test_tf32_is_said_by_the_product():
    a = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)
    rounded = ProductLimits(types=(ProductType.of("float32", tf32=True),))
    assert not products(plan_of(lambda a: a @ a, a, products=rounded))  # where nobody asks for it there is none
    plan = plan_of(lambda a: jnp.matmul(a, a, precision="tensorfloat32"), a, products=rounded)
    (kernel,) = plan.kernels
    assert isinstance(kernel, Contract) and kernel.tf32
    (result,) = run(plan, a)
    error = np.abs(result.reshape(32, 32) - a.astype(np.float64) @ a)
    assert 1e-5 < error.max() < 32 * 2**-10
    assert "tf32" in describe_plan(plan) and "tf32=True" in show_plan(plan)


def test_gradients_and_layouts_of_narrow_products():
    """Every pass takes narrow products: transposed, interleaved, stacked, in row tiles."""
    random = np.random.default_rng(0)
    q, k = (random.normal(size=(2, 64, 4, 16)).astype("bfloat16") for _ in range(2))

    def loss(q, k):
        weights = rlx.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k).astype("float32"))
        return jnp.einsum("bhqk,bkhd->bqhd", weights.astype("bfloat16"), k).astype("float32").sum()

    plan = plan_of(rlx.grad(loss, argnums=(0, 1)), q, k, products=NARROW)
    inner = [part for kernel in plan.kernels for part in members(kernel) if isinstance(part, Contract)]
    assert len(inner) >= 4 and all(k.lhs.buffer.dtype.name == "bfloat16" for k in inner)
    expected = run(plan_of(rlx.grad(loss, argnums=(0, 1)), q, k), q, k)
    for result, wanted in zip(run(plan, q, k), expected, strict=True):
        np.testing.assert_allclose(result.astype("f4"), wanted.astype("f4"), rtol=0.05, atol=0.05)
