"""Functions applied along axes and over leading ones: vectorize, apply_along_axis."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.ir.types import broadcast_sizes
from rlx.numpy.manipulation import expand_dims, squeeze
from rlx.numpy.promotion import canonical_axis, operand
from rlx.trace.flat import as_array
from rlx.transforms.vmap import vmap

__all__ = ["apply_along_axis", "apply_over_axes", "vectorize"]

_NAME = r"\w+"
_GROUP = rf"\((?:{_NAME}(?:,{_NAME})*)?\)"
_SIGNATURE = re.compile(rf"^(?:{_GROUP}(?:,{_GROUP})*)?->{_GROUP}(?:,{_GROUP})*$")
Core = tuple[str, ...]


def _array(value: Any) -> Any:
    return as_array(np.asarray(value) if isinstance(value, (list, tuple)) else operand(value))


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of 1-d arrays applied along an axis.

    Args: func1d: called with a 1-d array, args and kwargs; axis; arr: array.
    Returns: an array: func1d's results, in place of the axis.

    >>> import rlx.numpy as jnp
    >>> jnp.apply_along_axis(jnp.sum, 0, jnp.ones((2, 3)))
    Array([2., 2., 2.], dtype=float32)
    """
    x = _array(arr)
    number = canonical_axis(axis, x.ndim, "apply_along_axis")

    def on_row(row: Any) -> Any:
        return func1d(row, *args, **kwargs)

    function: Callable[..., Any] = on_row
    for _ in range(number):
        function = vmap(function, in_axes=0, out_axes=0)
    # the remaining axes: peel them off from the last, keeping results in front of them
    for _ in range(x.ndim - number - 1):
        function = vmap(function, in_axes=-1, out_axes=-1)
    return function(x)


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Sequence[int]) -> Array:
    """A function such as sum applied over several axes, one after another, keeping the rank.

    Args: func: called with (array, axis); a: array; axes. Returns: an array.
    Raises: ShapeError if func changes the rank by more than one.

    >>> import rlx.numpy as jnp
    >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 3)), [0, 1])
    Array([[6.]], dtype=float32)
    """
    x = _array(a)
    for axis in axes:
        result = func(x, axis)
        if result.ndim == x.ndim - 1:
            result = expand_dims(result, axis)
        if result.ndim != x.ndim:
            raise ShapeError("apply_over_axes: the function changed the number of axes.", "Keep it.")
        x = result
    return x


# ------------------------------------------------------------------ vectorize
def _parse(signature: str) -> tuple[list[Core], list[Core]]:
    text = signature.replace(" ", "")
    if not _SIGNATURE.match(text):
        raise ValueError(f"{signature!r} is not a signature such as '(n,m),(m)->(n)'.")
    sides = [[tuple(re.findall(_NAME, group)) for group in re.findall(_GROUP, side)] for side in text.split("->")]
    return sides[0], sides[1]


def _lead(x: Any, core: Core, sizes: dict[str, int]) -> tuple[int, ...]:
    """The loop axes of an argument, after a check of its core axes."""
    if x.ndim < len(core):
        raise ShapeError(f"vectorize got an array of shape {x.shape} for the core axes {core}.", "")
    for name, size in zip(core, x.shape[x.ndim - len(core) :], strict=True):
        if sizes.setdefault(name, size) != size:
            raise ShapeError(f"vectorize got sizes {sizes[name]} and {size} for the axis {name!r}.", "")
    return x.shape[: x.ndim - len(core)]


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = frozenset(), signature: str | None = None
) -> Callable[..., Any]:
    """A function that broadcasts over leading axes of its arguments, by vmap.

    Args: pyfunc: a function of arrays; excluded: positions and names of arguments to leave alone;
    signature: core axes, such as "(n),(n)->()" (None: scalars).
    Returns: a function. Raises: ValueError for a signature that cannot be read.

    >>> import rlx.numpy as jnp
    >>> dot = jnp.vectorize(jnp.dot, signature="(n),(n)->()")
    >>> dot(jnp.ones((2, 3)), jnp.ones(3))
    Array([3., 3.], dtype=float32)
    """

    if any(not isinstance(e, (int, str)) for e in excluded):
        raise TypeError(f"vectorize got excluded={excluded}: name positions and keywords.")
    if any(isinstance(e, int) and e < 0 for e in excluded):
        raise ValueError(f"vectorize got excluded={excluded}: positions count from 0.")

    @functools.wraps(pyfunc)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        missing = [i for i, a in enumerate(args) if a is None and i not in excluded]
        if signature is not None and missing and len(_parse(signature)[0]) == len(args):
            raise ValueError(f"vectorize got None for the arguments {missing}, which {signature!r} names.")
        mapped = [i for i in range(len(args)) if i not in excluded and args[i] is not None]
        inputs, outputs = ([()] * len(mapped), None) if signature is None else _parse(signature)
        if len(inputs) != len(mapped):
            raise TypeError(f"vectorize got {len(mapped)} arguments for the signature {signature!r}.")
        arrays = [_array(args[i]) for i in mapped]
        sizes: dict[str, int] = {}
        leads = [_lead(x, core, sizes) for x, core in zip(arrays, inputs, strict=True)]
        shape = broadcast_sizes(*leads)

        def function(*values: Any) -> Any:
            full = list(args)
            for i, value in zip(mapped, values, strict=True):
                full[i] = value
            result = pyfunc(*full, **kwargs)
            _check_outputs(result, outputs, sizes)
            return result

        return _mapped(function, arrays, leads, shape)

    return wrapped


def _check_outputs(result: Any, outputs: list[Core] | None, sizes: dict[str, int]) -> None:
    if outputs is None:
        return
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(outputs):
        raise TypeError(f"vectorize: the function returned {len(results)} results, not {len(outputs)}.")
    for value, core in zip(results, outputs, strict=True):
        if len(core) != np.ndim(value):
            raise ShapeError(f"vectorize: a result has shape {np.shape(value)}, not the core axes {core}.", "")
        for name, size in zip(core, np.shape(value), strict=True):
            if sizes.setdefault(name, size) != size:
                raise ShapeError(f"vectorize: a result has size {size} for the axis {name!r}.", "")


def _mapped(
    function: Callable[..., Any], arrays: list[Any], leads: list[tuple[int, ...]], shape: tuple[int, ...]
) -> Any:
    """vmap over every loop axis along which some argument has more than one element."""
    rank = len(shape)
    squeezed, present = list(arrays), [[False] * rank for _ in arrays]
    for number, (x, lead) in enumerate(zip(arrays, leads, strict=True)):
        offset = rank - len(lead)
        gone = tuple(i for i, n in enumerate(lead) if n == 1 and shape[offset + i] != 1)
        for i in range(len(lead)):
            present[number][offset + i] = i not in gone
        squeezed[number] = squeeze(x, gone) if gone else x
    for axis in range(rank - 1, -1, -1):
        # an axis of the broadcast shape is there in one argument at least
        function = vmap(function, in_axes=tuple(0 if here[axis] else None for here in present))
    return function(*squeezed)
