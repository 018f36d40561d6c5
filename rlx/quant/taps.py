"""Named values of a function: returned for calibration, or rounded with the calibrated scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from rlx.errors import OptionError
from rlx.ir.program import Program
from rlx.quant.records import CalibrationEntry, quantize_dequantize
from rlx.trace.flat import as_array
from rlx.trace.interpret import Environment
from rlx.trace.tracing import close_over, trace_program
from rlx.trees import tree

__all__ = ["insert_q_dq", "taps_of"]

_NAMED, _CALL = "checkpoint_name", "call"
Visit = Callable[[str, Any], Any]


def taps_of(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """A function of the same arguments that returns the values which the function names, by name.

    A value is named by rlx.ad_checkpoint.checkpoint_name(value, name). Raises OptionError where none is, or two have
    one name.

    >>> import numpy as np
    >>> from rlx import quant
    >>> from rlx.ad_checkpoint import checkpoint_name
    >>> quant.taps_of(lambda x: checkpoint_name(x + 1, "more") * 2)(np.array([1.0]))
    {'more': Array([2.], dtype=float64)}
    """

    @wraps(function)
    def tapped(*args: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def keep(name: str, value: Any) -> Any:
            if name in found:
                raise OptionError(f"Two values are called {name!r}.", "Give each a different name.")
            found[name] = value
            return value

        _run(function, args, keep)
        if not found:
            raise OptionError("The function names no values.", "Write checkpoint_name(value, name) where it makes one.")
        return found

    return tapped


def insert_q_dq(function: Any, record: Mapping[Any, CalibrationEntry]) -> Any:
    """A function or graph whose chosen values are rounded to int8 and back wherever they are read, results included.

    Args:
      function: of arrays; it names values with rlx.ad_checkpoint.checkpoint_name, also in jitted functions that it
        calls. Or an rlx.Graph.
      record: the calibration's results by name, or for a graph by node; other values are not changed.

    The new function can be compiled. Raises OptionError, when it is called, for names in the record that no value has.

    >>> import numpy as np
    >>> from rlx import quant
    >>> from rlx.ad_checkpoint import checkpoint_name
    >>> f = lambda x: checkpoint_name(x, "x") * 10
    >>> quant.insert_q_dq(f, {"x": quant.CalibrationEntry.per_tensor(0.5)})(np.array([0.7], np.float32))
    Array([5.], dtype=float32)
    """

    if hasattr(function, "with_program"):
        return _rounded_graph(function, record)

    @wraps(function)
    def rounded(*args: Any) -> Any:
        met: set[str] = set()

        def round_it(name: str, value: Any) -> Any:
            met.add(name)
            return quantize_dequantize(value, record[name]) if name in record else value

        found = _run(function, args, round_it)
        missing = sorted(set(record) - met)
        if missing:
            raise OptionError(
                f"The function has no values called {', '.join(missing)}.",
                f"It names: {', '.join(sorted(met)) or 'none'}.",
            )
        return found

    return rounded


def _rounded_graph(graph: Any, record: Mapping[Any, CalibrationEntry]) -> Any:
    """The graph with nodes rounded where they are read."""
    program = graph.program
    chosen = {node.atom: entry for node, entry in record.items()}
    known = {*program.inputs, *(v for v, _ in program.constants), *(v for e in program.equations for v in e.outputs)}
    if not known.issuperset(chosen):
        raise OptionError(
            "The record has nodes that no output of the graph needs.", "Give nodes of this graph that it computes with."
        )

    def flat(*tracers: Any) -> list[Any]:
        environment = Environment(program, tracers)

        def keep(atoms: Sequence[Any], values: Sequence[Any]) -> None:
            pairs = zip(atoms, values, strict=True)
            environment.update((a, quantize_dequantize(v, chosen[a]) if a in chosen else v) for a, v in pairs)

        keep([v for v, _ in program.constants], [value for _, value in program.constants])
        keep(program.inputs, tracers)
        for e in program.equations:
            found: Any = e.primitive.bind(*map(environment.read, e.inputs), **e.params)
            keep(e.outputs, found if e.primitive.multiple else [found])
        return [environment.read(atom) for atom in program.outputs]

    rounded, captured = trace_program(flat, [v.type for v in program.inputs], None, program.name)
    return graph.with_program(close_over(rounded, captured))


def _run(function: Callable[..., Any], args: Sequence[Any], visit: Visit) -> Any:
    """The function's result, with each named value replaced by `visit` of it."""
    leaves, structure = tree.flatten(args)
    values = [as_array(leaf) for leaf in leaves]
    given: Any = None

    def flat(*tracers: Any) -> list[Any]:
        nonlocal given
        found, given = tree.flatten(function(*tree.unflatten(structure, tracers)))
        return [as_array(leaf) for leaf in found]

    program, captured = trace_program(flat, [v.type for v in values], None, getattr(function, "__name__", "program"))
    return tree.unflatten(given, _walk(program, [*captured, *values], visit))


def _walk(program: Program, args: Sequence[Any], visit: Visit) -> list[Any]:
    environment = Environment(program, args)
    for e in program.equations:
        inputs = [environment.read(atom) for atom in e.inputs]
        if e.primitive.name == _NAMED:
            found: Any = visit(e.params["name"], inputs[0])
        elif e.primitive.name == _CALL:
            found = _walk(e.params["program"], inputs, visit)
        else:
            found = e.primitive.bind(*inputs, **e.params)
        outputs = found if e.primitive.multiple else [found]
        environment.update(zip(e.outputs, outputs, strict=True))
    return [environment.read(atom) for atom in program.outputs]
