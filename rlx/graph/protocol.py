"""Passes: the protocol, the standard ones as objects, and the runner that checks and watches them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from rlx.errors import RlxError, VerificationError
from rlx.graph.specialize import fold_arrays, specialize
from rlx.ir.program import Program, dead_code
from rlx.ir.show import show_lines, show_program
from rlx.ir.verify import verify_program
from rlx.passes.cse import eliminate_common
from rlx.passes.pipeline import Context, Step, everywhere, take
from rlx.passes.simplify import simplify
from rlx.trace.lower import inline_calls

__all__ = [
    "AlgebraicSimplify",
    "CommonSubexpressions",
    "ConstantFolding",
    "DeadCodeElimination",
    "Inline",
    "Pass",
    "PassStep",
    "SpecializeParams",
    "run_passes",
]


@runtime_checkable
class Pass(Protocol):
    """A program in, a program of the same inputs and outputs out.

    A pass that changes the inputs declares it with an attribute `changes_signature = True`.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> def nothing(program):
    ...     return program
    >>> g = rlx.Graph.trace(jnp.sin, 1.0)
    >>> opt.run_passes(g, [nothing])(0.0).item()
    0.0
    """

    name: str

    def run(self, program: Program) -> Program:
        """The new program; the old one is not changed."""
        ...


class PassStep(NamedTuple):
    """One pass that ran: the program before and after it, and the seconds it took.

    >>> import rlx
    >>> from rlx import opt
    >>> history = []
    >>> g = opt.run_passes(rlx.Graph.trace(lambda x: x * 1.0, 1.0), [opt.AlgebraicSimplify()], watch=history.append)
    >>> history[0].name, history[0].changed
    ('algebraic_simplify', True)
    """

    name: str
    before: Program
    after: Program
    seconds: float

    @property
    def changed(self) -> bool:
        """Whether the program is another one."""
        return self.before.fingerprint != self.after.fingerprint

    @property
    def diff(self) -> str:
        """The changes as a unified diff of the equations."""
        lines = difflib.unified_diff(
            show_lines(self.before), show_lines(self.after), f"before {self.name}", f"after {self.name}",
            lineterm="", n=2,
        )  # fmt: skip
        return "\n".join(lines)

    def __str__(self) -> str:
        counts = f"{len(self.before.equations)} -> {len(self.after.equations)} equations"
        return f"{self.name}: {counts}, {self.seconds * 1e3:.3f} ms"


def run_passes(
    program: Program,
    passes: Iterable[Pass | Callable[[Program], Program]],
    *,
    verify: bool = True,
    verbose: bool = False,
    dump: str | Path | None = None,
    watch: Callable[[PassStep], Any] | None = None,
) -> Program:
    """Run passes in order.

    Args:
      passes: objects with `name` and `run`, or functions from program to program.
      verify: check the program between every two passes, and that its signature stays.
      verbose: print a line and the diff for each pass.
      dump: a folder that receives the program after each pass.
      watch: is called with each PassStep, `history.append` for instance.

    Raises: VerificationError naming the pass after which the program is wrong.
    """
    if verify:
        verify_program(program, "hir")
    for number, given in enumerate(passes):
        changes = getattr(given, "changes_signature", False)
        stage = take(_step(given), program, Context(), partial(_verify, changes) if verify else None)
        step = PassStep(stage.name, program, stage.program, stage.seconds)
        if verbose:
            print(step, step.diff, sep="\n")
        if dump is not None:
            _write(Path(dump), number, step)
        if watch is not None:
            watch(step)
        program = step.after
    return program


def _step(given: Any) -> Step:
    """A user's pass as a step of the compiler."""
    if isinstance(given, Pass):
        return Step(given.name, "program", lambda program, _: given.run(program), "a user's pass")
    if callable(given):
        name = getattr(given, "__name__", type(given).__name__)
        return Step(name, "program", lambda program, _: given(program), "a user's pass")
    raise RlxError(
        f"run_passes got a {type(given).__name__}, which is not a pass.",
        "A pass has `name` and `run(program)`, or is a function from program to program.",
    )


def _verify(changes_signature: bool, step: Step, before: Program, after: Program) -> None:
    if not isinstance(after, Program):
        raise VerificationError(f"The pass {step.name} returned a {type(after).__name__}.", line="")
    try:
        verify_program(after, "hir")
    except VerificationError as error:
        raise VerificationError(f"After the pass {step.name}: {error.what}", line="") from None
    if changes_signature:
        return
    for what in ("input_types", "output_types"):
        old, new = ([(t.shape, t.dtype) for t in getattr(p, what)] for p in (before, after))
        if old != new:
            raise VerificationError(f"The pass {step.name} changed the {what} from {old} to {new}.", line="")


def _write(folder: Path, number: int, step: PassStep) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:02}-{step.name}.py").write_text(
        f"# {step}\n{show_program(step.after)}", encoding="utf-8"
    )


# ------------------------------------------------------------------ the standard passes
class ConstantFolding:
    """Evaluates equations of literals and constants only; results over `limit` bytes are not folded.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: x * jnp.exp(0.0), jnp.ones(2))
    >>> [e.primitive.name for e in opt.run_passes(g, [opt.ConstantFolding()]).program.equations]
    ['multiply']
    """

    name = "constant_folding"

    def __init__(self, limit: int = 1 << 20) -> None:
        self.limit = limit

    def run(self, program: Program) -> Program:
        """The folded program."""
        return everywhere(lambda p: fold_arrays(p, self.limit))(program)


class AlgebraicSimplify:
    """Replaces equations by cheaper ones of exactly the same value; NaN, inf and -0.0 included.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: x * 1.0, jnp.ones(2))
    >>> len(opt.run_passes(g, [opt.AlgebraicSimplify()]).program.equations)
    0
    """

    name = "algebraic_simplify"

    def run(self, program: Program) -> Program:
        """The simplified program."""
        return everywhere(simplify)(program)


class CommonSubexpressions:
    """Computes equal equations once.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: (jnp.sin(x), jnp.sin(x)), jnp.ones(2))
    >>> len(opt.run_passes(g, [opt.CommonSubexpressions()]).program.equations)
    1
    """

    name = "cse"

    def run(self, program: Program) -> Program:
        """The program without duplicates."""
        return everywhere(eliminate_common)(program)


class DeadCodeElimination:
    """Removes equations that no output and no effect needs.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda x: (jnp.sin(x), x + 1.0)[1], jnp.ones(2))
    >>> [e.primitive.name for e in opt.run_passes(g, [opt.DeadCodeElimination()]).program.equations]
    ['add']
    """

    name = "dce"

    def run(self, program: Program) -> Program:
        """The program without dead equations."""
        return everywhere(dead_code)(program)


class Inline:
    """Puts the equations of calls in their place.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(rlx.jit(lambda x: jnp.sin(x)), jnp.ones(2))
    >>> [e.primitive.name for e in opt.run_passes(g, [opt.Inline()]).program.equations]
    ['sin']
    """

    name = "inline"

    def run(self, program: Program) -> Program:
        """The program without calls."""
        return inline_calls(program)


class SpecializeParams:
    """Turns inputs into constants, by position.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx import opt
    >>> g = rlx.Graph.trace(lambda w, x: w * x, jnp.ones(2), jnp.ones(2))
    >>> fixed = opt.SpecializeParams({0: jnp.array([3.0, 4.0])})
    >>> len(opt.run_passes(g.program, [fixed]).inputs)
    1
    """

    name = "specialize_params"
    changes_signature = True

    def __init__(self, values: Mapping[int, Any] | Sequence[tuple[int, Any]]) -> None:
        self.values = dict(values)

    def run(self, program: Program) -> Program:
        """The program with fewer inputs."""
        return specialize(program, self.values)
