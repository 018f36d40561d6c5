"""A fixed set of random programs, and the machinery that makes, prints, checks and shrinks them."""

from __future__ import annotations

import contextlib
import io
import random
import types
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy

from .checks import CHECKS, chosen_checks, run_check
from .compare import compare, tolerances
from .generate import generate, started
from .interpret import Fact, Interpreter, Unsound, namespace
from .program import Body, Input, Program, Step, all_steps, input_value, live, source_lines
from .report import outcome_apart, source_of
from .runner import Run, Worker, first_seed
from .shrink import shrink
from .table import OPERATIONS, NoDraw, templates
from .worker import examine, shrunk

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = namespace()
SEEDS = [range(start, start + 5) for start in range(0, 60, 5)]


@pytest.mark.selected(1)  # make fuzz goes on for longer
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_programs_agree(seeds: range) -> None:
    """Sixty programs, each in several ways."""
    for seed in seeds:
        found = examine(seed, NAMES)
        assert found is None, f"python -m tests.fuzz --only {seed}\n{source_of(*found)}"


def test_every_operation_is_drawn() -> None:
    """The table has no line that never comes to anything."""
    missing = {name for name, line in OPERATIONS.items() if line.weight}
    with rlx.disable_jit(), np.errstate(all="ignore"):
        for seed in range(80):
            generator = started(seed, NAMES)[0]
            generator.grow(8)
            for name in sorted(missing):
                try:
                    generator.push(name, OPERATIONS[name].draw(generator))
                    missing.discard(name)
                except NoDraw:
                    continue
            if not missing:
                return
    pytest.fail(f"never drawn: {sorted(missing)}")


def test_a_seed_is_a_program() -> None:
    """The same seed gives the same program, and programs have from few to many steps."""
    assert all(generate(seed, NAMES) == generate(seed, NAMES) for seed in range(3))
    lengths = [len(generate(seed, NAMES).steps) for seed in range(30)]
    assert min(lengths) < 5 and max(lengths) > 20


@pytest.mark.parametrize("seed", range(12))
def test_the_source_is_the_program(seed: int) -> None:
    """What is printed computes what is checked."""
    program = generate(seed, NAMES)
    scope = dict(NAMES)
    exec("\n".join(source_lines(program, templates())), scope)
    inputs = [rlx.numpy.asarray(input_value(x, NAMES)) for x in program.inputs]
    with rlx.disable_jit(), np.errstate(all="ignore"):
        expected = Interpreter(NAMES).program(program)(*inputs)
        found = scope["program"](*map(rlx.numpy.asarray, scope["inputs"]))
    for x, y in zip(expected, found, strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def _broken(name: str, wrong: Any) -> dict[str, Any]:
    """Names with a function of rlx.numpy that is wrong where it is traced."""
    right = getattr(rlx.numpy, name)

    def function(x: Any, *rest: Any, **options: Any) -> Any:
        value = right(x, *rest, **options)
        return value if isinstance(x, rlx.Array) and hasattr(x, "numpy") else wrong(value)

    module = types.SimpleNamespace(**{n: getattr(rlx.numpy, n) for n in dir(rlx.numpy) if not n.startswith("__")})
    setattr(module, name, function)
    return namespace(jnp=module)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("flip", lambda value: value[::-1]),
        ("tanh", lambda value: value * 1.01),
        ("sort", lambda value: value.astype("float32")),
        ("broadcast_to", lambda value: [].pop()),
    ],
)
@pytest.mark.selected(1)
def test_a_broken_operation_is_found_and_shrunk(name: str, wrong: Any) -> None:
    """To at most five steps, with the operation among them."""
    names = _broken(name, wrong)
    spelled = f"jnp.{name}("
    for seed in range(200):
        program = generate(seed, NAMES)
        if not any(spelled in templates()[s.operation] for s in program.steps):
            continue
        found = examine(seed, names)
        if found is None:
            continue
        small, failure = shrunk(found, names, 30)
        assert any(spelled in templates()[s.operation] for s in all_steps(small.steps))
        assert len(small.steps) <= 5 and len(list(all_steps(small.steps))) <= 5, source_of(small, failure)
        assert run_check(small, failure.check, NAMES) is None
        return
    pytest.fail(f"no program that uses {name} fails")


def _steps(*operations: tuple[str, tuple[int, ...], int]) -> tuple[Step, ...]:
    return tuple(Step(name, operands, (result,)) for name, operands, result in operations)


def test_shrinking_keeps_what_fails() -> None:
    """A long chain with one step that counts becomes that step alone, also within a body."""
    x = Input(0, (4, 6), "float64", 3, "reversed", "ordinary")
    body = Body((10,), _steps(("sin", (10,), 11), ("tanh", (11,), 12), ("cos", (12,), 13)), (13,))
    steps = (
        *_steps(("sin", (0,), 1), ("exp", (1,), 2), ("add", (1, 2), 3)),
        Step("call", (3,), (4,), bodies=(body,)),
        *_steps(("cos", (4,), 5), ("multiply", (5, 3), 6)),
    )
    program = Program((x,), steps, (6, 2))

    def fails(candidate: Program, check: Any) -> bool:
        with rlx.disable_jit():
            try:
                arrays = [rlx.numpy.asarray(input_value(x, NAMES)) for x in candidate.inputs]
                Interpreter(NAMES).program(candidate)(*arrays)
            except Exception:
                return False
        return any(s.operation == "tanh" for s in all_steps(candidate.steps))

    small, check = shrink(program, CHECKS["vmap"], fails, NAMES, 20)
    assert [s.operation for s in all_steps(small.steps)] == ["call", "tanh"]
    assert check.name == "jit" and len(small.inputs) == 1
    assert small.inputs[0].layout == "plain" and np.prod(small.inputs[0].shape) == 1


def test_steps_that_nothing_reads_go() -> None:
    """Inputs with them."""
    inputs = (Input(0, (2,), "float32"), Input(1, (2,), "float32"))
    program = Program(inputs, _steps(("sin", (0,), 2), ("cos", (1,), 3), ("tanh", (2,), 4)), (4,))
    assert live(program) == Program(inputs[:1], (program.steps[0], program.steps[2]), (4,))


def test_exactness_is_followed() -> None:
    """What may round is not compared to the last bit, and jumps do not depend on it."""
    x = Input(0, (3,), "float32")

    def facts(*steps: tuple[str, tuple[int, ...], int]) -> dict[int, Fact]:
        found: dict[int, Fact] = {}
        program = Program((x,), _steps(*steps), (steps[-1][2],))
        with rlx.disable_jit():
            Interpreter(NAMES).program(program, found)(rlx.numpy.asarray(input_value(x, NAMES)))
        return found

    assert facts(("add", (0, 0), 1), ("maximum", (1, 0), 2))[2].exact
    assert facts(("multiply", (0, 0), 1))[1].exact
    assert not facts(("multiply", (0, 0), 1), ("negative", (1,), 2), ("add", (2, 0), 3))[3].exact
    assert not facts(("sin", (0,), 1), ("negative", (1,), 2))[2].exact
    with pytest.raises(Unsound):
        facts(("sin", (0,), 1), ("floor", (1,), 2))


def test_tolerances_follow_from_what_rounding_does() -> None:
    """A sum in another order passes where terms are large, and a lost term does not."""
    x = Input(0, (200,), "float32")
    program = Program((x,), (Step("sum", (0,), (1,), (("axis", None), ("keepdims", False))),), (1,))
    value = input_value(x, NAMES) * np.float32(1000)

    def computed(noise: Any) -> list[np.ndarray]:
        return [np.asarray(y) for y in Interpreter(NAMES, noise).program(program)(rlx.numpy.asarray(value))]

    with rlx.disable_jit():
        expected = computed(None)
        allowed = tolerances(expected, [computed(np.random.default_rng(k)) for k in range(3)])
    backwards = np.float32(0)
    for term in value[::-1]:
        backwards += term
    assert compare(expected, [np.asarray(backwards)], allowed, [False]) is None
    assert compare(expected, [np.asarray(backwards - value[7])], allowed, [False]) is not None
    assert compare(expected, [np.asarray(backwards)], allowed, [True]) is not None


def test_exact_means_the_last_bit() -> None:
    """Zeros have signs, NaN equals itself, dtypes and shapes count."""
    zero, nan = np.zeros(2, "float32"), np.full(2, np.nan, "float32")
    room = [np.zeros(())]
    assert compare([zero], [zero], room, [True]) is None
    assert compare([nan], [nan], room, [True]) is None
    assert compare([zero], [-zero], room, [True]) is not None
    assert compare([zero], [-zero], room, [False]) is None
    assert compare([zero], [nan], [np.full(2, np.inf)], [False]) is None
    assert compare([zero], [zero.astype("float64")], room, [True]) is not None
    assert compare([zero], [zero[:1]], room, [True]) is not None


def test_processes_that_die_are_findings() -> None:
    """A crash, a hang and an error are told apart."""
    assert outcome_apart("pass") == "passes"
    assert outcome_apart("raise ValueError") == "raises"
    assert outcome_apart("import os; os.abort()") == "crashes"
    assert outcome_apart("while True: pass", 1.0) == "hangs"
    request = {"seed": 1, "known": [], "shrink": True, "seconds": 1}
    worker = Worker()
    worker.process.kill()
    assert worker.ask(request, 30) == {"died": "crashes"}
    worker = Worker()
    assert worker.ask(request, 0.01) == {"died": "hangs"}


@pytest.mark.thorough
def test_a_run_tells_how_many_programs_failed() -> None:
    """New seeds for a text, in processes of their own."""
    assert first_seed("a") != first_seed("b")
    run = Run("text", 3.0, processes=1)
    with contextlib.redirect_stdout(io.StringIO()):
        run.go()
    assert run.programs >= 1


def test_checks_are_chosen_by_the_seed() -> None:
    """Every check is chosen for some programs."""
    chosen = [c.name for seed in range(60) for c in chosen_checks(generate(seed, NAMES), random.Random(seed))]
    assert set(chosen) == set(CHECKS)
