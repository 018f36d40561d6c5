"""The benchmark programs in PyTorch, as its users write them: with its own layer norm, attention and convolutions.

A version is made by a function of (torch, compiled): `compiled` is torch.compile, or leaves a function alone. What it
returns takes the arguments of the program of that name in `programs`, as tensors, and gives the same leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.programs import Function

Wrapper = Callable[[Function], Function]

__all__ = ["torch_programs"]

torch_programs: dict[str, Callable[[Any, Wrapper], Function]] = {}


def version(build: Callable[[Any, Wrapper], Function]) -> Callable[[Any, Wrapper], Function]:
    """Decorator: list the function under its own name."""
    torch_programs[build.__name__] = build
    return build


def leaves(tree: Any) -> list[Any]:
    """The tensors of lists, tuples and dicts, in the order of JAX's trees."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, (list, tuple)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def gradient(torch: Any, loss: Function, weights: int = 1) -> Function:
    """The loss and its gradient with respect to the first `weights` arguments."""

    def step(*arguments: Any) -> Any:
        wanted = [leaf.requires_grad_(True) for leaf in leaves(arguments[:weights])]
        value = loss(*arguments)
        return value.detach(), torch.autograd.grad(value, wanted)

    return step


# ------------------------------------------------------------------ elementwise work and rows
@version
def elementwise_chain(torch: Any, compiled: Wrapper) -> Function:
    """Eight cheap operations."""
    return compiled(lambda x, y: torch.sqrt(x * x + y * y + 1.0) - 0.5 * torch.abs(x - y) + 3.0 * x)


def _waves(torch: Any, x: Any) -> Any:
    return torch.exp(-0.5 * x * x) * torch.cos(3.0 * x) + torch.tanh(x) * torch.log1p(torch.abs(x))


@version
def elementwise_functions(torch: Any, compiled: Wrapper) -> Function:
    """exp, cos, tanh and log1p."""
    return compiled(lambda x: _waves(torch, x))


@version
def elementwise_gradient(torch: Any, compiled: Wrapper) -> Function:
    """The gradient of a summed chain."""
    step = gradient(torch, compiled(lambda x: _waves(torch, x).sum()))
    return lambda x: step(x)[1]


@version
def sum_of_all(torch: Any, compiled: Wrapper) -> Function:
    """One sum."""
    return compiled(lambda x: x.sum())


@version
def sum_of_squares(torch: Any, compiled: Wrapper) -> Function:
    """One sum of squares."""
    return compiled(lambda x: (x * x).sum())


@version
def sum_of_columns(torch: Any, compiled: Wrapper) -> Function:
    """Sums along the first axis."""
    return compiled(lambda x: x.sum(0))


@version
def softmax_rows(torch: Any, compiled: Wrapper) -> Function:
    """Softmax of rows."""
    return compiled(lambda x: torch.softmax(x, -1))


@version
def layer_norm_rows(torch: Any, compiled: Wrapper) -> Function:
    """Layer norm of rows."""
    norm = torch.nn.functional.layer_norm
    return compiled(lambda x, scale, shift: norm(x, (x.shape[-1],), scale, shift))


@version
def layer_norm_gradient(torch: Any, compiled: Wrapper) -> Function:
    """Gradients with respect to all three operands."""
    norm = torch.nn.functional.layer_norm
    loss = compiled(lambda x, scale, shift, weights: (norm(x, (x.shape[-1],), scale, shift) * weights).sum())
    step = gradient(torch, loss, weights=3)
    return lambda *arguments: step(*arguments)[1]


# ------------------------------------------------------------------ networks
@version
def convolution_gradient(torch: Any, compiled: Wrapper) -> Function:
    """Loss and gradient of strided convolutions; "SAME" pads behind here, as all sizes are even."""
    functional = torch.nn.functional

    def loss(weights: Any, images: Any, labels: Any) -> Any:
        x = images.permute(0, 3, 1, 2)
        for kernel in weights[:-1]:
            padded = functional.pad(x, (0, 1, 0, 1))
            x = functional.relu(functional.conv2d(padded, kernel.permute(3, 2, 0, 1), stride=2))
        return functional.cross_entropy(x.mean((2, 3)) @ weights[-1], labels)

    return gradient(torch, compiled(loss))


@version
def transformer_gradient(torch: Any, compiled: Wrapper) -> Function:
    """Loss and gradient of a GPT."""
    functional, heads = torch.nn.functional, 3

    def attend(x: Any, block: Any) -> Any:
        batch, length, width = x.shape
        parts = (x @ block["attend"]).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, length, width) @ block["mix"]

    def loss(weights: Any, tokens: Any) -> Any:
        x = functional.embedding(tokens[:, :-1], weights["words"]) + weights["places"]
        width = x.shape[-1]
        for block in weights["blocks"]:
            x = x + attend(functional.layer_norm(x, (width,), *block["norm"]), block)
            inner = functional.layer_norm(x, (width,), *block["norm"]) @ block["up"]
            x = x + functional.gelu(inner, approximate="tanh") @ block["down"]
        scores = x @ weights["words"].T
        return functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten().long())

    return gradient(torch, compiled(loss))


# ------------------------------------------------------------------ movement, calls, products
@version
def sort_vector(torch: Any, compiled: Wrapper) -> Function:
    """One sort."""
    return compiled(lambda x: torch.sort(x).values)


@version
def argsort_vector(torch: Any, compiled: Wrapper) -> Function:
    """One order, equal elements as they stand."""
    return compiled(lambda x: torch.argsort(x, stable=True))


@version
def cumulative_sum(torch: Any, compiled: Wrapper) -> Function:
    """Running sums of rows."""
    return compiled(lambda x: torch.cumsum(x, 1))


@version
def gather_rows(torch: Any, compiled: Wrapper) -> Function:
    """Rows of a table."""
    return compiled(lambda table, rows: table[rows])


@version
def dispatch_one_array(torch: Any, compiled: Wrapper) -> Function:
    """A call with one small tensor."""
    return compiled(lambda x: x * 2.0)


@version
def dispatch_tree(torch: Any, compiled: Wrapper) -> Function:
    """A call with a dict of tensors."""
    return compiled(lambda tensors: {name: x * 2.0 for name, x in tensors.items()})


@version
def matrix_product(torch: Any, compiled: Wrapper) -> Function:
    """One product."""
    return compiled(torch.matmul)


@version
def batched_matrix_product(torch: Any, compiled: Wrapper) -> Function:
    """Products of small matrices."""
    return compiled(torch.matmul)
