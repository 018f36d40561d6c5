"""If, Loop and Scan: run by Python if the condition is known, else by rlx's control flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.errors import ShapeError, UnsupportedError
from rlx.onnx.nodes import ArraySequence, Node, operator

__all__: list[str] = []


def _is_known(value: Any) -> bool:
    return not isinstance(value, rlx.core.Tracer)


def _arrays(values: Sequence[Any]) -> tuple[Any, ...]:
    if any(value is None or isinstance(value, ArraySequence) for value in values):
        raise UnsupportedError(
            "A loop or branch that depends on traced values carries a sequence or an optional.",
            "Call the model without jit, or make the condition and the number of steps constants of the model.",
        )
    return tuple(map(jnp.asarray, values))


@operator("If")
def _if(node: Node, condition: Any) -> Any:
    if _is_known(condition):
        return tuple(node.run(node["then_branch" if bool(np.asarray(condition).reshape(())) else "else_branch"], ()))
    branches = [lambda g=node[name]: _arrays(node.run(g, ())) for name in ("then_branch", "else_branch")]
    try:
        return lax.cond(jnp.reshape(condition, ()), *branches)
    except ShapeError as error:
        error.add_note(
            f"The condition of the node {node.name!r} (If) is traced, so both branches are traced: one does not fit"
            " these shapes. Pass the input that decides as a constant: a value that the jitted function closes over."
        )
        raise


@operator("Loop")
def _loop(node: Node, most: Any, condition: Any = None, *state: Any) -> Any:
    body, count = node["body"], len(state)

    def turn(i: Any, going: Any, values: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        going, *found = node.run(body, (i, going, *values))
        return going, found[:count], found[count:]

    limit = None if most is None else most
    lists = any(isinstance(x, ArraySequence) for x in state)
    if _is_known(limit) and _is_known(condition) and (limit is None or lists or all(map(_is_known, state))):
        return _python_loop(turn, limit, condition, state, len(body.output) - 1 - count)
    if len(body.output) - 1 > count:
        if not _is_known(limit) or limit is None or _may_stop(body):
            raise node.unsupported("stacks the results of a number of steps that is not known during tracing")

        def step(values: Any, i: Any) -> Any:
            _, found, seen = turn(i, jnp.asarray(True), values)
            return _arrays(found), _arrays(seen)

        last, seen = lax.scan(step, _arrays(state), jnp.arange(int(np.asarray(limit).reshape(())), dtype=jnp.int64))
        return *last, *seen

    def goes(carry: Any) -> Any:
        i, going, _ = carry
        return going if limit is None else jnp.logical_and(going, i < jnp.reshape(limit, ()))

    def again(carry: Any) -> Any:
        i, going, values = carry
        going, found, _ = turn(i, going, values)
        return i + 1, jnp.asarray(going).reshape(()), _arrays(found)

    start = jnp.asarray(True) if condition is None else jnp.asarray(condition).reshape(())
    return lax.while_loop(goes, again, (jnp.asarray(0, jnp.int64), start, _arrays(state)))[2]


def _may_stop(body: Any) -> bool:
    """Whether a loop's body computes its condition, and does not just pass it on."""
    given, name = body.input[1].name, body.output[0].name
    makers = {output: node for node in body.node for output in node.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    return name != given


def _python_loop(turn: Any, limit: Any, condition: Any, state: Sequence[Any], stacked: int) -> tuple[Any, ...]:
    going = True if condition is None else bool(np.asarray(condition).reshape(()))
    values, seen, i = list(state), [[] for _ in range(stacked)], 0
    while going and (limit is None or i < int(np.asarray(limit).reshape(()))):
        flag, values, found = turn(np.asarray(i, np.int64), np.asarray(True), values)
        for rows, row in zip(seen, found, strict=True):
            rows.append(row)
        going = bool(np.asarray(flag).reshape(()))
        i += 1
    return *values, *(jnp.stack(list(map(jnp.asarray, rows))) if rows else jnp.zeros((0,)) for rows in seen)


@operator("Scan")
def _scan(node: Node, *inputs: Any) -> Any:
    body, count = node["body"], node["num_scan_inputs"]
    if node.version < 9:  # a leading batch axis, and lengths
        if inputs[0] is not None:
            raise node.unsupported("has sequence lengths")
        inputs = inputs[1:]
    states = len(inputs) - count
    first = 1 if node.version < 9 else 0
    ways = node.get("scan_input_directions", node.get("directions")) or [0] * count
    axes = node.get("scan_input_axes") or [0] * count
    outs = len(body.output) - states
    out_ways, out_axes = node.get("scan_output_directions") or [0] * outs, node.get("scan_output_axes") or [0] * outs

    def run(*values: Any) -> Any:
        xs = [jnp.moveaxis(jnp.asarray(x), a, 0) for x, a in zip(values[states:], axes, strict=True)]
        xs = [jnp.flip(x, 0) if w else x for x, w in zip(xs, ways, strict=True)]

        def step(carry: Any, now: Any) -> Any:
            found = node.run(body, (*carry, *now))
            return _arrays(found[:states]), _arrays(found[states:])

        last, seen = lax.scan(step, _arrays(values[:states]), tuple(xs))
        seen = [jnp.flip(x, 0) if w else x for x, w in zip(seen, out_ways, strict=True)]
        return *last, *(jnp.moveaxis(x, 0, a % x.ndim) for x, a in zip(seen, out_axes, strict=True))

    return rlx.vmap(run)(*inputs) if first else run(*inputs)
