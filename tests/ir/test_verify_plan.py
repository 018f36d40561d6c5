"""The verifier of plans refuses each broken rule; printed plans run and rebuild themselves."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from rlx.errors import VerificationError
from rlx.ir.kernels import (
    Access,
    Branch,
    Buffer,
    Callback,
    Contract,
    Instruction,
    Library,
    Loops,
    Operand,
    Plan,
    Scan,
    Sort,
    Store,
    While,
)
from rlx.ir.program import Origin
from rlx.ir.show_plan import describe_kernel, describe_plan, plan_functions, show_plan
from rlx.ir.verify_plan import may_share, verify_plan

FLOAT, INT, BOOL = np.dtype("f4"), np.dtype("i8"), np.dtype(bool)
BFLOAT, COMPLEX = np.dtype(ml_dtypes.bfloat16), np.dtype("c8")


def buffer(role="temporary", dtype=FLOAT, size=4, **fields):
    return Buffer(np.dtype(dtype), size, role, **fields)


def load(operand=0, strides=(1,), offset=0, dtype=FLOAT, args=()):
    return Instruction("load", args, dtype, Access(operand, strides, offset))


def index(dimension=0):
    return Instruction("index", (), INT, dimension)


def constant(value, dtype):
    return Instruction("constant", (), np.dtype(dtype), np.array(value, dtype).tobytes())


def step(op, *args, dtype=FLOAT, attribute=None):
    return Instruction(op, args, np.dtype(dtype), attribute)


def copy(source, target, *, op="neg", offset=0):
    return Loops(
        (source.size,), 1, (source, target), (load(), step(op, 0)),
        (Store(1, Access(1, (1,), offset)),),
    )  # fmt: skip


def plan(kernels, inputs, outputs, others=(), arena=0, offsets=None):
    """Temporaries lie at the beginning of the arena if nothing else is said."""
    buffers = (*inputs, *outputs, *others)
    places = {b: 0 for b in others if b.role == "temporary"} if offsets is None else offsets
    return Plan(tuple(inputs), tuple(outputs), buffers, tuple(kernels), arena, places)


def refuse(broken, message):
    with pytest.raises(VerificationError, match=message):
        verify_plan(broken)


# ------------------------------------------------------------------ Loops
def loops(instructions, stores, sizes=(4,), outer=1, target=FLOAT, source=FLOAT, **fields):
    """A plan of one Loops kernel from one input of 4 elements to one output of 4."""
    x, y = buffer("input", source), buffer("output", target)
    kernel = Loops(sizes, outer, (x, y), tuple(instructions), tuple(stores), **fields)
    return plan([kernel], [x], [y])


def to(value=0, strides=(1,), offset=0, chunk_stride=0, operand=1, **fields):
    return Store(value, Access(operand, strides, offset, chunk_stride), **fields)


LEGAL = {
    "elementwise": loops([load()], [to()]),
    "reversed": loops([load(strides=(-1,), offset=3)], [to()]),
    "row": loops([load(), step("reduce", 0, attribute="add")], [to(1, (0,))], outer=0),
    "empty": loops([load(strides=(7,), offset=-1)], [to()], sizes=(0,)),
    "gather": loops([index(), load(strides=(0,), args=(0,))], [to(1)]),
    "scatter": loops([load(), index()], [to(0, (0,), address=1, accumulate=None)]),
    "narrow": loops([load()], [to()], source=BFLOAT, target=BFLOAT),
    "rounded": loops([load(), step("cast", 0, dtype=BFLOAT)], [to(1)], target=BFLOAT),
    "bits": loops(
        [load(), step("cast", 0, dtype=BFLOAT), step("bitcast", 1, dtype="u2")],
        [to(2)],
        target="u2",
    ),
    "complex": loops([load(strides=(2,), offset=1)], [to()], source=COMPLEX),
    "chunks": loops([load()], [to(0, (0,), 0, 2, accumulate="add", initialize=True)], chunks=2),
    "guarded": loops([load(), constant(True, bool)], [to(0, (0,), guard=1)], parallel=1),
    "cumulate": loops([load(), step("cumulate", 0, attribute="max")], [to(1)], outer=0),
    "select": loops([load(), step("lt", 0, 0, dtype=bool), step("select", 1, 0, 0)], [to(2)]),
}

BROKEN = {
    "load above": (loops([load(offset=1)], [to()]), "reaches elements 1 to 4 of a buffer of 4"),
    "load below": (loops([load(strides=(-1,))], [to()]), "reaches elements -3 to 0"),
    "store above": (loops([load()], [to(0, (2,))]), "store 0: reaches elements 0 to 6"),
    "complex above": (loops([load(strides=(2,), offset=2)], [to()], source=COMPLEX), "buffer of 8"),
    "chunk above": (
        loops([load()], [to(0, (0,), 0, 4, accumulate="add", initialize=True)], chunks=2),
        "reaches elements 0 to 4",
    ),
    "no operand": (loops([load(2)], [to()]), "no operand 2"),
    "strides": (loops([load(strides=(1, 1))], [to()]), "2 strides for 1 dimensions"),
    "forward use": (loops([step("neg", 0)], [to()]), "not an earlier one"),
    "own use": (loops([load(), step("add", 0, 1)], [to(1)]), "uses instruction 1"),
    "arity": (loops([load(), step("add", 0)], [to(1)]), "takes 2 arguments"),
    "alphabet": (loops([load(), step("softmax", 0)], [to(1)]), "not in the alphabet"),
    "kinds": (loops([load(), step("and", 0, 0)], [to(1)]), "no and of float32"),
    "mixed": (loops([load(), index(), step("add", 0, 1)], [to(2)]), "dtypes differ"),
    "result": (loops([load(), step("lt", 0, 0)], [to(1)]), "its result is bool"),
    "bitcast": (loops([load(), step("bitcast", 0, dtype=INT)], [to(0)]), "differ in width"),
    "predicate": (loops([load(), step("select", 0, 0, 0)], [to(1)]), "first argument is bool"),
    "special": (
        loops([load(), step("special", 0, attribute="sinc")], [to(1)]),
        "no function 'sinc'",
    ),
    "narrow value": (loops([load(dtype=BFLOAT)], [to()], source=BFLOAT), "narrow numbers are only"),
    "load dtype": (loops([load(dtype=INT)], [to()]), "loads float32, not int64"),
    "address dtype": (loops([load(), load(args=(0,))], [to(1)]), "one int64 address"),
    "constant": (loops([Instruction("constant", (), FLOAT, b"ab")], [to()]), "value's bytes"),
    "index": (loops([load(), index(1)], [to()]), "is a dimension"),
    "reducer": (loops([load(), step("reduce", 0, attribute="or")], [to(1)]), "no or of float32"),
    "cumulate": (
        loops([load(), step("cumulate", 0, attribute="add")], [to(1)]),
        "one row dimension",
    ),
    "store dtype": (loops([load()], [to()], target=INT), "stores float32 into int64"),
    "store value": (loops([load()], [to(3)]), "its value is not an instruction"),
    "guard": (loops([load()], [to(guard=0)]), "guard is not bool"),
    "address": (loops([load()], [to(address=0)]), "address is not int64"),
    "initialize": (loops([load()], [to(initialize=True)]), "initialize is for"),
    "to input": (loops([load()], [to(operand=0)]), "writes input buffer"),
    "race": (
        loops([load()], [to(0, (0,), accumulate="add", initialize=True)], parallel=1),
        "parallel dimension 0 write the same",
    ),
    "chunk race": (
        loops([load()], [to(0, (0,), accumulate="add", initialize=True)], chunks=2),
        "chunks write the same",
    ),
    "outer": (loops([load()], [to()], outer=2), "outer counts"),
    "parallel": (loops([load()], [to()], outer=0, parallel=1), "parallel counts"),
    "accumulates first": (loops([load()], [to(accumulate="add")]), "reads output buffer"),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_loops(name):
    verify_plan(LEGAL[name])


@pytest.mark.parametrize("name", BROKEN)
def test_broken_loops(name):
    refuse(*BROKEN[name])


def test_the_error_shows_the_kernel():
    with pytest.raises(VerificationError) as error:
        verify_plan(BROKEN["load above"][0])
    assert "Loops(\n" in str(error.value) and "kernel_0 = " in str(error.value)


# ------------------------------------------------------------------ buffers
def test_plans():
    x, y, c = buffer("input"), buffer("output"), buffer("constant")
    verify_plan(plan([copy(x, y)], [x], [y]))
    refuse(plan([copy(x, y)], [x], [y, y]), "contains a buffer twice")
    refuse(plan([], [x], [y]), "no kernel writes output 0")
    refuse(plan([copy(c, y)], [], [y], [c]), "has no value")
    refuse(Plan((x,), (), (x, y), (copy(x, y),)), "not the plan's outputs")
    refuse(Plan((x,), (y,), (y,), (copy(x, y),)), "not the plan's inputs")
    refuse(plan([copy(x, y)], [x], [x]), "contains a buffer twice")
    temporary = buffer()
    refuse(plan([copy(temporary, y)], [x], [y], [temporary], 16), "before a kernel has written")
    refuse(plan([copy(x, temporary), copy(x, y)], [x], [y]), "not among the plan's buffers")
    wrong = buffer("constant", value=np.zeros(4))
    refuse(plan([copy(wrong, y)], [], [y], [wrong]), "value's dtype and size")


# ------------------------------------------------------------------ arena
def chain(*offsets, arena=64):
    """input -> a temporary at each offset in turn -> output; None is no place."""
    x, y = buffer("input"), buffer("output")
    temporaries = [buffer() for _ in offsets]
    kernels = [copy(a, b) for a, b in itertools.pairwise([x, *temporaries, y])]
    places = {b: offset for b, offset in zip(temporaries, offsets, strict=True) if offset is not None}
    return plan(kernels, [x], [y], temporaries, arena, places)


def test_places_in_the_arena():
    verify_plan(chain(0, 16, 0))
    unplaced = chain(None, None)
    verify_plan(unplaced, placed=False)
    refuse(unplaced, "no place")
    refuse(chain(56), "of an arena of 64")
    refuse(chain(2), "not aligned")
    refuse(chain(0, 8), "live temporaries share bytes")


def test_in_place():
    verify_plan(chain(0, 0))
    late = chain(0, 0)
    last = Loops(
        (4,), 1, (*late.offsets, late.outputs[0]),
        (load(0), load(1), step("add", 0, 1)), (to(2, operand=2),),
    )  # fmt: skip
    refuse(replace(late, kernels=(*late.kernels[:-1], last)), "live temporaries share bytes")
    forward = chain(0, 0)
    first, second, third = forward.kernels
    reverse = replace(second, instructions=(load(strides=(-1,), offset=3), step("neg", 0)))
    refuse(replace(forward, kernels=(first, reverse, third)), "live temporaries share bytes")


def test_only_an_accumulation_of_the_row_runs_once():
    total = step("reduce", 0, attribute="add")

    def rows(store):
        return loops([load(strides=(2, 1)), total], [store], sizes=(2, 2), outer=1)

    verify_plan(rows(to(1, (0, 0), accumulate="add", initialize=True, once=True)))
    verify_plan(rows(to(1, (0, 0), accumulate="add", initialize=True)))
    refuse(rows(to(0, (0, 0), accumulate="add", initialize=True, once=True)), "differs within a row")
    refuse(rows(to(1, (2, 1), accumulate="add", once=True)), "differs within a row")
    refuse(rows(to(1, (2, 0), once=True)), "accumulating stores")


def test_in_place_waits_for_the_last_pass():
    a, b = buffer(size=12), buffer(size=12)
    loaded = (load(0, (4, 1)), step("reduce", 0, attribute="add"), step("div", 0, 1))

    def kernel(value):
        return Loops(
            (3, 4), 1, (a, b), loaded,
            (Store(value, Access(1, (4, 1))), Store(2, Access(1, (4, 1)))),
        )  # fmt: skip

    assert may_share(kernel(2), a, b)
    assert not may_share(kernel(0), a, b)
    outer_product = Loops((3, 4), 2, (a, b), (load(0, (0, 1)),), (Store(0, Access(1, (0, 1))),))
    assert not may_share(outer_product, a, b)


def test_a_value_of_the_row_is_not_in_place_beside_elements_of_the_row():
    """Threads that store the elements may load what another thread has overwritten."""
    a, b, c = buffer(size=3), buffer(size=3), buffer(size=12)

    def kernel(*stores):
        return Loops((3, 4), 1, (a, b, c), (load(0, (1, 0)), step("neg", 0)), stores)

    once, of_elements = Store(1, Access(1, (1, 0))), Store(0, Access(2, (4, 1)))
    assert may_share(kernel(once), a, b)
    assert not may_share(kernel(once, of_elements), a, b)


def test_a_kernel_does_not_load_what_others_store():
    x, y, t = buffer("input"), buffer("output"), buffer()
    shift = Loops((3,), 1, (t,), (load(),), (Store(0, Access(0, (1,), 1)),))
    refuse(plan([copy(x, t), shift, copy(t, y)], [x], [y], [t], 16), "other iterations")
    same = Loops((4,), 1, (t,), (load(), step("neg", 0)), (Store(1, Access(0, (1,))),))
    verify_plan(plan([copy(x, t), same, copy(t, y)], [x], [y], [t], 16))
    halves = Loops((2,), 1, (t,), (load(),), (Store(0, Access(0, (1,), 2)),))
    verify_plan(plan([copy(x, t), halves, copy(t, y)], [x], [y], [t], 16))


# ------------------------------------------------------------------ other kinds
def contract(lhs=(4, 2, 1), rhs=(4, 2, 1), out=(4, 2, 1), dtype=FLOAT):
    buffers = [buffer(r, dtype, 8) for r in ("input", "input", "output")]
    operands = [Operand(b, (2, 2, 2), s) for b, s in zip(buffers, (lhs, rhs, out), strict=True)]
    return plan([Contract(*operands)], buffers[:2], buffers[2:])


def test_contract():
    verify_plan(contract())
    verify_plan(contract(lhs=(4, 1, 2), rhs=(0, 1, 2)))
    refuse(contract(dtype=BFLOAT), "no contraction of bfloat16")
    refuse(contract(lhs=(1, 4, 2)), "not a matrix")
    refuse(contract(out=(4, 1, 2)), "out is not a matrix")
    refuse(contract(out=(0, 2, 1)), "overlap")
    refuse(contract(lhs=(5, 2, 1)), "a view reaches elements 0 to 8")
    whole = contract()
    (kernel,) = whole.kernels
    broken = replace(kernel, lhs=replace(kernel.lhs, shape=(2, 2, 1)))
    refuse(replace(whole, kernels=(broken,)), "do not fit")


def mixed(operands, out, accumulator=None, tf32=False):
    buffers = [buffer(r, d, 8) for r, d in (("input", operands), ("input", operands), ("output", out))]
    views = [Operand(b, (2, 2, 2), (4, 2, 1)) for b in buffers]
    wide = None if accumulator is None else np.dtype(accumulator)
    return plan([Contract(*views, accumulator=wide, tf32=tf32)], buffers[:2], buffers[2:])


def test_types_of_products():
    """Operands of one dtype, sums in a wider one of their kind, results in either."""
    for operands, out, wide in ((BFLOAT, BFLOAT, "f4"), (BFLOAT, "f4", "f4"), ("f2", "f2", "f4"), ("i1", "i4", "i4")):
        verify_plan(mixed(operands, out, wide))
    verify_plan(mixed(FLOAT, FLOAT, tf32=True))
    verify_plan(mixed("f4", "f8", "f8"))
    refuse(mixed("f2", "f2"), "no contraction of float16 in float16")
    refuse(mixed("f8", "f8", "f4"), "no contraction of float64 in float32")
    refuse(mixed("i4", "f4", "f4"), "no contraction of int32 in float32")
    refuse(mixed("bool", "bool"), "no contraction of bool")
    refuse(mixed("f2", "f8", "f4"), "products of float16, summed in float32, are not float64")
    refuse(mixed("f8", "f8", tf32=True), "only float32 is rounded to tf32")
    whole = mixed("f2", "f4", "f4")
    (kernel,) = whole.kernels
    other = replace(kernel, rhs=replace(kernel.rhs, buffer=buffer("input", "f4", 8)))
    inputs = (kernel.lhs.buffer, other.rhs.buffer)
    refuse(plan([other], list(inputs), [kernel.out.buffer]), "lhs and rhs have one dtype")


def test_sort():
    keys, values, order = buffer("input"), buffer("output"), buffer("output", "i4")
    verify_plan(plan([Sort(2, 2, (keys,), (values, order), index=True)], [keys], [values, order]))
    refuse(plan([Sort(2, 2, (keys,), (values, order))], [keys], [values, order]), "one output for")
    refuse(plan([Sort(2, 3, (keys,), (values,))], [keys], [values]), "= 6 elements")
    refuse(plan([Sort(2, 2, (keys,), (values,), keys=2)], [keys], [values]), "keys are some")
    refuse(plan([Sort(2, 2, (keys,), (order,))], [keys], [order]), "outputs 0: int32")


def test_library():
    x, y = buffer("input"), buffer("output")
    dense, turned = Operand(x, (2, 2), (2, 1)), Operand(x, (2, 2), (1, 2))
    result = (Operand(y, (2, 2), (2, 1)),)
    verify_plan(plan([Library("cholesky", (dense,), result)], [x], [y]))
    refuse(plan([Library("cholesky", (turned,), result)], [x], [y]), "contiguous")
    refuse(plan([Library("invert", (dense,), result)], [x], [y]), "no library routine 'invert'")


def step_plan(carry=4, x=1):
    """(constant, carry, x) -> (next carry, y)."""
    c, a, b = buffer("input"), buffer("input", size=carry), buffer("input", size=x)
    following, y = buffer("output", size=carry), buffer("output", size=x)
    return plan([copy(a, following), copy(b, y)], [c, a, b], [following, y])


def scan(**fields):
    c, first, xs = buffer("input"), buffer("input"), buffer("input", size=3)
    last, ys = buffer("output"), buffer("output", size=3)
    arguments = {"length": 3, "reverse": False, "body": step_plan(), "constants": (c,),
                 "initial": (first,), "xs": (xs,), "final": (last,), "ys": (ys,)}  # fmt: skip
    return plan([Scan(**{**arguments, **fields})], [c, first, xs], [last, ys])


def test_scan():
    verify_plan(scan())
    refuse(scan(length=2), "xs 0: float32.3. for 2 of float32.1.")
    refuse(scan(body=step_plan(carry=3)), "initial 0: float32.4. for float32.3.")
    refuse(scan(xs=()), "xs: 0 buffers for 1")
    refuse(scan(final=()), "final: 0 buffers for 1")
    inner = step_plan()
    refuse(scan(body=replace(inner, kernels=inner.kernels[:1])), "no kernel writes output 1")


def test_while():
    limit, first, last = buffer("input"), buffer("input"), buffer("output")
    x, y = buffer("input"), buffer("output")
    body = plan([copy(x, y)], [x], [y])

    def condition(dtype):
        bound, carry, out = buffer("input"), buffer("input"), buffer("output", dtype, 1)
        test = Loops(
            (), 0, (bound, carry, out), (load(0, ()), load(1, ()), step("lt", 1, 0, dtype=bool),
            step("cast", 2, dtype=dtype)), (to(3, (), operand=2),),
        )  # fmt: skip
        return plan([test], [bound, carry], [out])

    def loop(dtype=BOOL, constants=(limit,)):
        kernel = While(condition(dtype), body, constants, (), (first,), (last,))
        return plan([kernel], [limit, first], [last])

    verify_plan(loop())
    refuse(loop(INT), "one bool output")
    refuse(loop(constants=()), "condition's inputs: 1 buffers for 2")


def test_branch():
    number, x, y = buffer("input", "i4", 1), buffer("input"), buffer("output")
    inner_x, inner_y = buffer("input"), buffer("output")
    inner = plan([copy(inner_x, inner_y)], [inner_x], [inner_y])

    def branch(branches=(inner,), index=number, inputs=(x,)):
        return plan([Branch(index, branches, inputs, (y,))], [number, x], [y])

    verify_plan(branch())
    refuse(branch(()), "no branch")
    refuse(branch(index=x), "int32 scalar")
    refuse(branch(inputs=()), "branch's inputs: 0 buffers for 1")


def test_callback():
    x, y = buffer("input"), buffer("output")
    good = Callback(np.negative, (Operand(x, (4,), (1,)),), (Operand(y, (4,), (1,)),))
    verify_plan(plan([good], [x], [y]))
    beyond = Callback(np.negative, (Operand(x, (4,), (1,), 1),), good.outputs)
    refuse(plan([beyond], [x], [y]), "a view reaches elements 1 to 4")
    refuse(plan([Callback(3, good.inputs, good.outputs)], [x], [y]), "cannot be called")


# ------------------------------------------------------------------ text
def everything():
    """A plan of many kinds, with all that is hard to print."""
    x = buffer("input", name="x")
    weights = buffer("constant", BFLOAT, 3, value=np.array([1, np.nan, -np.inf], BFLOAT))
    empty = buffer("constant", size=0, value=np.zeros((0, 2), FLOAT))
    t = buffer()
    y, z = buffer("output"), buffer("output")
    origin = Origin("model.py", 3, "f")
    first = replace(copy(x, t), origins=(origin, None), label="negate")
    inner_x, inner_y = buffer("input"), buffer("output")
    inner = plan([copy(inner_x, inner_y)], [inner_x], [inner_y])
    number = buffer("input", "i4", 1)
    branch = Branch(number, (inner, inner), (t,), (y,))
    host = Callback(np.negative, (Operand(t, (2, 2), (1, 2)),), (Operand(z, (2, 2), (2, 1)),))
    return plan([first, branch, host], [x, number], [y, z], [weights, empty, t], 16)


@pytest.mark.parametrize("example", [*LEGAL.values(), contract(), scan(), everything()])
def test_printed_plans_rebuild_themselves(example):
    verify_plan(example)
    text = show_plan(example)
    scope = plan_functions(example)
    exec(text, scope)
    rebuilt = scope["plan"]
    verify_plan(rebuilt)
    assert show_plan(rebuilt) == text
    for one, other in zip(example.buffers, rebuilt.buffers, strict=True):
        assert one.dtype == other.dtype and one.role == other.role
        assert example.offsets.get(one) == rebuilt.offsets.get(other)
        if one.value is not None:
            assert one.value.tobytes() == other.value.tobytes()
            assert one.value.shape == other.value.shape


def test_printed_plans_run_as_scripts():
    text = show_plan(scan()) + "print(plan.kernels[0].length)\n"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"


def test_description():
    example = everything()
    text = describe_plan(example)
    lines = text.splitlines()
    assert lines[0] == "plan(in0:x float32[4], in1 int32[1]) -> (out0 float32[4], out1 float32[4])"
    assert "Loops negate" in lines[1] and "in0:x -> tmp0" in lines[1] and "32 B" in lines[1]
    assert "2 branches" in text and "negative" in text and "arena 16 B" in text
    assert "0-16" in text.splitlines()[-1] and "kernels 0-2" in text
    assert describe_kernel(example.kernels[0], example) in lines[1]
