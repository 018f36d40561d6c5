"""Plans as data: what is written is read again, and other data is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.backends import backend_named
from rlx.call.compiled import CompiledProgram
from rlx.ir.kernels import Plan, all_kernels, constants_of
from rlx.ir.plan_data import Unwritable, read_plan, write_plan
from rlx.ir.show_plan import show_plan
from rlx.ir.verify_plan import verify_plan
from rlx.passes.pipeline import executables, lower_to_plan

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)


def attention(x: Any) -> Any:
    """A block that the CPU claims, with a mask and a softmax."""
    return rlx.nn.dot_product_attention(x, x, x, is_causal=True)


PROGRAMS: dict[str, tuple[Callable[..., Any], Any]] = {
    "map": (lambda x: jnp.where(x > 0, jnp.exp(x), np.nan) * -0.0, TABLE),
    "narrow": (lambda x: (x * 3).astype("bfloat16").astype("float8_e4m3fn"), TABLE),
    "complex": (lambda x: jnp.fft.fft(x) * (2 + 1j), TABLE),
    "products": (lambda x: jnp.tanh(x @ x.T) @ x, np.ones((64, 64), np.float32)),
    "tiles": (rlx.grad(lambda x: rlx.nn.softmax(x @ x).sum()), np.ones((256, 256), np.float32)),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x, 0)), TABLE),
    "routine": (jnp.linalg.cholesky, np.eye(5)),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), x), TABLE),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: c.at[0].add(c[1]), x), TABLE),
    "branch": (lambda x: lax.cond(x.sum() > 3, jnp.sin, lambda x: x * TABLE, x), TABLE),
    "scatter": (lambda x: jnp.zeros(4).at[x[0].astype(int) % 4].add(x[1]), TABLE),
    "block": (attention, np.ones((1, 9, 2, 8), np.float32)),
    "random": (lambda x: x + rlx.random.normal(rlx.random.key(3), x.shape), TABLE),
    "nothing": (lambda x: x.sum(), np.zeros((0, 3))),
}


def planned(name: str) -> tuple[CompiledProgram, list[np.ndarray]]:
    """A program compiled for the CPU, and its constants."""
    function, x = PROGRAMS[name]
    compiled = CompiledProgram(rlx.make_program(function)(x), backend_named("cpu"))
    return compiled, [array.numpy() for _, array in compiled.core.constants]


def plan_of(name: str) -> tuple[Plan, list[np.ndarray]]:
    """The plan of a program, and its constants."""
    compiled, constants = planned(name)
    assert compiled.executable is not None
    return compiled.executable.plan, constants


def without_lines(plan: Any) -> Any:
    """A plan whose kernels, and those inside of them, know no lines and equations of the user's program."""
    if isinstance(plan, tuple):
        return tuple(map(without_lines, plan))
    if not is_dataclass(plan) or not any(f.name in ("origins", "kernels", "body") for f in fields(plan)):
        return plan
    parts = {f.name: without_lines(getattr(plan, f.name)) for f in fields(plan)}
    return type(plan)(**(parts | ({"origins": (), "equations": ()} if "origins" in parts else {})))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_is_read_again(name: str) -> None:
    plan, constants = plan_of(name)
    found = read_plan(write_plan(plan, constants), constants)
    verify_plan(found, placed=True)
    assert show_plan(found) == show_plan(without_lines(plan))
    compiled, _ = planned(name)
    executables.clear()
    again = CompiledProgram(compiled.program, compiled.backend, planned=lambda program, context: found)
    assert again.executable is not None and again.executable.plan is found
    results = [c.run([jnp.asarray(PROGRAMS[name][1])]) for c in (compiled, again)]
    for a, b in zip(*results, strict=True):
        assert a.tobytes() == b.tobytes() and a.type == b.type


def test_constants_of_the_program_are_named_by_number() -> None:
    """A file holds them once, and what is read has the array that is handed in."""
    plan, constants = plan_of("branch")
    data = write_plan(plan, constants)
    other = [np.full_like(c, 7) for c in constants]
    held = [b.value for b in constants_of(read_plan(data, other)) if b.value is not None and b.size == TABLE.size]
    assert held and all(any(h is o for o in other) for h in held)
    assert len(write_plan(plan, constants)) < len(write_plan(plan))


def test_equal_kernels_stay_apart() -> None:
    """What has an identity keeps it: equal layers are several kernels over buffers of their own."""
    plan = lower_to_plan(rlx.make_program(lambda x: jnp.sort(jnp.sort(x) * 2) * 2)(np.ones(64)))
    found = read_plan(write_plan(plan))
    assert len(set(all_kernels(found))) == len(found.kernels) == len(plan.kernels)
    assert len(set(found.buffers)) == len(plan.buffers) and set(found.offsets) <= set(found.buffers)


def test_functions_of_python_are_no_data() -> None:
    program = rlx.make_program(lambda x: rlx.pure_callback(np.sin, x, x))(np.ones(3))
    with pytest.raises(Unwritable, match="Callback"):
        write_plan(lower_to_plan(program))


def test_other_data_is_refused() -> None:
    """Whatever the data is, reading gives a plan or ValueError."""
    data = write_plan(plan_of("tiles")[0])
    draw = random.Random(3)
    refused = 0
    for _ in range(300):
        said = json.loads(data)
        node = draw.choice(said["nodes"])
        place = draw.randrange(len(node))
        node[place] = draw.choice([-1, 1 << 40, "tuple", "Plan", None, 1.5, [], draw.randrange(len(said["nodes"]))])
        try:
            assert isinstance(read_plan(json.dumps(said).encode()), Plan)
        except ValueError as error:
            assert str(error).startswith("The data is not a plan")
            refused += 1
    assert refused > 100
    for broken in (b"", b"{}", b"[]", b"\xff", b'{"atoms": [1], "nodes": []}', data[:-3], b"[" * 100_000):
        with pytest.raises(ValueError, match="data is not a plan"):
            read_plan(broken)
