"""rlx.experimental.checkify: conditions that must hold at run time, also in compiled code.

`check` states a condition. Run eagerly it raises; `checkify` transforms a function with checks into one that raises
nothing and returns an `Error` with its result, so that it can be jitted, mapped and differentiated. It can also add
automatic checks: for NaNs, divisions by zero, and indices out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.array import is_array_or_numpy
from rlx.errors import CheckError, InputTypeError
from rlx.offered_names import offer_names
from rlx.ops.arithmetic import select
from rlx.ops.check import DivisionByZeroError, FailedCheckError, Failure, NaNError, OOBError, chosen
from rlx.ops.check import check as check_primitive
from rlx.ops.shape import reshape
from rlx.trace.flat import FlatFunction, as_array
from rlx.trace.origins import current_origin
from rlx.trace.primitive import type_of
from rlx.trace.tracing import trace_program
from rlx.transforms.checks import check_walk
from rlx.trees import tree

__all__ = [
    "Error",
    "ErrorCategory",
    "JaxRuntimeError",
    "all_checks",
    "automatic_checks",
    "check",
    "check_error",
    "checkify",
    "debug_check",
    "div_checks",
    "float_checks",
    "index_checks",
    "init_error",
    "nan_checks",
    "user_checks",
]

offer_names(globals())

ErrorCategory = type[CheckError]
JaxRuntimeError = CheckError

user_checks: frozenset[ErrorCategory] = frozenset({FailedCheckError})
nan_checks: frozenset[ErrorCategory] = frozenset({NaNError})
index_checks: frozenset[ErrorCategory] = frozenset({OOBError})
div_checks: frozenset[ErrorCategory] = frozenset({DivisionByZeroError})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


@dataclass(frozen=True)
class Error:
    """The findings of a checked function: a tree, so that transforms and loops take and return it.

    code: 0, or the number of the failure that happened first, counted from 1; an array of codes after vmap.
    payload: the values that messages are filled with. failures: the messages.

    >>> from rlx.experimental import checkify
    >>> error, _ = checkify.checkify(lambda x: checkify.check(x > 0, "not positive"))(-1.0)
    >>> error.get()
    'not positive (`check` failed)'
    """

    code: Any
    payload: tuple[Any, ...]
    failures: tuple[Failure, ...]

    def get(self) -> str | None:
        """The message of the failure that happened first, or None; after vmap a line for each lane that fails.

        >>> from rlx.experimental import checkify
        >>> print(checkify.init_error.get())
        None
        """
        found = self._found()
        if not found or not np.shape(self.code):
            return found[0][1].what if found else None
        lanes = [f"at mapped index {', '.join(map(str, at))}: {error.what}" for at, error in found]
        return "\n".join(lanes)

    def get_exception(self) -> CheckError | None:
        """The exception that throw raises, or None.

        >>> from rlx.experimental import checkify
        >>> checkify.init_error.get_exception() is None
        True
        """
        found = self._found()
        if not found:
            return None
        first = found[0][1]
        return first if not np.shape(self.code) else type(first)(self.get() or "", line=first.line)

    def throw(self) -> None:
        """Raise a CheckError (a ValueError) if a check failed. checkify treats this as a check.

        >>> from rlx.experimental import checkify
        >>> checkify.init_error.throw()
        """
        check_error(self)

    def _found(self) -> list[tuple[tuple[int, ...], CheckError]]:
        """The failures that happened, and their positions among the lanes."""
        codes, payload = np.asarray(self.code), [np.asarray(x) for x in self.payload]
        found = []
        for at in np.ndindex(codes.shape):
            if codes[at] > 0:
                failure, values = chosen(self.failures, int(codes[at]), payload)
                found.append((at, failure.error([x[at] for x in values])))
        return found

    def __str__(self) -> str:
        return f"Error({self.get()})"


tree.register_node(
    Error,
    lambda error: ((error.code, error.payload), error.failures),
    lambda failures, children: Error(children[0], children[1], failures),
)

init_error = Error(np.int32(0), (), ())


def checkify(f: Callable[..., Any], errors: Iterable[ErrorCategory] = user_checks) -> Callable[..., tuple[Error, Any]]:
    """`f` without its checks' side effects: it returns (Error, result) and raises nothing.

    Args:
      f: a function that may call `check`.
      errors: the kinds of failures to look for. user_checks: `f`'s own checks. nan_checks: operations that return a
        NaN. div_checks: divisors that are zero. index_checks: indices out of bounds, of reads and updates.
        float_checks, automatic_checks and all_checks are unions of these sets.

    Checks are found in jitted functions, branches and loops. A function with its own derivative or batching rule is
    checked itself, but not its rules. In a vmapped while_loop whose lanes end at different times, lanes that have ended
    are also checked, and vmap refuses a `check` in such a loop: map the checked function instead.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.experimental import checkify
    >>> error, y = rlx.jit(checkify.checkify(jnp.log, checkify.nan_checks))(-1.0)
    >>> error.get()
    'nan generated by primitive: log.'
    """
    categories = frozenset(errors)

    def checked_fun(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        flat = FlatFunction(lambda: f(*args, **kwargs), tree.structure(((), {})), name=getattr(f, "__name__", "f"))
        program, captured = trace_program(flat, [], name=flat.name)
        outs, checked = check_walk(program, captured, categories)
        code = as_array(checked.code if checked.failures else np.int32(0))
        return Error(code, tuple(checked.payload), tuple(checked.failures)), flat.unflatten(outs)

    return checked_fun


# ------------------------------------------------------------------ conditions
def _check(pred: Any, msg: str, args: tuple[Any, ...], kwargs: dict[str, Any], debug: bool) -> None:
    name = "debug_check" if debug else "check"
    if not isinstance(pred, (bool, np.bool_)) and not (
        is_array_or_numpy(pred) and pred.shape == () and pred.dtype == np.dtype(bool)
    ):
        raise InputTypeError(f"{name} takes a scalar bool, and got {pred!r:.80}.", "Reduce it: .all() or .any().")
    leaves, structure = tree.flatten((args, kwargs))
    for leaf in leaves:
        if not (is_array_or_numpy(leaf) or isinstance(leaf, (np.generic, bool, int, float, complex))):
            raise InputTypeError(
                f"{name} got a {type(leaf).__name__} as a value of its message: {leaf!r:.80}.",
                "Pass arrays or numbers, or put values that are known while tracing into the message itself.",
            )
    failure = Failure(FailedCheckError, f"{msg} (`check` failed)", structure, current_origin())
    code = select(as_array(pred), np.int32(0), np.int32(1))
    check_primitive(code, *map(as_array, leaves), failures=(failure,), debug=debug)


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """State a condition. Eagerly it raises an error if it is false; checkify collects it from compiled code.

    Args:
      pred: a scalar bool.
      msg: the message if it is false: a format string.
      fmt_args, fmt_kwargs: arrays, or trees of arrays, as arguments of the format string.
      debug: without checkify the check does nothing.

    Raises: CheckError (a ValueError) if the condition is known to be false, or if a function is compiled whose
    checks are not collected; InputTypeError unless pred is a scalar bool, and unless all values are arrays or numbers.

    >>> import rlx
    >>> from rlx.experimental import checkify
    >>> def root(x):
    ...     checkify.check(x >= 0, "{x} has no root", x=x)
    ...     return x ** 0.5
    >>> error, _ = rlx.jit(checkify.checkify(root))(-4.0)
    >>> error.get()
    '-4.0 has no root (`check` failed)'
    """
    _check(pred, msg, fmt_args, fmt_kwargs, debug)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """A check that does nothing without checkify.

    >>> from rlx.experimental import checkify
    >>> checkify.debug_check(False, "never")
    >>> checkify.checkify(lambda: checkify.debug_check(False, "now"))()[0].get()
    'now (`check` failed)'
    """
    _check(pred, msg, fmt_args, fmt_kwargs, True)


def check_error(error: Error) -> None:
    """Raise the failure that an Error contains, if there is one; under checkify this is a check again.

    >>> import rlx
    >>> from rlx.experimental import checkify
    >>> error, _ = rlx.jit(checkify.checkify(lambda x: checkify.check(x > 0, "not positive")))(-1.0)
    >>> checkify.check_error(error)
    Traceback (most recent call last):
        ...
    rlx.ops.check.FailedCheckError: not positive (`check` failed)...
    """
    if not isinstance(error, Error):
        raise InputTypeError(f"check_error got a {type(error).__name__}.", "Pass the Error of a checked function.")
    if not error.failures:
        return
    code, *payload = _one_axis(as_array(error.code), [as_array(x) for x in error.payload])
    params = {"failures": error.failures, "debug": False}
    if not type_of(code).shape:
        check_primitive(code, *payload, **params)
    elif type_of(code).shape[0]:
        check_primitive.batch(type_of(code).shape[0], [code, *payload], [0] * (len(payload) + 1), **params)


def _one_axis(code: Any, payload: Sequence[Any]) -> list[Any]:
    """Codes of several mapped axes, and their values, in a row."""
    shape = type_of(code).shape
    if len(shape) < 2:
        return [code, *payload]
    size = int(np.prod(shape))
    return [reshape(x, shape=(size, *type_of(x).shape[len(shape) :])) for x in (code, *payload)]
