"""Tensor parallel layers: products whose weights are divided by columns, then by rows, over a named axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx import lax, nn
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.ops.variation import fan_in, fan_out
from rlx.trace.flat import as_array
from rlx.trace.tracing import axis_named
from rlx.trees import tree

__all__ = ["attention", "column_parallel", "copied", "feed_forward", "row_parallel", "summed"]

Tree = Any


def copied(x: Tree, axis_name: Any) -> Tree:
    """x, which is equal on all members of an axis, at the point where the members' computations diverge (Megatron's f).

    The value is x. Its cotangent is the sum of all members' cotangents, a psum that can run at any time. Applied to
    parameters layer by layer, it is data-parallel training whose sums overlap with the rest of the backward pass.

    Args:
      x: an array, or a tree of them. axis_name: the name of a mapped axis.

    Raises: AxisNameError for an axis that is not in scope.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.parallel import copied
    >>> slope = lambda own: rlx.grad(lambda w: own * copied(w, "x"))(1.0)
    >>> rlx.vmap(slope, axis_name="x")(jnp.array([2.0, 3.0])).tolist()
    [5.0, 5.0]
    """
    axis = axis_named(axis_name)
    if axis.alone:
        return x
    if axis.tracked:  # reverse mode tracks values that are equal on all members
        return lax.pcast(x, axis_name, to="varying")
    return tree.map(lambda leaf: fan_out(as_array(leaf), axis_name=(axis_name,)), x)


def summed(x: Tree, axis_name: Any) -> Tree:
    """The sum over an axis, after which all members continue with the same value (Megatron's g).

    The value is psum's. Its cotangent, equal on all members, is the cotangent of each summand: nothing is sent for it.

    Args:
      x: an array, or a tree of them. axis_name: the name of a mapped axis.

    Raises: AxisNameError for an axis that is not in scope.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.parallel import summed
    >>> slope = lambda own: rlx.grad(lambda x: summed(x, "x") ** 2)(own)
    >>> rlx.vmap(slope, axis_name="x")(jnp.array([2.0, 3.0])).tolist()
    [10.0, 10.0]
    """
    axis = axis_named(axis_name)
    if axis.alone or axis.tracked:
        return lax.psum(x, axis_name)
    return tree.map(lambda leaf: fan_in(as_array(leaf), axis_name=(axis_name,)), x)


def column_parallel(x: Any, weight: Any, axis_name: Any, bias: Any = None) -> Array:
    """This member's columns of x @ weight + bias.

    The forward pass sends nothing; the backward pass sums the cotangent of x over the axis.

    Args:
      x: (..., inputs), equal on all members. weight: (inputs, outputs / n), this member's columns.
      axis_name: the name of a mapped axis of n members. bias: (outputs / n,), or None.

    Returns: (..., outputs / n).

    Raises: ShapeError if x and weight are incompatible; AxisNameError for an axis that is not in scope.

    >>> import numpy as np, rlx
    >>> from rlx.parallel import column_parallel
    >>> x, w = np.ones((2, 3), np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    >>> product = rlx.vmap(lambda part: column_parallel(x, part, "m"), in_axes=1, out_axes=1, axis_name="m")
    >>> np.array_equal(np.asarray(product(w.reshape(3, 2, 2))).reshape(2, 4), x @ w)
    True
    """
    product = lax.dot_general(copied(as_array(x), axis_name), as_array(weight), _numbers(x, weight, "column_parallel"))
    return product if bias is None else product + bias


def row_parallel(x: Any, weight: Any, axis_name: Any, bias: Any = None) -> Array:
    """x @ weight + bias, if members have columns of x and rows of weight.

    The forward pass sums the products over the axis; the backward pass sends nothing.

    Args:
      x: (..., inputs / n), this member's columns. weight: (inputs / n, outputs), its rows.
      axis_name: the name of a mapped axis of n members. bias: (outputs,), equal on all, or None.

    Returns: (..., outputs), equal on all members.

    Raises: ShapeError if x and weight are incompatible; AxisNameError for an axis that is not in scope.

    >>> import numpy as np, rlx
    >>> from rlx.parallel import row_parallel
    >>> x, w = np.ones((2, 4), np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
    >>> product = rlx.vmap(lambda x, part: row_parallel(x, part, "m"), in_axes=(1, 0), axis_name="m")
    >>> product(x.reshape(2, 2, 2), w.reshape(2, 2, 3))[0].tolist() == (x @ w).tolist()
    True
    """
    product = summed(lax.dot_general(as_array(x), as_array(weight), _numbers(x, weight, "row_parallel")), axis_name)
    return product if bias is None else product + bias


def _numbers(x: Any, weight: Any, name: str) -> Any:
    shapes = as_array(x).shape, as_array(weight).shape
    if not shapes[0] or len(shapes[1]) != 2 or shapes[0][-1] != shapes[1][0]:
        raise ShapeError(
            f"parallel.{name} got x of shape {shapes[0]} and a weight of shape {shapes[1]}.",
            "Pass this member's parts: x (..., k) and weight (k, m).",
        )
    return (((len(shapes[0]) - 1,), (0,)), ((), ()))


def feed_forward(x: Any, up: Any, down: Any, axis_name: Any, activation: Callable[[Any], Any] = nn.gelu) -> Array:
    """activation(x @ up) @ down, with the hidden units divided over an axis: one psum forward, one backward.

    Args:
      x: (..., width), equal on all members. up: (width, hidden / n), this member's columns. down: (hidden / n, width),
      its rows. axis_name: the name of a mapped axis of n members. activation: elementwise.

    Returns: (..., width), equal on all members. Raises as column_parallel and row_parallel.

    >>> import numpy as np, rlx
    >>> from rlx.parallel import feed_forward
    >>> x, up, down = (np.ones(shape, np.float32) for shape in ((5, 4), (2, 4, 3), (2, 3, 4)))
    >>> f = rlx.vmap(lambda up, down: feed_forward(x, up, down, "m"), axis_name="m")
    >>> f(up, down).shape
    (2, 5, 4)
    """
    return row_parallel(activation(column_parallel(x, up, axis_name)), down, axis_name)


def attention(x: Any, query: Any, key: Any, value: Any, out: Any, axis_name: Any, heads: int, **options: Any) -> Array:
    """Self-attention with its heads divided over an axis: one psum forward, one backward.

    Args:
      x: (length, width) or (batch, length, width), equal on all members.
      query, key, value: (width, heads / n * features), the columns of this member's heads.
      out: (heads / n * features, width), their rows.
      axis_name: the name of a mapped axis of n members. heads: the total number of heads.
      options: options of rlx.nn.dot_product_attention, such as is_causal.

    Returns: an array of x's shape, equal on all members.

    Raises: ShapeError if the axis size does not divide the number of heads.

    >>> import numpy as np, rlx
    >>> from rlx.parallel import attention
    >>> x, weights = np.ones((5, 4), np.float32), np.ones((2, 4, 4), np.float32)
    >>> f = rlx.vmap(lambda w: attention(x, w, w, w, w, "m", heads=4, is_causal=True), axis_name="m")
    >>> f(weights).shape
    (2, 5, 4)
    """
    members = lax.axis_size(axis_name)
    if heads % members:
        raise ShapeError(f"parallel.attention got {heads} heads for {members} members.", "Each has the same number.")
    x = copied(as_array(x), axis_name)  # once for three products: cotangents are added before sending
    parts = (lax.dot_general(x, as_array(w), _numbers(x, w, "attention")) for w in (query, key, value))
    q, k, v = (lax.reshape(y, (*y.shape[:-1], heads // members, y.shape[-1] * members // heads)) for y in parts)
    mixed = nn.dot_product_attention(q, k, v, **options)
    return row_parallel(lax.reshape(mixed, (*mixed.shape[:-2], out.shape[0])), out, axis_name)
