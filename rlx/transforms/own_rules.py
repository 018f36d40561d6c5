"""custom_fn: a function with custom derivatives, one for each mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.ops.linear_rule import pushed_by
from rlx.transforms.custom import custom_jvp, custom_vjp

__all__ = ["custom_fn"]


def custom_fn(
    function: Callable[..., Any],
    vjp: Callable[..., Sequence[Any]] | None = None,
    jvp: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """`function` of arrays with one array as result, and custom derivatives.

    Args:
      vjp: vjp(*primals, output, d_output) -> a gradient for each primal.
      jvp: jvp(*primals, *tangents) -> the tangent of the output. With it alone, reverse mode
        transposes it; with `vjp` alone, forward mode is refused by name; with both, each mode has its own.

    >>> import rlx
    >>> from rlx.transforms.own_rules import custom_fn
    >>> clipped = custom_fn(lambda x: x * x, vjp=lambda x, out, d: (100.0 * d,))
    >>> float(rlx.grad(clipped)(3.0))
    100.0
    """
    if vjp is not None and jvp is not None:
        return _with_both(function, vjp, jvp)
    if vjp is not None:
        reverse_body = vjp
        backward = custom_vjp(function)

        def ahead(*primals: Any) -> Any:
            output = function(*primals)
            return output, (primals, output)

        backward.defvjp(ahead, lambda kept, d: tuple(reverse_body(*kept[0], kept[1], d)))
        return backward
    if jvp is not None:
        forward_body = jvp
        pushed = custom_jvp(function)
        pushed.defjvp(lambda primals, tangents: (function(*primals), forward_body(*primals, *tangents)))
        return pushed
    return function


def _with_both(
    function: Callable[..., Any], vjp: Callable[..., Sequence[Any]], jvp: Callable[..., Any]
) -> Callable[..., Any]:
    ruled = custom_jvp(function)

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        output = ruled(*primals)
        return output, pushed_by(primals, output, tangents, vjp, jvp)

    ruled.defjvp(rule)
    return ruled
