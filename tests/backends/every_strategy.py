"""Run by test_races.py: one program of each strategy, against the CPU. `--fragments`: attention by units for matrices,
whose items are given what is their own in place of others': where memory is read and written does not depend on it.
`--without-barriers`: wrongly. `--without-barrier=N`: without that one of those of the fragments' kernels.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.backends import backend_named
from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.fragments import Fragments
from rlx.backends.gpu.limits import LaunchCosts, Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.loops.dialect import Dialect
from rlx.backends.loops.printing import Printer
from rlx.backends.opencl import OpenCLBackend
from rlx.backends.opencl.dialect import OpenCLDialect
from rlx.backends.opencl.engine import OpenCLEngine, devices
from rlx.backends.rocm.dialect import HipDialect
from rlx.code.tree import Array, Barrier, Statement
from rlx.passes.pipeline import Context, lower_to_plan

RANDOM = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    """Normal numbers."""
    return RANDOM.normal(size=shape).astype("float32")


HELD = {"rows in registers": 64, "rows of large groups": 4}  # elements of a row that a work-item keeps
PLACES = (np.arange(130) % 11).astype("int32")
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "vectors": (lambda v: jnp.sin(v) * 2, numbers(130)),
    "tiles": (lambda x: x.T + 1, numbers(20, 37)),
    "rows": (nn.softmax, numbers(20, 37)),
    "rows in registers": (nn.softmax, numbers(20, 38)),
    "rows of large groups": (nn.softmax, numbers(3, 300)),
    "sums": (lambda x: (x.sum(), x.sum(0)), numbers(200, 100)),
    "scans": (lambda x: jnp.cumsum(x, 1), numbers(2, 150)),
    "scans of parts": (jnp.cumsum, numbers(2100)),
    "last writes": (lambda v, i: jnp.zeros(11).at[i].set(v), numbers(130), PLACES),
    "atomics": (
        lambda v, i: (jnp.zeros(11).at[i].add(v), jnp.zeros(11, "bfloat16").at[i].max(v.astype("bfloat16"))),
        numbers(130), PLACES,
    ),
    "ordered sums": (lambda v, i: jnp.zeros(11).at[i].add(v), numbers(130), PLACES),
    "sorts": (jnp.argsort, numbers(130)),
    "attention": (lambda x: nn.dot_product_attention(x, x, x, is_causal=True), numbers(1, 20, 1, 5)),
    "gradients of attention": (
        rlx.grad(lambda x: (nn.dot_product_attention(x, x[:, :, :1], x[:, :, 1:], is_causal=True) ** 2).sum()),
        numbers(1, 20, 2, 5),
    ),
    "products": (lambda x: x @ x.T, numbers(20, 37)),
    "transforms": (lambda x: jnp.abs(jnp.fft.irfft2(jnp.fft.rfft2(x) * 2, s=(12, 15))), numbers(3, 12, 15)),
    "matrices": (
        lambda x: (jnp.linalg.solve(x + 9 * jnp.eye(7), x[..., :2]), jnp.linalg.cholesky(x @ x.mT + jnp.eye(7))),
        numbers(2, 7, 7),
    ),
    "loops of groups": (  # one group, which takes all turns: interpreters run groups one after the other
        lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, nn.softmax(s[1]) + s[1].sum(0)), (0, x)),
        numbers(20, 37),
    ),
}  # fmt: skip


UNITS: dict[str, DeviceDialect] = {
    "tensor cores": CudaDialect(tensor_cores=True), "mfma": HipDialect("gfx90a"), "wmma": HipDialect("gfx1100"),
}  # fmt: skip


# a work-item reads the row to which it points
MOVES = """
static void load_matrix(uint *words, const __local void *row, int count) {
    for (int number = 0; number < count; ++number) words[number] = ((const __local uint *)row)[number];
}

static void async_copy(__local void *place, const __global void *source, int size, bool holds) {
    for (int word = 0; word < size; ++word)
        ((__local uint *)place)[word] = holds ? ((const __global uint *)source)[word] : 0;
}
"""


class Apart(OpenCLDialect):
    """Items that exchange nothing but by the memory of their group: no barriers stand for what a warp does at once."""

    def __init__(self, device: DeviceDialect) -> None:
        super().__init__()
        self.shuffles, self.device_dialect = True, device

    def shuffle(self, dtype: np.dtype, value: str, distance: str, warp: int) -> str:
        return value

    def fragments(self, dtype: np.dtype) -> Fragments | None:
        return self.device_dialect.fragments(dtype)

    def fragment_product(self, fragments: Fragments) -> str:
        return f"product_of_{len(fragments.left) + len(fragments.right)}"

    def load_matrix(self, target: Array, row: str, turned: bool) -> str:
        return f"load_matrix({target.name}, {row}, {target.shape[0]});"

    def async_copy(self, array: Array, place: str, source: str, size: int, condition: str | None) -> str:
        return f"async_copy({place}, {source}, {size * array.dtype.itemsize // 4}, {condition or 'true'});"

    def close_copies(self) -> tuple[str, ...]:
        return ()

    def await_copies(self, newer: int) -> tuple[str, ...]:
        return ()

    def helper_text(self, helpers: Iterable[str]) -> str:
        texts = [super().helper_text({**dict.fromkeys(helpers), **self.helpers}), MOVES]
        for count in (4, 6, 16):
            words = [f"word{n}" for n in range(count)]
            arguments = ", ".join(f"uint {word}" for word in words)
            head = f"static void product_of_{count}(float *sums, {arguments})"
            texts.append(f"{head} {{ *sums += {' ^ '.join(words)}; }}")
        return "\n".join(texts)


class ApartBackend(OpenCLBackend):
    """A device with a unit for matrices."""

    matrices: DeviceDialect

    def dialect(self) -> DeviceDialect:
        return Apart(self.matrices)


def attend_by_fragments(names: list[str]) -> None:
    """Attention and its gradient, by units of these names."""
    given = [numbers(1, 70, 2, 24).astype("float16") for _ in range(3)]

    def gradient(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return rlx.grad(lambda *x: nn.dot_product_attention(*x, is_causal=True).sum(), (0, 1, 2, 3))(q, k, v, bias)

    for name in names:
        device = ApartBackend()
        device.matrices = UNITS[name]
        arguments = [*given, numbers(1, 70, 70)]
        plan = lower_to_plan(rlx.make_program(gradient)(*arguments), context=Context.of(device))
        made = DeviceProgram(plan, device.dialect(), device.engine.limits).steps.values()
        assert sum(step.strategy.endswith(" by fragments") for each in made for step in each) == 4
        for storage in device.compile(plan).run([device.memory.put(a) for a in arguments]):
            device.memory.get(storage, (1,), np.dtype("float16"))
        print("ran", name, flush=True)


def leave_out_barriers(number: int | None = None) -> None:
    """Programs have no barriers of groups; with a number, each dialect's programs have all but one."""
    statement, printed = Printer.statement, Counter[Dialect]()

    def statement_without(printer: Printer, node: Statement) -> list[str]:
        if node != Barrier():
            return statement(printer, node)
        printed[printer.dialect] += 1
        return [";"] if number in (None, printed[printer.dialect] - 1) else statement(printer, node)

    Printer.statement = statement_without  # ty: ignore[invalid-assignment]


def build_in_turn() -> None:
    """Threads build programs one after the other: Oclgrind crashes where two build at once, which OpenCL allows."""
    turn, compiled = threading.Lock(), OpenCLEngine.compile

    def compile_in_turn(engine: OpenCLEngine, source: str) -> Any:
        with turn:
            return compiled(engine, source)

    OpenCLEngine.compile = compile_in_turn  # ty: ignore[invalid-assignment]


def main(without_barriers: bool) -> None:
    """Each program, once."""
    if any(device.platform.name == "Oclgrind" for device in devices()):
        build_in_turn()
    left_out = [int(a.removeprefix("--without-barrier=")) for a in sys.argv if a.startswith("--without-barrier=")]
    if without_barriers or left_out:
        leave_out_barriers(*left_out)
    if "--fragments" in sys.argv:
        attend_by_fragments([*UNITS][: 1 if left_out else None])
        return
    backend = backend_named("opencl")
    assert isinstance(backend, OpenCLBackend)
    limits = backend.engine.limits
    for name in PROGRAMS:
        if name == "loops of groups" and backend.engine.device.platform.name == "Portable Computing Language":
            continue  # PoCL 3.1 does not come out of the barrier of all groups, even where there is one
        pairs = computed(name, backend, limits)
        if not without_barriers:
            for found, expected in pairs:
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=name)
        print("ran", name, flush=True)


def computed(name: str, backend: OpenCLBackend, limits: Limits) -> list[tuple[np.ndarray, np.ndarray]]:
    """The results of a program on the device, and on the CPU. limits: the device's own, in place of which small ones
    are used, so that small arrays ask for every strategy."""
    function, *arguments = PROGRAMS[name]
    small = replace(limits, vector_points=1, group=64, large_group=128, tile=16, sorted_row=32, units=8, least_row=8)
    of_groups = replace(small, together=1, loop_work=0, costs=LaunchCosts(barrier=0.0))
    chosen = of_groups if name == "loops of groups" else small
    chosen = backend.engine.limits = replace(chosen, held=HELD.get(name, 0))
    with rlx.scoped(deterministic=name == "ordered sums"):
        plan = lower_to_plan(rlx.make_program(function)(*arguments), None, backend.lowering)
        steps = [s for found in DeviceProgram(plan, backend.dialect(), chosen).steps.values() for s in found]
        assert steps and any(s.together for s in steps) == (name == "loops of groups")
        assert any(s.strategy == "large groups" for s in steps) == (name == "rows of large groups")
        expected = rlx.tree.leaves(rlx.jit(function, device="cpu")(*arguments))
        found = rlx.tree.leaves(rlx.jit(function, device="opencl")(*arguments))
    wide = ([np.asarray(x).astype("float64") for x in side] for side in (found, expected))
    return [*zip(*wide, strict=True)]


if __name__ == "__main__":
    main("--without-barriers" in sys.argv)
