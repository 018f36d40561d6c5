"""rlx.model: a function, or a class with its parameters, compiled for each shape, dtype and device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from rlx.array import is_array, is_array_or_numpy
from rlx.call.device import Device
from rlx.call.jit import jit
from rlx.call.jit_options import numbers_of
from rlx.errors import OptionError
from rlx.trace.primitive import type_of
from rlx.trees import tree

__all__ = ["Model", "model"]

Owner = TypeVar("Owner", bound=type)
_STATIC = (str, bytes, bool, int, float, complex, type, np.dtype)


class Model:
    """A compiled function: call it, or take the program for some types with `compiled`."""

    def __init__(self, function: Callable[..., Any], device: str | Device | None, donate: tuple[int, ...]) -> None:
        self._jitted = jit(function, device=device, donate_argnums=donate)
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function."""
        return self._jitted(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<model {getattr(self, '__name__', 'function')}>"

    def compiled(self, *types: Any) -> Any:
        """The function compiled for arguments of these types (arrays or rlx.ShapeDtypeStruct), ready to be called.

        >>> import rlx
        >>> double = rlx.model(lambda x: 2 * x)
        >>> double.compiled(rlx.ShapeDtypeStruct((2,), "float32"))(rlx.numpy.ones(2))
        Array([2., 2.], dtype=float32)
        """
        return self._jitted.lower(*types).compile()


def model(target: Any = None, *, device: str | Device | None = None, donate: int | Sequence[int] = ()) -> Any:
    """A function or a class, compiled once for each structure, shape, dtype and device of its arguments.

    A class has `__call__`, and its instances have parameters: arrays among their attributes, in trees and in other
    models, are arguments of the compiled program, so changing them does not recompile; strings, Python
    numbers and functions are part of the program. Instances become trees, so that rlx.grad, rlx.tree.map and the
    optimisers accept them. Attributes that `__call__` sets are discarded. Instances print the types of their
    arrays, unless the class has a `__repr__`. A subclass is a model if it is decorated too.
    Instances can be called by several threads; each program is traced and compiled once.

    Args:
      target: a function of arrays, or a class; if omitted, `model` returns a decorator.
      device: the device to run on, or its name, as in rlx.jit.
      donate: numbers of the call's arguments whose memory may be reused; they cannot be used again.

    Returns: a Model for a function; the class itself, whose instances also have `compiled(*types)`.

    Raises: OptionError for a class without `__call__`, and for one that has something called `compiled`.

    >>> import rlx, rlx.numpy as jnp
    >>> @rlx.model
    ... class Affine:
    ...     def __init__(self, w, b):
    ...         self.w, self.b = w, b
    ...     def __call__(self, x):
    ...         return x @ self.w + self.b
    >>> affine = Affine(jnp.ones((2, 1)), jnp.zeros(1))
    >>> affine
    Affine(w=float32[2,1], b=float32[1])
    >>> affine(jnp.ones((1, 2)))
    Array([[2.]], dtype=float32)
    >>> rlx.grad(lambda m: m(jnp.ones((1, 2))).sum())(affine).w.tolist()
    [[1.0], [1.0]]
    """

    def modelled(target: Any) -> Any:
        if isinstance(target, type):
            return _class_of_models(target, device, numbers_of(donate))
        return Model(target, device, numbers_of(donate))

    return modelled if target is None else modelled(target)


def _class_of_models(cls: Owner, device: str | Device | None, donate: tuple[int, ...]) -> Owner:
    own: Any = cls
    if _call_of(own) is None:
        raise OptionError(f"{cls.__name__} has no __call__ for rlx.model to compile.", "Write def __call__(self, x).")
    if hasattr(own, "compiled"):
        raise OptionError(f"{cls.__name__} has an attribute `compiled`.", "Rename it: rlx.model adds this method.")
    jitted: Any = jit(_call_of(own), device=device, donate_argnums=tuple(n + 1 for n in donate))

    @functools.wraps(_call_of(own))
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return jitted(self, *args, **kwargs)

    def compiled(self: Any, *types: Any) -> Any:
        """The model compiled for arguments of these types: a function of the arguments, with the current parameters."""
        return functools.partial(jitted.lower(self, *types).compile(), self)

    own.__call__, own.compiled = call, compiled
    if own.__repr__ is object.__repr__:
        own.__repr__ = _show
    tree.register_node(cls, _flatten, functools.partial(_unflatten, cls))
    return cls


class _Shown(str):
    """A text that is its own repr: it stands for a leaf of a tree that is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _show(instance: Any) -> str:
    """The class with its attributes: types of arrays, names of functions."""
    attributes = tree.map(_shown_leaf, vars(instance)).items()
    return f"{type(instance).__name__}({', '.join(f'{name}={value!r}' for name, value in attributes)})"


def _shown_leaf(leaf: Any) -> _Shown:
    if is_array_or_numpy(leaf):
        return _Shown(repr(type_of(leaf)))
    return _Shown(getattr(leaf, "__name__", None) or repr(leaf))


def _call_of(cls: Any) -> Any:
    """The `__call__` that instances have; None if there is none (a class itself can always be called)."""
    return next((vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)), None)


def _is_static(leaf: Any) -> bool:
    return isinstance(leaf, _STATIC) or (callable(leaf) and not is_array(leaf))


def _flatten(instance: Any) -> tuple[list[Any], Any]:
    """An instance's parameters, and its structure with static values."""
    leaves, structure = tree.flatten(vars(instance))
    static = tuple((n, leaf) for n, leaf in enumerate(leaves) if _is_static(leaf))
    places = {n for n, _ in static}
    return [leaf for n, leaf in enumerate(leaves) if n not in places], (structure, static)


def _unflatten(cls: type, data: Any, parameters: Any) -> Any:
    structure, static = data
    places, rest = dict(static), iter(parameters)
    leaves = [places[n] if n in places else next(rest) for n in range(structure.num_leaves)]
    instance = object.__new__(cls)
    vars(instance).update(tree.unflatten(structure, leaves))
    return instance
