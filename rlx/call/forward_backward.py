"""The two passes of reverse mode as separate functions, each compiled once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from rlx.call.jit import jit
from rlx.errors import TreeMismatchError
from rlx.transforms.reverse import vjp, wanted_arguments

__all__ = ["fwd_and_bwd"]


def fwd_and_bwd(
    fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable[..., tuple[Any, ...]], Callable[[Any, Any], Any]]:
    """The forward and the backward pass of `fun`, for programs that call them at different places.

    `jit` of the function that `vjp` returns would compile anew for each; the second function here compiles once.

    Args:
      fun: a function of arrays, or trees of them.
      argnums: which positional arguments to differentiate, an int or several.
      has_aux: `fun` returns (result, auxiliary).
      jitted: compile both.

    Returns: (forward, backward). forward(*args) -> (result, residuals), and the auxiliary data with has_aux;
    residuals are a tree of arrays. backward(residuals, cotangent) -> the cotangent of the chosen argument, or a
    tuple if there are several argnums.

    Raises (when called): TreeMismatchError for a missing argument, the errors of vjp.

    >>> import rlx
    >>> forward, backward = rlx.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
    >>> y, residuals = forward(2.0, 5.0)
    >>> float(y), [float(g) for g in backward(residuals, 1.0)]
    (10.0, [5.0, 2.0])
    """
    one = not isinstance(argnums, Sequence)

    @wraps(fun, updated=())
    def forward(*args: Any) -> tuple[Any, ...]:
        wanted = wanted_arguments(fun, args, argnums)
        if len(set(wanted)) < len(wanted):
            raise TreeMismatchError(f"fwd_and_bwd got argnums={argnums}.", "Name each argument once.")

        @wraps(fun, updated=())
        def of_wanted(*values: Any) -> Any:
            given = dict(zip(wanted, values, strict=True))
            return fun(*(given.get(i, a) for i, a in enumerate(args)))

        return vjp(of_wanted, *(args[i] for i in wanted), has_aux=has_aux)

    def backward(residuals: Any, cotangent: Any) -> Any:
        found = residuals(cotangent)
        return found[0] if one else found

    return (jit(forward), jit(backward)) if jitted else (forward, backward)
