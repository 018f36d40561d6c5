"""What a backend claims: blocks by name, dtypes, kinds of kernels; and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import backends, lax, nn
from rlx.backends.claims import Claims
from rlx.backends.reference import ReferenceBackend
from rlx.errors import DtypeError, VerificationError
from rlx.ir.kernels import Contract, Library, Plan, RowTiles, Sort, nested_plans
from rlx.ir.options import LoweringOptions
from rlx.ir.show_plan import show_plan
from rlx.ir.types import supported_dtypes
from rlx.ir.verify_plan import verify_plan
from rlx.passes.pipeline import Context, executables, lower_to_plan
from rlx.trace.replay import block
from rlx.trace.replay import blocks as blocks_by_name
from rlx.transforms.programs import clear_transform_cache

rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


class Claiming(ReferenceBackend):
    """The reference backend, that claims what a test says and counts the calls of routines."""

    name = "claiming"

    def __init__(self) -> None:
        self.taken = Claims()
        self.options = LoweringOptions()
        self.compiled: list[Plan] = []

    @property
    def claims(self) -> Claims:
        return self.taken

    @property
    def lowering(self) -> LoweringOptions:
        return self.options

    def compile(self, plan: Plan) -> Any:
        self.compiled.append(plan)
        return super().compile(plan)

    def blocks(self) -> list[Library]:
        """The blocks of all plans, those in loops and branches too."""
        return [k for plan in self.compiled for k in routines(plan) if k.meaning is not None]


def routines(plan: Plan) -> Iterator[Library]:
    for kernel in plan.kernels:
        if isinstance(kernel, Library):
            yield kernel
        for inner in nested_plans(kernel):
            yield from routines(inner)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Claiming]:
    backend = Claiming()
    monkeypatch.setitem(backends._BACKENDS, "claiming", ("", ""))
    monkeypatch.setitem(backends._loaded, "claiming", backend)
    yield backend
    executables.clear()


def test_operands_have_their_names_whatever_their_order(device):
    """Keyword arguments come in the order of the call."""
    device.taken = Claims(blocks=frozenset({"layer_norm"}))
    found = rlx.jit(lambda x, w, b: nn.layer_norm(x, bias=b, weight=w), device="claiming")(X, W, W + 1)
    (kernel,) = device.blocks()
    assert kernel.attributes["operands"] == ("x", "bias", "weight")
    np.testing.assert_allclose(found, nn.layer_norm(X, W, W + 1), rtol=2e-6, atol=1e-6)


def names(backend: Claiming) -> list[str]:
    return [kernel.routine for kernel in backend.blocks()]


X, W = normal(6, 5), normal(5)
CALLS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "softmax": (partial(nn.softmax, axis=0), (X,)),
    "log_softmax": (nn.log_softmax, (X,)),
    "logsumexp": (partial(nn.logsumexp, axis=1, keepdims=True), (X,)),
    "layer_norm": (nn.layer_norm, (X, W, W)),
    "rms_norm": (nn.rms_norm, (X, W)),
    "gelu": (partial(nn.gelu, approximate=False), (X,)),
    "dot_product_attention": (partial(nn.dot_product_attention, is_causal=True), (normal(2, 7, 3, 4),) * 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_claimed_block_is_one_kernel_of_its_name(name, device):
    """With its static arguments, and its own plan; results are those of its equations."""
    function, args = CALLS[name]
    expected = rlx.jit(lambda *args: function(*args) * 2.0)(*args)
    device.taken = Claims(blocks=frozenset({name}))
    found = rlx.jit(lambda *args: function(*args) * 2.0, device="claiming")(*args)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)
    (kernel,) = device.blocks()
    assert kernel.routine == name and kernel.meaning is not None and kernel.label == "block"
    given = {**kernel.attributes}
    assert len(given.pop("operands")) == len(kernel.inputs) == len(args)
    if isinstance(function, partial):
        assert function.keywords.items() <= given.items()
    verify_plan(device.compiled[-1])
    assert f"routine='{name}'" in show_plan(device.compiled[-1]) and "meaning=plan_" in show_plan(device.compiled[-1])
    device.taken = Claims()
    again = rlx.jit(lambda *args: function(*args) * 2.0, device="claiming")(*args)
    np.testing.assert_allclose(again, expected, rtol=2e-6, atol=1e-6)
    assert len(device.blocks()) == 1, "unclaimed, it is inlined; and what was compiled for other claims is not taken"


def test_blocks_in_calls_loops_branches_and_other_blocks(device):
    device.taken = Claims(blocks=frozenset({"softmax", "gelu"}))

    @partial(rlx.jit, device="claiming")
    def f(x, flag):
        y = rlx.jit(nn.softmax)(x)
        y, _ = rlx.lax.scan(lambda c, _: (nn.gelu(c), None), y, None, length=3)
        y = rlx.lax.cond(flag, nn.softmax, lambda x: x, y)
        q = y.reshape(1, 6, 1, 5)
        return nn.dot_product_attention(q, q, q)

    with rlx.disable_jit():
        expected = f(jnp.array(X), True)
    np.testing.assert_allclose(f(X, True), expected, rtol=1e-5)
    assert sorted(names(device)) == ["gelu", "softmax", "softmax", "softmax"]


def test_derivatives_see_the_equations_and_values_that_do_not_move_keep_their_blocks(device):
    device.taken = Claims(blocks=frozenset({"softmax"}))

    def loss(w, x):
        return (nn.softmax(w) * nn.softmax(x)).sum()

    w, x = normal(4, 3), normal(4, 3)
    found = rlx.jit(rlx.grad(loss), device="claiming")(w, x)
    assert names(device) == ["softmax"]
    np.testing.assert_allclose(found, rlx.grad(loss)(w, x), rtol=1e-5, atol=1e-7)
    for transformed in (rlx.hessian(loss), rlx.jacfwd(rlx.grad(loss))):
        results = rlx.jit(transformed, device="claiming")(w, x), transformed(w, x)
        np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-6)
    tangent = rlx.jvp(lambda x: rlx.jit(nn.softmax)(x), (x,), (w,))[1]
    np.testing.assert_allclose(tangent, rlx.jvp(nn.softmax, (x,), (w,))[1], rtol=1e-6, atol=1e-7)


def test_a_block_carries_a_derivative_of_its_own(device):
    device.taken = Claims(blocks=frozenset({"ruled"}))

    @rlx.custom_jvp
    def inner(x):
        return jnp.sin(x)

    inner.defjvp(lambda primals, tangents: (inner(*primals), tangents[0] * 10.0))

    @block()
    def ruled(x):
        return inner(x)

    x = normal(3)
    np.testing.assert_allclose(rlx.jit(ruled, device="claiming")(x), np.sin(x), rtol=1e-6)
    assert names(device) == ["ruled"]
    np.testing.assert_allclose(rlx.jit(rlx.grad(lambda x: ruled(x).sum()), device="claiming")(x), np.full(3, 10.0))


@pytest.mark.parametrize("name", CALLS)
def test_a_block_stays_one_under_vmap_where_it_says_how(name, device):
    device.taken = Claims(blocks=frozenset({name}))
    function, args = CALLS[name]
    if name == "dot_product_attention":
        args = tuple(a[0] for a in args)
    batch = np.stack([args[0], args[0] + 1.0, args[0] * 2.0])
    first, rest = (0, (None,) * (len(args) - 1)) if name != "dot_product_attention" else (0, (0, 0))
    operands = (batch, *(a if d is None else batch for a, d in zip(args[1:], rest, strict=True)))
    mapped = rlx.vmap(function, in_axes=(first, *rest))
    found = rlx.jit(mapped, device="claiming")(*operands)
    assert names(device) == [name]
    rows = [function(*(a[n] if d == 0 else a for a, d in zip(operands, (first, *rest), strict=True))) for n in range(3)]
    np.testing.assert_allclose(found, np.stack(rows), rtol=2e-6, atol=2e-6)


def test_a_batch_that_a_block_does_not_take_goes_through_its_equations(device):
    device.taken = Claims(blocks=frozenset({"softmax", "layer_norm"}))
    x = normal(4, 3, 5)
    found = rlx.jit(rlx.vmap(nn.softmax, in_axes=2), device="claiming")(x)
    np.testing.assert_allclose(found, nn.softmax(np.moveaxis(x, 2, 0)), rtol=1e-6)
    weights = normal(4, 5)
    found = rlx.jit(rlx.vmap(nn.layer_norm, in_axes=(0, 0)), device="claiming")(x, weights)
    np.testing.assert_allclose(found, nn.layer_norm(x) * weights[:, None], rtol=1e-5, atol=1e-6)
    wide = rlx.jit(rlx.vmap(nn.layer_norm, in_axes=(0, None)), device="claiming")(x[:, 0], normal(2, 5))
    assert wide.shape == (4, 2, 5) and names(device) == []


# ------------------------------------------------------------------ derivatives that are blocks
AHEAD, GRADIENT = "attention_and_sums", "dot_product_attention_gradient"
BOTH = frozenset({AHEAD, GRADIENT})
QUERIES = normal(2, 9, 4, 6)


def attend(q: Any) -> Any:
    return nn.dot_product_attention(q * 0.5, q[:, :, ::2], q[:, :, 1::2], is_causal=True)


def layers(q: Any) -> Any:
    return lax.scan(lambda c, _: (attend(c), None), q, None, length=3)[0]


DERIVATIVES: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "gradient": (rlx.grad(lambda q: (attend(q) ** 2).sum()), [AHEAD, GRADIENT]),
    "value and gradient of calls": (
        rlx.value_and_grad(lambda q: (rlx.jit(rlx.jit(attend))(q) ** 2).sum()), [AHEAD, GRADIENT],
    ),
    "gradient of a loop": (rlx.grad(lambda q: (layers(q) ** 2).sum()), [AHEAD, GRADIENT]),
    "gradient of a checkpoint": (
        rlx.grad(lambda q: (rlx.checkpoint(attend)(q) ** 2).sum()), [AHEAD, AHEAD, GRADIENT],
    ),
    "gradient of a checkpoint that keeps products": (
        rlx.grad(lambda q: (rlx.checkpoint(attend, policy=rlx.checkpoint_policies.dots_saveable)(q) ** 2).sum()),
        [GRADIENT],
    ),
    "gradient of a checkpoint that keeps names": (
        rlx.grad(
            lambda q: (rlx.checkpoint(attend, policy=rlx.checkpoint_policies.save_only_these_names("x"))(q) ** 2).sum()
        ),
        [AHEAD, AHEAD, GRADIENT],
    ),
    "gradient of a map": (
        rlx.grad(lambda q: (rlx.vmap(nn.dot_product_attention)(q, q, q) ** 2).sum()), [AHEAD, GRADIENT],
    ),
    "tangent": (lambda q: rlx.jvp(attend, (q,), (q,)), []),
    "map of a gradient": (
        rlx.vmap(rlx.grad(lambda q: (nn.dot_product_attention(q, q, q) ** 2).sum())), [AHEAD, GRADIENT],
    ),
    "maps of a gradient": (
        lambda q: rlx.vmap(rlx.vmap(rlx.grad(lambda q: (attend(q) ** 2).sum())))(q[:, None, None]), [AHEAD, GRADIENT],
    ),
    "gradient of a map of a gradient": (
        rlx.grad(lambda q: (rlx.vmap(rlx.grad(lambda q: (attend(q) ** 2).sum()))(q[:, None]) ** 2).sum()), [],
    ),
    "map of a gradient of a loop": (
        lambda q: rlx.vmap(rlx.grad(lambda q: (layers(q) ** 2).sum()), axis_name="examples")(q[:, None]),
        [AHEAD, GRADIENT],
    ),
    "map of cotangents": (
        lambda q: rlx.vmap(rlx.vjp(attend, q)[1])(jnp.stack([q, q + 1]))[0], [],
    ),
    "gradient of a gradient": (rlx.grad(lambda q: (rlx.grad(lambda q: (attend(q) ** 2).sum())(q) ** 2).sum()), []),
    "gradient of a residual": (
        rlx.grad(lambda q: nn.dot_product_attention(q, q, q, return_residual=True)[0].sum()), [],
    ),
}  # fmt: skip
SLOW = ("gradient of a map of a gradient", "map of a gradient of a loop")
NAMES = [pytest.param(name, marks=pytest.mark.thorough if name in SLOW else ()) for name in DERIVATIVES]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.selected(1)
def test_a_derivative_is_blocks_where_nothing_else_is_kept(name, device):
    """In loops and calls, too; values are those of the equations, and so are they where one of two is claimed."""
    function, blocks = DERIVATIVES[name]
    expected = rlx.tree.leaves(rlx.jit(function)(QUERIES))
    first = [AHEAD] * (blocks.count(AHEAD) - 1)  # what is computed again is not kept, either
    for claimed, found in ((BOTH, blocks), (BOTH - {GRADIENT}, first), (BOTH - {AHEAD}, blocks[-1:])):
        device.compiled.clear()
        device.taken = Claims(blocks=claimed)
        results = rlx.tree.leaves(rlx.jit(lambda q: function(q), device="claiming")(QUERIES))
        assert device.compiled and sorted(names(device)) == sorted(found), claimed
        for x, y in zip(results, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)
        if claimed == BOTH and found:
            kept = [b for plan in device.compiled for b in plan.buffers if b.role == "temporary"]
            assert all(b.size <= 3 * QUERIES.size for b in kept), "no array of queries by keys in any loop"


Q, K = normal(3, 2, 9, 4, 6), normal(3, 2, 7, 2, 6)
SEES, LENGTHS = normal(3, 2, 4, 9, 7) > 0, np.array([[7, 3], [2, 5], [0, 6]], np.int32)
FOLDED: dict[str, tuple[str, np.ndarray, bool, list[str]]] = {
    "a bias of each example": ("bias", normal(3, 2, 1, 9, 7), True, [AHEAD, GRADIENT]),
    "a bias of each head": ("bias", normal(3, 4, 1, 7), True, [AHEAD, GRADIENT]),
    "one bias of a batch": ("bias", normal(2, 4, 9, 7), False, [AHEAD, GRADIENT]),
    "a mask of each example": ("mask", SEES[:, :, :1, :1], True, [AHEAD, GRADIENT]),
    "one mask": ("mask", SEES[0, 0, 0], False, [AHEAD, GRADIENT]),
    "lengths of each example": ("key_value_seq_lengths", LENGTHS, True, [AHEAD, GRADIENT]),
    "lengths of the batch": ("query_seq_lengths", LENGTHS[0], False, [AHEAD, GRADIENT]),
    "sinks": ("sinks", normal(4), False, [AHEAD, GRADIENT]),
    "sinks of each example": ("sinks", normal(3, 4), True, []),
}


@pytest.mark.parametrize("name", FOLDED)
def test_examples_of_attention_are_a_batch(name, device):
    """Of a map over queries and keys of calls with a batch, and of the gradient inside of it."""
    argument, given, mapped, found = FOLDED[name]
    device.taken = Claims(blocks=BOTH)

    def gradients(q, k, given):
        def loss(q, k):
            return (nn.dot_product_attention(q, k, k * 2, **{argument: given}) ** 2).sum()

        return rlx.grad(loss, (0, 1))(q, k)

    function = rlx.vmap(gradients, (0, 1, 0 if mapped else None))
    results = rlx.jit(function, device="claiming")(Q, np.moveaxis(K, 0, 1), given)
    assert sorted(names(device)) == sorted(found)
    for n in range(3):
        for x, y in zip(results, gradients(Q[n], K[n], given[n] if mapped else given), strict=True):
            np.testing.assert_allclose(x[n], y, rtol=2e-4, atol=2e-5)


def counted(plan: Plan) -> tuple[Any, ...]:
    """What a plan costs: its kernels, what they compute on, and the bytes of its temporaries, of plans inside, too."""
    made = sorted((type(k).__name__, sorted(b.size for b in (*k.reads, *k.writes))) for k in plan.kernels)
    inside = sorted(counted(inner) for k in plan.kernels for inner in nested_plans(k))
    return made, inside, plan.arena


@pytest.mark.parametrize("name", NAMES)
def test_a_derivative_by_blocks_that_nobody_claims_is_that_of_the_equations(name, monkeypatch):
    """The same plan, and the same values op by op."""
    function, _ = DERIVATIVES[name]
    plan = lower_to_plan(rlx.make_program(function)(QUERIES))
    by_op = rlx.tree.leaves(function(QUERIES))
    monkeypatch.setitem(blocks_by_name, "dot_product_attention", blocks_by_name["dot_product_attention"]._replace(
        derivative=None
    ))  # fmt: skip
    clear_transform_cache()
    again = rlx.make_program(lambda q: function(q))(QUERIES)
    assert "dot_product_attention_gradient" not in str(again)
    assert counted(plan) == counted(lower_to_plan(again))
    for x, y in zip(by_op, rlx.tree.leaves(function(QUERIES)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)


def test_what_a_gradients_kernel_is_given(device):
    """The operands, what the other block gives, and a cotangent, by name; and which gradients are wanted."""
    device.taken = Claims(blocks=BOTH)
    k, mask = normal(2, 7, 2, 6), np.ones((9, 7), bool)

    def loss(q, k, mask):
        return (nn.dot_product_attention(q, k, k * 2, mask=mask, scale=0.5) ** 2).sum()

    found = rlx.jit(rlx.grad(loss), device="claiming")(QUERIES, k, mask)
    np.testing.assert_allclose(found, rlx.grad(loss)(QUERIES, k, mask), rtol=1e-4, atol=1e-5)
    ahead, behind = device.blocks()
    assert [ahead.routine, behind.routine] == [AHEAD, GRADIENT] and len(ahead.outputs) == 3
    assert ahead.attributes["operands"] == ("query", "key", "value", "mask") and ahead.attributes["scale"] == 0.5
    more = ("output", "largest", "total", "cotangent")
    assert behind.attributes["operands"] == (*ahead.attributes["operands"], *more)
    assert behind.attributes["wanted"] == ("query",) and len(behind.outputs) == 1


def test_a_backend_may_look_at_a_call_before_it_takes_it(device):
    def last_axis_only(name, types, attributes):
        return types[0].dtype == np.float32 and attributes["axis"] == -1

    device.taken = Claims(blocks=frozenset({"softmax"}), fits=last_axis_only)
    f = rlx.jit(lambda x: nn.softmax(x) + nn.softmax(x, axis=0), device="claiming")
    np.testing.assert_allclose(f(X), nn.softmax(X) + nn.softmax(X, axis=0), rtol=1e-6)
    assert [k.attributes["axis"] for k in device.blocks()] == [-1]


def test_composites_are_blocks(device):
    device.taken = Claims(blocks=frozenset({"my.power.v1"}))
    power = rlx.lax.composite(lambda x, exponent: x**exponent, "my.power", version=1)
    np.testing.assert_allclose(rlx.jit(lambda x: power(x, exponent=3), device="claiming")(X), X**3, rtol=1e-5)
    assert [k.attributes for k in device.blocks()] == [{"exponent": 3}]


def test_a_block_is_one_equation_from_the_first_call_on():
    """Tracing records one equation a call, and stages the function once for equal types."""
    runs = 0

    @block()
    def counted(x):
        nonlocal runs
        runs += 1
        return jnp.sin(x) * 2.0 + x

    program = rlx.make_program(lambda x: counted(counted(counted(x))))(X)
    assert [e.primitive.name for e in program.equations] == ["block"] * 3
    assert runs == 1 and len({id(e.params["program"]) for e in program.equations}) == 1
    counted(jnp.array(X))
    assert runs == 1, "eagerly it is replayed"


def test_lines_of_a_block_are_those_of_its_calls():
    f = lambda x: nn.softmax(x)  # noqa: E731
    g = lambda x: nn.softmax(x)  # noqa: E731
    lines = []
    gradient = rlx.grad(lambda x: nn.dot_product_attention(x[None, None], x[None, None], x[None, None]).sum())
    for function in (f, g, rlx.grad(lambda x: nn.softmax(x).std()), gradient):
        plan = lower_to_plan(rlx.make_program(function)(X))
        lines.append({origin.line for kernel in plan.kernels for origin in kernel.origins})
    assert all(len(found) == 1 for found in lines) and len(set.union(*lines)) == 4


def test_a_meaning_that_does_not_fit_is_refused():
    plan = lower_to_plan(
        rlx.make_program(nn.softmax)(X), context=Context(claims=Claims(blocks=frozenset({"softmax"})))
    )
    (kernel,) = plan.kernels
    assert isinstance(kernel, Library) and kernel.meaning is not None
    other = lower_to_plan(rlx.make_program(nn.softmax)(X[:2]))
    for meaning, what in ((other, "other inputs"), (None, "no library routine 'softmax'")):
        broken = Library(kernel.routine, kernel.inputs, kernel.outputs, kernel.attributes, meaning)
        with pytest.raises(VerificationError, match=what):
            verify_plan(Plan(plan.inputs, plan.outputs, plan.buffers, (broken,)))


# ------------------------------------------------------------------ dtypes and kinds
def test_a_dtype_that_the_device_lacks_is_refused_by_name_at_the_users_line(device):
    device.taken = Claims(dtypes=supported_dtypes - {np.dtype("f8"), np.dtype("c16")})
    line = r"(?s)'claiming' has no float64: the result of convert is.*astype\(np.float64\)"
    with pytest.raises(DtypeError, match=line):
        rlx.jit(lambda x: (x.astype(np.float64) * 2.0).astype(np.float32), device="claiming")(X)
    with pytest.raises(DtypeError, match="an input of sin is float64"):
        rlx.jit(jnp.sin, device="claiming")(X.astype(np.float64))
    with pytest.raises(DtypeError, match="has no complex128"):
        rlx.jit(lambda x: rlx.lax.scan(lambda c, r: (c, r.astype("complex128")), x[0], x)[1], device="claiming")(X)
    table = np.arange(30.0)
    with pytest.raises(DtypeError, match="a constant of"):
        rlx.jit(lambda i: jnp.asarray(table)[i] > 2.0, device="claiming")(np.int32(2))
    np.testing.assert_allclose(rlx.jit(jnp.sin, device="claiming")(X), np.sin(X), rtol=1e-6)


def test_kinds_that_are_not_claimed(device):
    x, w = normal(1024, 64), normal(64, 64)
    device.taken = Claims()
    rlx.jit(lambda x, w: jnp.tanh(x @ w) @ w, device="claiming")(x, w)
    assert any(isinstance(k, RowTiles) for k in device.compiled[-1].kernels)
    device.taken = Claims(kinds=Claims().kinds - {RowTiles, Sort}, routines=frozenset({"lu"}))
    rlx.jit(lambda x, w: jnp.tanh(x @ w) @ w, device="claiming")(x, w)
    assert [type(k) for k in device.compiled[-1].kernels].count(Contract) == 2
    rlx.jit(lambda x: jnp.linalg.eigvals(jnp.sort(x)), device="claiming")(np.eye(3, dtype=np.float32))
    reasons = [device.host_reason(k) for k in device.compiled[-1].kernels if isinstance(k, (Sort, Library))]
    assert reasons == ["the device has no kernels of kind Sort", "the device has no routine eig"]


# ------------------------------------------------------------------ the report
def test_the_report_names_claimed_inlined_and_host(device):
    device.taken = Claims(blocks=frozenset({"softmax"}), kinds=Claims().kinds - {Sort})

    def f(x):
        return jnp.sort(nn.softmax(nn.gelu(x @ x.T)))

    report = rlx.inspect(rlx.jit(f, device="claiming"))(X).dispatch
    found = {how: [row for row in report if row.how == how] for how in ("claimed", "inlined", "host", "library")}
    assert [len(rows) for rows in found.values()] == [1, 1, 1, 1]
    assert "name='softmax'" in found["claimed"][0].equation and "block gelu" in found["inlined"][0].equation
    assert found["host"][0].reason == "the device has no kernels of kind Sort"
    assert report.counts["claimed"] == 1
    lines = repr(report).splitlines()
    assert len(lines) == 1 + len(report) and "1 claimed" in lines[0] and "1 host" in lines[0]


def test_the_report_of_the_processor():
    report = rlx.inspect(lambda x: jnp.sort(nn.softmax(x)))(X).dispatch
    assert [row.equation.split()[:2] for row in report if row.how == "inlined"] == [["block", "softmax"]]
    assert [row.reason for row in report if row.how == "host"] == ["sort: NumPy's"]


@pytest.mark.parametrize(("name", "language"), [("numba", "Numba"), ("c", "C")])
@pytest.mark.selected(1)
def test_the_report_of_devices_of_text_says_what_the_host_runs(name, language):
    def f(x):
        def step(c, row):
            return jnp.linalg.inv(c) + row[0], jnp.exp(row)

        return rlx.scipy.special.hyp1f1(1.0, 2.0, x), lax.scan(step, jnp.eye(40, dtype="float32"), x)

    found = rlx.inspect(rlx.jit(f, device=name))(X)
    reasons = [row.reason for row in found.dispatch if row.how == "host"]
    assert {f"{language} has no lu", f"{language} has no lu, lu_solve"} <= {*reasons}
    assert ("C has no confluent_hypergeometric" in reasons) == (name == "c")
    assert {*found.kernels.texts["host"].splitlines()} == {*reasons}
    assert not any(row.how == "host" for row in rlx.inspect(rlx.jit(jnp.exp, device=name))(X).dispatch)


def test_products_that_the_device_lacks_are_reported_as_decomposed(device):
    device.taken = Claims(kinds=Claims().kinds - {Contract})
    found = rlx.inspect(rlx.jit(lambda x: x @ x.T, device="claiming"))(X)
    products = {e.primitive.name for e in found._products}
    assert products == {"dot_general"}
