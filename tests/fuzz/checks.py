"""Ways to compute a program that have to agree, and how near."""

from __future__ import annotations

import dataclasses
import os
import random
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx
from rlx.errors import DtypeError, MemoryLimitError, RlxError, UnsupportedError

from .compare import Difference, compare, leaves, tolerances
from .interpret import Fact, Interpreter, Unsound, epsilon
from .program import Input, Program, all_steps, input_value, is_narrow, kind_of

__all__ = ["CHECKS", "Check", "Failure", "chosen_checks", "run_check", "scope_of"]

SAMPLES = 3  # runs with noise
DEVICE = os.environ.get("RLX_FUZZ_DEVICE", "")  # of compiled programs; what is compared is computed on the host
# XLA fuses products with sums, divides by multiplying, and adds constants first: last bits differ
ROUNDS_EACH = not DEVICE.startswith(("xla", "tpu"))
_JIT = ["import functools", f"jit = functools.partial(rlx.jit, device={DEVICE!r})"] if DEVICE else []


@dataclasses.dataclass(frozen=True)
class Check:
    """Two expressions that have to agree; the first is computed operation by operation.

    They read `program` and `inputs`, and what `setup` defines; what the second alone needs is in `compiled`.
    derivative: they differentiate, so that steps whose slope jumps are refused.
    direct: the outputs are the program's own, so that exact ones are compared to the last bit.
    values: what stands for {argnums}, {axes}, {donated}, {threads}, {share} in the texts.
    """

    name: str
    setup: tuple[str, ...]
    expected: str
    found: str
    compiled: tuple[str, ...] = ()
    derivative: bool = False
    direct: bool = True
    values: tuple[tuple[str, Any], ...] = ()

    def filled(self, text: str) -> str:
        """A text of the check with the values that were chosen for a program."""
        for name, value in self.values:
            text = text.replace(f"{{{name}}}", repr(value))
        return text.replace("rlx.jit(", "jit(") if _JIT else text

    def preparation(self, compiled: bool) -> list[str]:
        """What is run before an expression; compiled: before the second."""
        lines = (*self.setup, *self.compiled) if compiled else self.setup
        return [*_JIT, *(self.filled(line) for line in lines)]


ARRAYS = "arrays = [jnp.asarray(x) for x in inputs]"
LANES = (
    "def lane(k):",
    "    return [jnp.roll(x.ravel(), k).reshape(x.shape) for x in arrays]",
    "lanes = [lane(k) for k in range(3)]",
    "batched = [x if a is None else jnp.stack(rows, a) for x, a, *rows in zip(arrays, axes, *lanes)]",
    "def given(k):",
    "    return [x if a is None else y for x, a, y in zip(arrays, axes, lanes[k])]",
)
LOSS = (
    "def loss(*arguments):",
    "    ends = [jnp.real(y) for y in program(*arguments) if jnp.issubdtype(y.dtype, jnp.inexact)]",
    "    return sum(jnp.sum(y.astype('float64') * np.cos(np.arange(y.size)).reshape(y.shape)) for y in ends)",
)
STEP = (
    "directions = [np.cos(np.arange(x.size)).reshape(x.shape) if k in argnums else None for k, x in enumerate(arrays)]",
    "def along(t):",
    "    return loss(*[x if d is None else x + t * d for x, d in zip(arrays, directions)])",
    "def differences(h):",
    "    return (8 * (along(h) - along(-h)) - along(2 * h) + along(-2 * h)) / (12 * h)",
)
LOOPED = "[jnp.stack(rows) for rows in zip(*[{function}(*given(k)) for k in range(3)])]"


def _vmapped(function: str) -> str:
    return LOOPED.replace("{function}", function)


CHECKS = {
    check.name: check
    for check in (
        Check("jit", (), "program(*arrays)", "rlx.jit(program)(*inputs)"),
        Check("eager", (), "program(*arrays)", "program(*arrays)"),
        Check("threads", (), "program(*arrays)", "rlx.jit(program)(*inputs)", ("rlx.set_num_threads({threads})",)),
        Check(
            "again",
            LANES[:2],
            "program(*lane(1))",
            "compiled(*lane(1))",
            ("compiled = rlx.jit(program)", "compiled(*inputs)"),
        ),
        Check(
            "memory",
            (),
            "program(*arrays)",
            "rlx.jit(program, memory_limit=limit)(*inputs)",
            (
                "memory = rlx.jit(program).lower(*inputs).compile().memory_analysis()",
                "limit = int(memory.temp_size_in_bytes * {share})",
            ),
        ),
        Check(
            "donate",
            (),
            "program(*arrays)",
            "rlx.jit(program, donate_argnums={donated})(*copies)",
            ("copies = [jnp.array(np.array(x)) if hasattr(x, 'shape') else x for x in inputs]",),
        ),
        Check(
            "vmap", ("axes = {axes}", *LANES), _vmapped("program"), "rlx.jit(rlx.vmap(program, in_axes=axes))(*batched)"
        ),
        Check(
            "eager_vmap", ("axes = {axes}", *LANES), _vmapped("program"), "rlx.vmap(program, in_axes=axes)(*batched)"
        ),
        Check(
            "grad",
            ("argnums = {argnums}", *LOSS),
            "rlx.grad(loss, argnums)(*arrays)",
            "rlx.jit(rlx.grad(loss, argnums))(*inputs)",
            derivative=True,
            direct=False,
        ),
        Check(
            "memory_grad",
            ("argnums = {argnums}", *LOSS, "gradient = rlx.grad(loss, argnums)"),
            "gradient(*arrays)",
            "rlx.jit(gradient, memory_limit=limit)(*inputs)",
            (
                "memory = rlx.jit(gradient).lower(*inputs).compile().memory_analysis()",
                "limit = int(memory.temp_size_in_bytes * {share})",
            ),
            derivative=True,
            direct=False,
        ),
        Check(
            "vmap_grad",
            ("argnums, axes = {argnums}, {axes}", *LANES, *LOSS, "gradient = rlx.grad(loss, argnums)"),
            _vmapped("gradient"),
            "rlx.jit(rlx.vmap(gradient, in_axes=axes))(*batched)",
            derivative=True,
            direct=False,
        ),
        Check(
            "forward",
            ("argnums = {argnums}", *LOSS, "chosen = [arrays[k] for k in argnums]", *STEP[:1])
            + (
                "def inner(gradient):",
                "    return sum(jnp.sum(g.astype('float64') * d.astype('float64')) for g, d in zip(gradient, steps))",
                "def part(*some):",
                "    return loss(*[some[argnums.index(k)] if k in argnums else x for k, x in enumerate(arrays)])",
                "steps = [directions[k].astype(arrays[k].dtype) for k in argnums]",
            ),
            "inner(rlx.grad(part, tuple(range(len(steps))))(*chosen))",
            "rlx.jit(lambda *some: rlx.jvp(part, some, steps)[1])(*chosen)",
            derivative=True,
            direct=False,
        ),
        Check(
            "differences",
            ("argnums = {argnums}", *LOSS, *STEP),
            "differences(1e-3)",
            "sum(jnp.sum(g * directions[k]) for k, g in zip(argnums, rlx.grad(loss, argnums)(*arrays)))",
            derivative=True,
            direct=False,
        ),
    )
}


def chosen_checks(program: Program, source: random.Random) -> list[Check]:
    """Checks for a program: jit always, some others."""
    names = ["jit"] + [n for n in ("threads", "eager", "again") if source.random() < 0.4]
    names += [n for n in ("memory", "donate") if source.random() < 0.3]
    names += source.choice([[], ["vmap"], ["vmap"], ["eager_vmap"]])
    real = tuple(k for k, x in enumerate(program.inputs) if kind_of(x.dtype) == "f" and x.layout != "number")
    # cotangents soon leave the range of narrow floats
    odd = [k for k in real if program.inputs[k].domain == "special" or is_narrow(program.inputs[k].dtype)]
    argnums = tuple(k for k in real if k not in odd)
    if argnums:
        names += source.choice([["grad"], ["grad"], ["vmap_grad"], ["memory_grad"], ["forward"]])
        if all(program.inputs[k].dtype == "float64" for k in argnums):
            names.append("differences")
    axes = tuple(_axis(x, source) for x in program.inputs)
    if all(a is None for a in axes):
        names = [n for n in names if "vmap" not in n]
    values = {
        "threads": source.choice([1, 3, 4]),
        "share": source.choice([0.9, 0.6, 0.3]),
        "donated": tuple(k for k, x in enumerate(program.inputs) if x.layout != "number" and source.random() < 0.7),
        "axes": axes,
        "argnums": argnums,
    }
    return [dataclasses.replace(CHECKS[n], values=tuple(values.items())) for n in names]


def _axis(x: Input, source: random.Random) -> int | None:
    if x.layout == "number" or source.random() < 0.25:
        return None
    return source.choice([0, 0, len(x.shape), -1])


@dataclasses.dataclass(frozen=True)
class Failure:
    """What is wrong with a program.

    kind: "raises", "differs", "wrong type", "writes" (to an input), "crashes" or "hangs".
    signature: what two findings of one defect have in common, as far as can be told.
    """

    check: Check
    kind: str
    signature: str
    detail: str
    difference: Difference | None = None


def scope_of(program: Program, function: Any, names: dict[str, Any], inputs: Sequence[Any]) -> dict[str, Any]:
    """Names that a check's expressions read."""
    scope = {**names, "program": function, "inputs": list(inputs)}
    exec(ARRAYS, scope)
    return scope


def run_check(program: Program, check: Check, names: dict[str, Any], seed: int = 0) -> Failure | None:
    """A failure of a check, or None. Raises Unsound where nothing can be said."""
    if not ROUNDS_EACH and any(step.operation == "huge_on_off" for step in all_steps(program.steps)):
        raise Unsound("XLA adds the constants of (x + 2048) - 2048 first")
    inputs = [input_value(x, names) for x in program.inputs]
    before = [np.array(x) for x in inputs]
    threads = rlx.get_num_threads()
    facts: dict[int, Fact] = {}
    smooth = check.name == "differences"
    try:
        with np.errstate(all="ignore"):
            try:
                expected, spread = _expected(program, check, names, inputs, seed, facts, smooth)
            except Unsound:
                raise
            except Exception as error:
                return Failure(check, "raises", f"op by op: {_signature(error)}", _described(error))
            exact = [ROUNDS_EACH and check.direct and facts[n].exact for n in program.outputs]
            try:
                found = _found(program, check, names, inputs)
            except (MemoryLimitError, Unsound):
                return None
            except Exception as error:
                if (smooth and isinstance(error, RlxError)) or _is_refusal(error):
                    return None  # a derivative that rlx does not know, or what the device lacks
                return Failure(check, "raises", _signature(error), _described(error))
    finally:
        rlx.set_num_threads(threads)
    for number, (x, y) in enumerate(zip(before, inputs, strict=True)):
        if x.tobytes() != np.asarray(y).tobytes():
            return Failure(check, "writes", "an input is written", f"input {number} has changed")
    difference = compare(expected, found, spread, exact)
    if difference is None:
        return None
    return Failure(check, difference.kind, f"{check.name}: {difference.kind}", difference.text, difference)


def _is_refusal(error: Exception) -> bool:
    """Whether a device says that it lacks a dtype, an operation or an option, as its page does."""
    device = f"device {DEVICE.partition(':')[0]!r}"
    lacks = device in str(error) or "StableHLO" in str(error)
    return bool(DEVICE) and isinstance(error, (DtypeError, UnsupportedError)) and lacks


def _expected(
    program: Program,
    check: Check,
    names: dict[str, Any],
    inputs: Sequence[Any],
    seed: int,
    facts: dict[int, Fact],
    smooth: bool,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What a check expects, and how far it may be off, element by element."""

    seen: set[str] = set()

    def computed(noise: np.random.Generator | None) -> dict[str, Any]:
        mode = Interpreter(names, noise, check.derivative, smooth, backward=check.derivative)
        mode.seen = seen
        scope = scope_of(program, mode.program(program, facts), names, inputs)
        exec("\n".join(check.preparation(compiled=False)), scope)
        return scope

    with rlx.disable_jit():
        try:
            exact = computed(None)
            expected = leaves(eval(check.expected, exact))
            if smooth:
                return _differences(expected, exact, computed(np.random.default_rng(seed)))
            moved = []
            if not (ROUNDS_EACH and check.direct and all(facts[n].exact for n in program.outputs)):
                for sample in range(SAMPLES):
                    noise = np.random.default_rng((seed, sample))
                    moved.append(leaves(eval(check.expected, computed(noise))))
        except RlxError as error:
            # what cannot be computed step by step, neither need be otherwise
            raise Unsound(str(error)) from error
    least = 0.0
    if not check.direct:
        # cotangents are rounded within an operation, too: the slope of tanh near 1 has no digit right of its 1e-9, and
        # is added up over elements
        terms = sum(x.size for x in inputs if hasattr(x, "size"))
        dtypes = {*seen, *(x.dtype for x in program.inputs if kind_of(x.dtype) == "f")}
        least = 32 * max(map(epsilon, dtypes)) * max(terms, 1) ** 0.5
    return expected, tolerances(expected, moved, least)


def _differences(
    expected: list[np.ndarray], exact: dict[str, Any], noisy: dict[str, Any]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Finite differences, and their error: of the step's size, and of rounding."""
    wider = leaves(exact["differences"](2e-3))[0]
    rounding = abs(float(noisy["along"](0.0)) - float(exact["along"](0.0))) / 1e-3
    scale = 1 + float(abs(expected[0]))
    error = float(abs(wider - expected[0])) + 30 * rounding + 1e-7 * scale
    if not error < 1e-2 * scale:
        raise Unsound("finite differences say nothing")
    return expected, [np.asarray(error)]


def _found(program: Program, check: Check, names: dict[str, Any], inputs: Sequence[Any]) -> list[np.ndarray]:
    scope = scope_of(program, Interpreter(names).program(program), names, inputs)
    exec("\n".join(check.preparation(compiled=True)), scope)
    return leaves(eval(check.filled(check.found), scope))


def _signature(error: Exception) -> str:
    """The kind of an error and the place in rlx where it was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/rlx/" in f.filename]
    place = f"{frames[-1].filename.split('/rlx/')[-1]}:{frames[-1].lineno} {frames[-1].name}" if frames else "?"
    return f"{type(error).__name__} at {place}"


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:600]
