"""The operations of graphs as methods: each records a function of rlx.numpy, rlx.lax or rlx.nn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx import lax, nn
from rlx import numpy as jnp
from rlx.errors import RlxError, ShapeError
from rlx.graph.layers import (
    MASK_KINDS,
    attention,
    convolution,
    group_norm,
    pool,
    rope,
)
from rlx.graph.named_sizes import record_methods
from rlx.graph.types import DType, Shape
from rlx.numpy.fft import fft as fourier
from rlx.numpy.fft import ifft as fourier_inverse

__all__ = ["ACTIVATIONS", "BINARY", "COMPARISONS", "REDUCTIONS", "Operations"]

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "abs": jnp.abs,
    "atan": jnp.arctan,
    "cos": jnp.cos,
    "exp": jnp.exp,
    "gelu": lambda x: nn.gelu(x, approximate=False),
    "gelu_approx": lambda x: nn.gelu(x, approximate=True),
    "log": jnp.log,
    "neg": jnp.negative,
    "recip": jnp.reciprocal,
    "relu": nn.relu,
    "round": jnp.round,
    "rsqrt": lax.rsqrt,
    "sigmoid": nn.sigmoid,
    "silu": nn.silu,
    "sin": jnp.sin,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": jnp.add,
    "div": jnp.divide,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "mul": jnp.multiply,
    "pow": jnp.power,
    "sub": jnp.subtract,
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": jnp.equal,
    "ge": jnp.greater_equal,
    "gt": jnp.greater,
    "le": jnp.less_equal,
    "lt": jnp.less,
    "ne": jnp.not_equal,
}
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "max": jnp.max,
    "mean": jnp.mean,
    "min": jnp.min,
    "prod": jnp.prod,
    "sum": jnp.sum,
}


def _choose(what: str, table: dict[str, Any], name: str) -> Any:
    if name not in table:
        raise RlxError(f"There is no {what} {name!r}.", f"There are: {', '.join(sorted(table))}.")
    return table[name]


@record_methods
class Operations:
    """Methods that record operations. A `shape` argument is the expected shape, which is checked."""

    def apply(self, function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
        """Record a function of arrays; see Graph.apply."""
        raise NotImplementedError

    def _checked(self, shape: Any, function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
        node = self.apply(function, *operands, **options)
        found = Shape.of(node.atom.type)  # without names of sizes
        if shape is not None and Shape.of(shape) != found:
            raise ShapeError(
                f"The result has {found!r}, not the expected {Shape.of(shape)!r}.",
                "Leave the shape out, or give the shape that follows from the operands.",
            )
        return node

    # ------------------------------------------------------------------ elementwise
    def binary(self, op: str, x: Any, y: Any, shape: Any = None) -> Any:
        """One of BINARY, with NumPy's broadcasting."""
        return self._checked(shape, _choose("binary operation", BINARY, op), x, y)

    def add(self, x: Any, y: Any, shape: Any = None) -> Any:
        """x + y."""
        return self.binary("add", x, y, shape)

    def sub(self, x: Any, y: Any, shape: Any = None) -> Any:
        """x - y."""
        return self.binary("sub", x, y, shape)

    def mul(self, x: Any, y: Any, shape: Any = None) -> Any:
        """x * y."""
        return self.binary("mul", x, y, shape)

    def div(self, x: Any, y: Any, shape: Any = None) -> Any:
        """x / y."""
        return self.binary("div", x, y, shape)

    def compare(self, op: str, x: Any, y: Any, shape: Any = None) -> Any:
        """One of COMPARISONS; bools."""
        return self._checked(shape, _choose("comparison", COMPARISONS, op), x, y)

    def equal(self, x: Any, y: Any) -> Any:
        """x == y, elementwise."""
        return self.compare("eq", x, y)

    def where(self, condition: Any, x: Any, y: Any, shape: Any = None) -> Any:
        """x where the condition is true, else y."""
        return self._checked(shape, jnp.where, condition, x, y)

    def activation(self, kind: str, x: Any, shape: Any = None) -> Any:
        """One of ACTIVATIONS; "gelu" is the exact one."""
        return self._checked(shape, _choose("activation", ACTIVATIONS, kind), x)

    def relu(self, x: Any) -> Any:
        """max(x, 0)."""
        return self.activation("relu", x)

    def gelu(self, x: Any) -> Any:
        """x times the normal distribution's cumulative function."""
        return self.activation("gelu", x)

    def silu(self, x: Any) -> Any:
        """x * sigmoid(x)."""
        return self.activation("silu", x)

    def cast(self, x: Any, dtype: Any) -> Any:
        """Convert to another element type."""
        return self.apply(lambda value: value.astype(DType.of(dtype).dtype), x)

    # ------------------------------------------------------------------ linear algebra
    def matmul(self, x: Any, y: Any, shape: Any = None) -> Any:
        """Matrix product; leading axes broadcast."""
        return self._checked(shape, jnp.matmul, x, y)

    def dot_general(self, x: Any, y: Any, dimension_numbers: Any, shape: Any = None) -> Any:
        """Contraction: ((contracting axes of x, of y), (batch axes of x, of y))."""
        return self._checked(shape, lambda a, b: lax.dot_general(a, b, dimension_numbers), x, y)

    def linear(self, x: Any, weight: Any, bias: Any = None, activation: str | None = None) -> Any:
        """activation(x @ weight + bias), fused into one kernel if the backend supports it."""
        result = self.matmul(x, weight)
        result = result if bias is None else self.add(result, bias)
        return result if activation is None else self.activation(activation, result)

    def swiglu(self, x: Any, gate: Any, up: Any) -> Any:
        """silu(x @ gate) * (x @ up)."""
        return self.mul(self.silu(self.matmul(x, gate)), self.matmul(x, up))

    def solve(self, matrix: Any, rhs: Any) -> Any:
        """The solution of matrix @ x = rhs; leading axes are batches."""
        return self.apply(jnp.linalg.solve, matrix, rhs)

    # ------------------------------------------------------------------ shape
    def reshape(self, x: Any, sizes: Sequence[int]) -> Any:
        """The elements in order under other sizes; one may be -1."""
        return self.apply(lambda value: jnp.reshape(value, tuple(sizes)), x)

    def transpose(self, x: Any, permutation: Sequence[int]) -> Any:
        """The axes in another order."""
        return self.apply(lambda value: jnp.transpose(value, tuple(permutation)), x)

    def narrow(self, x: Any, axis: int, start: int, length: int) -> Any:
        """`length` elements along an axis."""
        return self.apply(lambda value: lax.slice_in_dim(value, start, start + length, axis=axis), x)

    def concat(self, operands: Sequence[Any], axis: int = 0) -> Any:
        """The operands one after another along an axis."""
        return self.apply(lambda *values: jnp.concatenate(values, axis), *operands)

    def expand(self, x: Any, sizes: Sequence[int]) -> Any:
        """x broadcast to sizes."""
        return self.apply(lambda value: jnp.broadcast_to(value, tuple(sizes)), x)

    def gather(self, x: Any, indices: Any, axis: int = 0) -> Any:
        """The slices of x at integer indices."""
        return self.apply(lambda value, index: jnp.take(value, index, axis=axis), x, indices)

    def scatter_add(self, x: Any, indices: Any, updates: Any) -> Any:
        """x with rows added at integer indices; a repeated index adds repeatedly."""
        return self.apply(lambda value, index, rows: value.at[index].add(rows), x, indices, updates)

    # ------------------------------------------------------------------ reductions
    def reduce(self, kind: str, x: Any, axes: Any = None, keep_dim: bool = False, shape: Any = None) -> Any:
        """One of REDUCTIONS over axes (None: all)."""
        function = _choose("reduction", REDUCTIONS, kind)
        where = axes if axes is None or isinstance(axes, int) else tuple(axes)
        return self._checked(shape, lambda value: function(value, axis=where, keepdims=keep_dim), x)

    def softmax(self, x: Any, axis: int = -1) -> Any:
        """exp(x) divided by its sum along an axis."""
        return self.apply(lambda value: nn.softmax(value, axis=axis), x)

    def cumsum(self, x: Any, axis: int = 0, exclusive: bool = False) -> Any:
        """Running sums; exclusive sums leave out the element itself."""

        def run(value: Any) -> Any:
            sums = jnp.cumsum(value, axis=axis)
            if not exclusive:
                return sums
            zero = jnp.zeros_like(lax.slice_in_dim(sums, 0, min(1, sums.shape[axis]), axis=axis))
            return jnp.concatenate(
                [zero, lax.slice_in_dim(sums, 0, max(0, sums.shape[axis] - 1), axis=axis)], axis
            )

        return self.apply(run, x)

    def topk(self, x: Any, k: int) -> tuple[Any, Any]:
        """The k largest along the last axis, and their integer positions."""
        values, positions = self.apply(lambda value: lax.top_k(value, k), x)
        return values, positions

    # ------------------------------------------------------------------ layers
    def layer_norm(
        self, x: Any, gamma: Any = None, beta: Any = None, axis: int = -1, eps: float = 1e-5
    ) -> Any:
        """Mean 0 and variance 1 along an axis, scaled and shifted."""
        return self.apply(lambda *v: nn.layer_norm(*v, axis=axis, epsilon=eps), x, gamma, beta)

    def rms_norm(self, x: Any, gamma: Any = None, axis: int = -1, eps: float = 1e-6) -> Any:
        """Divided by the root of the mean square along an axis, scaled."""
        return self.apply(lambda *v: nn.rms_norm(*v, axis=axis, epsilon=eps), x, gamma)

    def group_norm(self, x: Any, gamma: Any, beta: Any, num_groups: int, eps: float = 1e-5) -> Any:
        """Normalised over groups of channels; x has axes (batch, channel, ...)."""
        return self.apply(group_norm, x, gamma, beta, num_groups=num_groups, eps=eps)

    def attention(
        self,
        query: Any,
        key: Any,
        value: Any,
        num_heads: int,
        mask_kind: str = "none",
        mask: Any = None,
        window: int | None = None,
        score_scale: float | None = None,
        softcap: float | None = None,
    ) -> Any:
        """Attention over (batch, sequence, heads * features); mask_kind: one of MASK_KINDS."""
        _choose("mask kind", dict.fromkeys(MASK_KINDS), mask_kind)
        options: dict[str, Any] = dict(
            num_heads=num_heads, mask_kind=mask_kind, window=window, scale=score_scale, softcap=softcap
        )
        return self.apply(lambda *values: attention(*values, **options), query, key, value, mask)

    def rope(self, x: Any, cosines: Any, sines: Any) -> Any:
        """Rotary embedding of (..., sequence, features); tables (sequence, at most features / 2)."""
        return self.apply(rope, x, cosines, sines)

    def conv2d(
        self,
        x: Any,
        kernel: Any,
        stride: Sequence[int] = (1, 1),
        padding: Sequence[int] = (0, 0),
        dilation: Sequence[int] = (1, 1),
        groups: int = 1,
    ) -> Any:
        """Convolution of (batch, channel, height, width)."""
        options: dict[str, Any] = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
        return self.apply(lambda *values: convolution(*values, **options), x, kernel)

    def pool(
        self,
        kind: str,
        x: Any,
        window: Sequence[int],
        stride: Sequence[int] | None = None,
        padding: Sequence[int] = (0, 0),
    ) -> Any:
        """ "max", "mean" or "sum" over windows of the last two axes; padding is ignored."""
        return self.apply(lambda value: pool(kind, value, window, stride or window, padding), x)

    def fft(self, x: Any, inverse: bool = False, norm: str | None = None) -> Any:
        """Fourier transform along the last axis, of complex values."""
        return self.apply(lambda value: (fourier_inverse if inverse else fourier)(value, norm=norm), x)

    # ------------------------------------------------------------------ control flow
    def cond(
        self, predicate: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any
    ) -> Any:
        """then(*operands) or otherwise(*operands); both are functions or graphs."""
        return self.apply(lambda p, *values: lax.cond(p, then, otherwise, *values), predicate, *operands)

    def while_loop(
        self, condition: Callable[..., Any], body: Callable[..., Any], *carries: Any
    ) -> tuple[Any, ...]:
        """The carries after repeating `body(*carries)` while `condition(*carries)` is true."""

        def step(values: tuple[Any, ...]) -> tuple[Any, ...]:
            found = body(*values)
            return tuple(found) if isinstance(found, (tuple, list)) else (found,)

        def run(*values: Any) -> Any:
            return lax.while_loop(lambda state: condition(*state), step, values)

        results: tuple[Any, ...] = self.apply(run, *carries)
        return results

    def scan(self, body: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None = None) -> Any:
        """(final carry, stacked outputs) of body(carry, x) -> (carry, output)."""
        return self.apply(lambda carry, slices: lax.scan(body, carry, slices, length), init, xs)
