"""rlx functions for SciPy's solvers, which run on the host: compiled functions of vectors of float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.call.jit import jit
from rlx.errors import ConcretizationTypeError, CustomRuleError, DtypeError, OptionError, ShapeError
from rlx.ir.types import is_complex
from rlx.trace.builder import is_traced
from rlx.trace.flat import as_array
from rlx.transforms.functional import jacfwd, jacrev
from rlx.trees import tree

__all__ = [
    "Host",
    "Parameters",
    "dense_jacobian",
    "first_differentiable",
    "raveled",
    "refuse_keywords",
]

HostFunction = Callable[..., Any]
_FLOAT = np.dtype("f8")
_DERIVED = {
    "jac": "rlx derives the Jacobian from the program of the function: leave it out.",
    "hess": "rlx derives the Hessian from the program of the function: leave it out.",
    "hessp": "rlx derives products with the Hessian from the program of the function: leave it out.",
    "jac_sparsity": "rlx finds the pattern in the program of the function: leave it out.",
    "lband": "rlx finds the pattern in the program of the function, for BDF and Radau: leave it out.",
    "uband": "rlx finds the pattern in the program of the function, for BDF and Radau: leave it out.",
    "diff_step": "Derivatives are exact and need no step: leave it out.",
    "vectorized": "The function is compiled for one state: leave it out.",
    "workers": "The function runs in rlx's threads: leave it out.",
}


class Host(NamedTuple):
    """A function that calls a solver of SciPy: its name, and the advice for calls in traced functions."""

    name: str
    instead: str

    def compiled(self, function: Callable[..., Any]) -> HostFunction:
        """`function` compiled, with results that are writable NumPy arrays of double precision.

        Raises ConcretizationTypeError if its results are traced.
        """
        run = jit(function)

        def call(*args: Any) -> Any:
            return tree.map(self.number, run(*args))

        return call

    def number(self, value: Any) -> np.ndarray:
        """A result as an array of float64 or complex128."""
        self.refuse_traced("the result of the function", value)
        wide = np.complex128 if is_complex(value.dtype) else np.float64
        return np.array(value, wide)

    def refuse_traced(self, what: str, value: Any) -> None:
        """Raise ConcretizationTypeError if a tree has traced arrays."""
        for leaf in tree.leaves(value):
            if is_traced(leaf):
                raise ConcretizationTypeError(
                    f"{self.name} calls SciPy on the host, which needs values, but {what} is a traced {leaf.type!r}.",
                    f"Call {self.name} outside of jit, grad and vmap. {self.instead}",
                )


class Parameters(NamedTuple):
    """The layout of a tree of real arrays in a vector of float64, the leaves one after the other."""

    name: str
    treedef: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, host: Host, value: Any) -> tuple[Parameters, np.ndarray]:
        """The layout of a tree of known numbers, and its vector. Raises ShapeError, DtypeError for other trees."""
        host.refuse_traced("x0", value)
        value = _array_of_numbers(value)
        leaves, treedef = tree.flatten(value)
        arrays = [np.asarray(as_array(x)) for x in leaves]
        if any(is_complex(x.dtype) for x in arrays):
            raise DtypeError(f"{host.name} got complex numbers in x0.", "Pass real and imaginary parts as two leaves.")
        if not sum(x.size for x in arrays):
            raise ShapeError(f"{host.name} got x0 without numbers.", "Pass at least one parameter.")
        vector = np.concatenate([x.ravel() for x in arrays]).astype(_FLOAT)
        return cls(host.name, treedef, tuple(x.shape for x in arrays)), vector

    @property
    def is_vector(self) -> bool:
        """Whether the tree is one array with one axis, as SciPy takes it."""
        return self.treedef == tree.structure(0.0) and len(self.shapes[0]) == 1

    def tree(self, vector: Any) -> Any:
        """The tree of a vector, of NumPy arrays or of traced arrays."""
        pieces, start = [], 0
        for shape in self.shapes:
            pieces.append(vector[start : start + math.prod(shape)].reshape(shape))
            start += math.prod(shape)
        return tree.unflatten(self.treedef, pieces)

    def vector(self, what: str, value: Any) -> np.ndarray:
        """The vector of a number, or of a tree whose leaves can be broadcast to the leaves of the parameters."""
        if np.ndim(value) == 0 and tree.structure(value) == tree.structure(0.0):
            return np.full(sum(map(math.prod, self.shapes)), value, _FLOAT)
        leaves, treedef = tree.flatten(_array_of_numbers(value))
        try:
            if treedef != self.treedef:
                raise ValueError
            parts = [np.broadcast_to(np.asarray(x, _FLOAT), s) for x, s in zip(leaves, self.shapes, strict=True)]
        except ValueError:
            raise ShapeError(
                f"{self.name} got {what} of structure {treedef} and shapes {[np.shape(x) for x in leaves]} for x0 of"
                f" structure {self.treedef} and shapes {list(self.shapes)}.",
                f"Pass a number, or {what} like x0.",
            ) from None
        return np.concatenate([p.ravel() for p in parts])


def _array_of_numbers(value: Any) -> Any:
    """A list or tuple of numbers as the array that SciPy makes of it; other trees unchanged."""
    flat = isinstance(value, (list, tuple)) and value and all(np.ndim(x) == 0 for x in tree.leaves(value))
    return np.asarray(value, _FLOAT) if flat and not any(isinstance(x, (dict, list, tuple)) for x in value) else value


def raveled(host: Host, what: str, value: Any) -> Array:
    """The numbers of a tree as one vector. Raises DtypeError for complex numbers."""
    arrays = [as_array(x) for x in tree.leaves(value)]
    if any(is_complex(x.dtype) for x in arrays):
        raise DtypeError(f"{host.name} got complex {what}.", "Return real and imaginary parts, as a tuple of arrays.")
    parts = [x.reshape(-1).astype(_FLOAT) for x in arrays]
    return jnp.concatenate(parts) if parts else jnp.zeros(0, _FLOAT)


def first_differentiable(candidates: Sequence[HostFunction], *args: Any) -> HostFunction:
    """The first of several forms of a derivative that exists: functions with custom_vjp have no forward mode."""
    for candidate in candidates[:-1]:
        try:
            candidate(*args)
        except CustomRuleError:
            continue
        return candidate
    return candidates[-1]


def dense_jacobian(host: Host, function: Callable[..., Any], rows: int, x: np.ndarray, *args: Any) -> HostFunction:
    """The Jacobian [rows, size of x] of function(x, *args) by the vector x, in the mode that needs fewer products."""
    holomorphic = is_complex(x.dtype)
    forward, reverse = (host.compiled(mode(function, holomorphic=holomorphic)) for mode in (jacfwd, jacrev))
    return first_differentiable([forward, reverse] if x.size <= rows else [reverse], x, *args)


def refuse_keywords(name: str, keywords: Mapping[str, Any]) -> None:
    """Raise OptionError for keywords of SciPy's function that rlx's does not take."""
    for key in keywords:
        raise OptionError(f"{name} does not take {key}.", _DERIVED.get(key, f"help({name}) lists its options."))
