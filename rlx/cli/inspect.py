"""rlx inspect: the compiled form of a function."""

from __future__ import annotations

import argparse
from typing import Any

import rlx
from rlx.cli.mistakes import FINE, Mistake, told
from rlx.cli.output import as_json, show_source
from rlx.cli.target import function_of, load, require_arguments, target_of, there
from rlx.cli.type_text import arguments_of
from rlx.errors import did_you_mean

__all__ = ["add_options", "inspect"]

KERNEL_FORMS = {"loops": "python", "llvm": "llvm", "assembly": "nasm", "plan": "python"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx inspect`."""
    parser.add_argument("target", metavar="FILE:FUNCTION", help="a Python file or a module, and a function in it")
    parser.add_argument("--args", action="append", default=[], metavar="TYPES", help='such as "f32[64,32] i32[]"')
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--stage", metavar="NAME", help="the result of one step; an unknown name lists the steps")
    one.add_argument("--diff", metavar="STAGE", help="the changes made by a step")
    one.add_argument("--kernels", metavar="FORM", help=f"the compiled code as {', '.join(KERNEL_FORMS)}")
    parser.add_argument("--json", action="store_true", help="print JSON")


def inspect(options: argparse.Namespace) -> int:
    """Compile a function for types, and print the selected form."""
    if options.kernels is not None and options.kernels not in KERNEL_FORMS:
        near = did_you_mean(options.kernels, KERNEL_FORMS)
        raise Mistake(f"Kernels have no form {options.kernels}.", near or f"There are: {', '.join(KERNEL_FORMS)}.")
    target = target_of(options.target)
    arguments = [a for text in options.args for a in arguments_of(text)]
    with there(target, options.json):
        function = function_of(load(target), target)
        require_arguments(function, arguments)
        with told(options.target):
            found = rlx.inspect(function)(*arguments)
            shown, language = _chosen(found, options)
    if options.json:
        print(as_json(shown))
    else:
        show_source(shown["text"], language) if language else print(shown["text"])
    return FINE


def _chosen(found: Any, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The text to show, and its language."""
    if options.stage is not None:
        stage = _stage(found, options.stage)
        head = {"stage": stage.name, "seconds": stage.seconds}
        return {**head, "text": str(stage)}, "python"
    if options.diff is not None:
        names = [stage.name for stage in found.stages]
        at = names.index(_stage(found, options.diff).name)
        if at == 0:
            raise Mistake(f"{names[0]} is the first stage: nothing comes before it.", f"The next is {names[1]}.")
        text = str(found.diff(names[at - 1], names[at]))
        return {"before": names[at - 1], "after": names[at], "text": text or "nothing changed"}, "diff"
    if options.kernels is not None:
        text = str(getattr(found.kernels, options.kernels)) or "nothing is compiled"
        return {"kernels": options.kernels, "text": text}, KERNEL_FORMS[options.kernels]
    return (_everything(found) if options.json else {"text": repr(found)}), ""


def _stage(found: Any, name: str) -> Any:
    """A stage by its name. Raises Mistake if there is none."""
    stages = {stage.name: stage for stage in found.stages}
    if name not in stages:
        raise Mistake(f"There is no stage {name}.", did_you_mean(name, stages) or f"There are: {', '.join(stages)}.")
    return stages[name]


def _everything(found: Any) -> dict[str, Any]:
    """An inspection as data."""
    program, counts, work, memory = found.hir.program, found.statistics, found.work, found.memory
    return {
        "name": found.name,
        "inputs": list(map(repr, program.input_types)),
        "outputs": list(map(repr, program.output_types)),
        "stages": [{"name": s.name, "seconds": s.seconds} for s in found.stages],
        "equations": counts.equations,
        "primitives": counts.primitives,
        "rules": counts.rules,
        "kernels": counts.kernels,
        "work": work_fields(work),
        "memory": {
            name: getattr(memory, name) for name in ("arguments", "outputs", "constants", "arena", "peak")
        },
        "plan": str(found.lir).splitlines(),
        "fusion": str(found.fusion).splitlines(),
        "dispatch": [d._asdict() for d in found.dispatch],
    }  # fmt: skip


def work_fields(work: Any) -> dict[str, Any]:
    """The kernels' operations and bytes, as data."""
    return {
        "flops": work.flops,
        "transcendentals": work.transcendentals,
        "bytes_read": work.reads,
        "bytes_written": work.writes,
        "exact": work.exact,
    }
