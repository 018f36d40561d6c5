"""Inspection of values while a program runs: debug.print, debug.callback, debug.breakpoint."""

from __future__ import annotations

import builtins
import logging
import pdb
import string
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlx.array import is_array, is_array_or_numpy, is_concrete
from rlx.errors import InputTypeError, PrintFormatError, describe, user_line
from rlx.host.callback import host_function
from rlx.offered_names import offer_names
from rlx.ops.callback import debug_callback
from rlx.sharding.shardings import default_sharding
from rlx.trace.flat import flatten_call
from rlx.trace.spanning import is_spanning
from rlx.trace.tracing import place_of
from rlx.trees import tree

__all__ = [
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "log",
    "print",
    "visualize_array_sharding",
    "visualize_sharding",
]

offer_names(globals())


def callback(
    callback: Callable[..., Any] | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function on values each time the program runs; its result is dropped.

    Works eagerly, under jit, under grad (with the primal values), and under vmap (one call per element).

    Args:
      callback: takes concrete arrays (in the trees of args and kwargs).
      args, kwargs: trees of arrays; must be empty without a function.
      ordered, partitioned: accepted for compatibility with JAX: callbacks are always ordered, on one device.

    Returns: None; without a function, a callable that takes it and its arguments: callback(ordered=True)(f, x).

    >>> import rlx
    >>> seen = []
    >>> def f(x):
    ...     rlx.debug.callback(lambda v: seen.append(float(v)), x)
    ...     return x * x
    >>> _ = rlx.jit(rlx.grad(f))(3.0)
    >>> seen
    [3.0]
    """
    if callback is None:
        if args or kwargs:
            raise TypeError("debug.callback got arguments but no function: pass both in the second call")
        return _with_options(_callback, ordered=ordered)
    return _callback(callback, args, kwargs, ordered)


def _with_options(deliver: Callable[..., None], **options: Any) -> Callable[..., None]:
    """The second call of the form f(options)(function or string, values)."""

    def call(first: Any, /, *args: Any, **kwargs: Any) -> None:
        deliver(first, args, kwargs, **options)

    return call


def _callback(callback: Callable[..., Any], args: Any, kwargs: Any, ordered: bool) -> None:
    leaves, in_tree = flatten_call(args, kwargs, "an argument of debug.callback")
    host, operands = host_function(callback, leaves, in_tree, (), None)
    debug_callback(*operands, function=host, ordered=bool(ordered))


class _CheckedFormatter(string.Formatter):
    """A formatter that raises an error for unused arguments; `line`: the user's."""

    def __init__(self, line: str) -> None:
        self.line = line

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        """Raises ValueError for the first unused argument."""
        unused = [n for n in range(len(args)) if n not in used_args] + [k for k in kwargs if k not in used_args]
        if unused:
            raise PrintFormatError(
                f"debug.print: the format string does not use the argument {unused[0]!r}.",
                "Insert braces: {} for the next value, {name} for a value passed by name.",
                self.line,
            )

    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        """Raises PrintFormatError if the format string refers to a missing value."""
        if key in kwargs or (isinstance(key, int) and key < len(args)):
            return super().get_value(key, args, kwargs)
        given = [*map(repr, range(len(args))), *map(repr, kwargs)]
        raise PrintFormatError(
            f"debug.print: the format string names the value {key!r}; given were {', '.join(given) or 'none'}.",
            f"Pass it after the format string{f' as {key}=...' if isinstance(key, str) else ''}; double braces to"
            " print them.",
            self.line,
        )


def print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> Any:
    """Print values, formatted by str.format, each time the program runs, with NumPy's print options of the call.

    Args:
      fmt: a format string; braces are replaced by the values.
      args, kwargs: trees of arrays; static values (strings, dtypes, functions) are printed unchanged.
      ordered, partitioned: accepted for compatibility with JAX: prints are always ordered, on one device.
      skip_format_check: do not check the braces against the values first.

    Returns: None; without a format string, a callable that takes it and its values: print(ordered=True)("{}", x).

    Raises TypeError if `fmt` is not a string, and PrintFormatError if it does not match the values.

    >>> import rlx
    >>> _ = rlx.jit(lambda x: rlx.debug.print("x = {}, {y:.2f}", x, y=x / 3))(2.0)
    x = 2.0, 0.67
    """
    if fmt is None:
        if args or kwargs:
            raise TypeError("debug.print got values but no format string: pass both in the second call")
        return _with_options(_formatted_print, ordered=ordered, skip_format_check=skip_format_check)
    return _formatted_print(fmt, args, kwargs, ordered, skip_format_check)


def _no_format(name: str, given: Any) -> InputTypeError:
    return InputTypeError(
        f"debug.{name} takes a format string first, but got {describe(given)}.",
        f'Write rlx.debug.{name}("x = {{}}", x).',
    )


def _formatted_print(fmt: Any, args: Any, kwargs: Any, ordered: bool, skip_format_check: bool) -> None:
    if not isinstance(fmt, str):
        raise _no_format("print", fmt)
    if not skip_format_check:
        _CheckedFormatter(user_line()).vformat(_without_specifications(fmt), args, kwargs)
    _deliver(partial(_print, np.get_printoptions(), fmt), args, kwargs, ordered)


def log(
    fmt: str,
    *args: Any,
    level: int = logging.INFO,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> None:
    """Log values, formatted by str.format, to the logger "rlx" each time the program runs.

    Args:
      fmt, args, kwargs, ordered, partitioned, skip_format_check: as for debug.print.
      level: the level of the record.

    >>> import rlx
    >>> rlx.debug.log("step {}", rlx.numpy.ones(()))
    """
    if not isinstance(fmt, str):
        raise _no_format("log", fmt)
    _deliver(partial(_log, level, fmt), args, kwargs, ordered)


def _without_specifications(fmt: str) -> str:
    """A format string without format specifications: {x:.2f} as {x}."""
    parts = string.Formatter().parse(fmt)
    return "".join("{" + field.split("[")[0].split(".")[0] + "}" for _, field, _, _ in parts if field is not None)


def _deliver(function: Callable[..., Any], args: Any, kwargs: Any, ordered: bool) -> None:
    """Call `callback` with the non-array arguments bound."""
    leaves, treedef = tree.flatten((args, kwargs))
    fixed = {n: x for n, x in enumerate(leaves) if not _is_array(x)}
    dynamic = [x for n, x in enumerate(leaves) if n not in fixed]

    def call(*values: Any) -> None:
        given = iter(values)
        found = [fixed[n] if n in fixed else next(given) for n in range(len(leaves))]
        positional, named = tree.unflatten(treedef, found)
        function(*positional, **named)

    _callback(call, dynamic, {}, ordered)


def _is_array(x: Any) -> bool:
    return is_array_or_numpy(x) or isinstance(x, (np.generic, bool, int, float, complex))


def _print(options: Any, fmt: str, /, *args: Any, **kwargs: Any) -> None:
    with np.printoptions(**options):
        builtins.print(fmt.format(*args, **kwargs))


def _log(level: int, fmt: str, *args: Any, **kwargs: Any) -> None:
    logging.getLogger("rlx").log(level, fmt.format(*args, **kwargs))


def breakpoint(*, ordered: bool = False, **values: Any) -> None:
    """Stop in Python's debugger, with access to the values, each time the program reaches this point.

    Args:
      ordered: accepted for compatibility with JAX: callbacks are always ordered.
      values: shown in the dictionary `values`; by default the caller's local variables that are arrays.

    >>> import rlx
    >>> def f(x):
    ...     y = x * x
    ...     rlx.debug.breakpoint()   # doctest: +SKIP
    ...     return y
    """
    if not values:
        held = sys._getframe(1).f_locals
        values = {name: value for name, value in held.items() if is_array(value)}
    _callback(_stop, (), values, ordered)


def _stop(**values: Any) -> None:
    builtins.print("rlx.debug.breakpoint:", ", ".join(values) or "no values", "in `values`")
    pdb.Pdb().set_trace()


def visualize_array_sharding(arr: Any, **options: Any) -> None:
    """Print the placement of an array's shards.

    Args: arr: an array of one or two axes. options: as for visualize_sharding.

    Raises ValueError for another number of axes.

    >>> import rlx
    >>> rlx.debug.visualize_array_sharding(rlx.numpy.ones(4))
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    inspect_array_sharding(arr, callback=lambda sharding: visualize_sharding(arr.shape, sharding, **options))


def visualize_sharding(
    shape: Any,
    sharding: Any,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: Any = None,
) -> None:
    """Print the placement of the shards of an array with this shape: a box for each shard, with its devices.

    Args:
      shape: one or two sizes. sharding: the placement of the shards.
      scale: the size of the picture, which has 10 lines for a scale of 1, and columns in proportion.
      min_width, max_width: the width of a box with its frame, in characters.
      use_color, color_map: accepted for compatibility with JAX: boxes have frames instead.

    Raises ValueError for another number of axes, and if the sharding does not fit the shape.

    >>> import rlx
    >>> sharding = rlx.NamedSharding(rlx.make_mesh((1,), ("x",)), rlx.P("x"))
    >>> rlx.debug.visualize_sharding((4,), sharding, min_width=13)
    ┌───────────┐
    │   CPU 0   │
    └───────────┘
    """
    if len(shape) not in (1, 2):
        raise ValueError(f"visualize_sharding shows arrays of 1 or 2 axes, got the shape {tuple(shape)}")
    lines = int(10 * scale)
    columns = int(lines * ((shape[1] if len(shape) == 2 else 1) / shape[0]))
    part = sharding.shard_shape(tuple(shape))
    height = 1 if len(shape) == 1 else int(part[0] / shape[0] * lines)
    # the height of a character divided by its width
    width = min(max(int(part[-1] / shape[-1] * columns * 2.5), min_width), max_width)
    counts, numbers = sharding.part_numbers(len(shape))
    texts = np.full((1, *counts)[-2:], "", object)
    for device, number in sorted(zip(sharding.devices, numbers.tolist(), strict=True), key=lambda pair: pair[0].id):
        cell = (0, *number)[-2:]
        texts[cell] = f"{texts[cell]},{device.id}" if texts[cell] else f"{device.platform.upper()} {device.id}"
    boxes = [[_boxed(text, width, height) for text in row] for row in texts]
    wide = [max(len(box[0]) for box in column) for column in zip(*boxes, strict=True)]
    rules = ["─" * w for w in wide]
    rows = ["\n".join(f"│{'│'.join(map(str.center, line, wide))}│" for line in zip(*row, strict=True)) for row in boxes]
    between = f"\n├{'┼'.join(rules)}┤\n"
    builtins.print(f"┌{'┬'.join(rules)}┐\n{between.join(rows)}\n└{'┴'.join(rules)}┘")


def _boxed(text: str, width: int, height: int) -> list[str]:
    """The lines of a box with centred text, without its frame of one character."""
    left, more = divmod(max(width - len(text) - 2, 0), 2)
    above, below = divmod(max(height - 2, 0), 2)
    line = " " * left + text + " " * (left + more)
    blank = " " * len(line)
    return [*[blank] * above, line, *[blank] * (above + below)]


def inspect_array_sharding(value: Any, *, callback: Callable[[Any], None]) -> None:
    """Call a function with the sharding of each array in a tree; for traced values once, during tracing.

    A traced value's sharding is its constraint (rlx.lax.with_sharding_constraint), or the default device.

    Args: value: a tree of arrays. callback: takes a rlx.sharding.Sharding.

    >>> import rlx
    >>> found = []
    >>> rlx.debug.inspect_array_sharding(rlx.numpy.ones(4), callback=found.append)
    >>> found[0].num_devices
    1
    """
    for leaf in tree.leaves(value):
        known = is_concrete(leaf) or is_spanning(leaf)
        callback(leaf.sharding if known else place_of(leaf) or default_sharding())
