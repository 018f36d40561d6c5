"""checkpoint: compute intermediate values again for the derivative, and policies of what to keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from rlx.errors import OptionError
from rlx.ops.call import checkpoint as checkpoint_call
from rlx.ops.checkpoint_name import checkpoint_name as checkpoint_name_op
from rlx.trace.flat import FlatFunction, as_array, flatten_call, function_name, named_after
from rlx.trace.once import traces_of
from rlx.trees import tree

__all__ = ["checkpoint", "checkpoint_name", "checkpoint_policies"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@overload
def checkpoint(
    fun: Callable[Parameters, Result],
    *,
    prevent_cse: bool = ...,
    policy: Callable[..., bool] | None = ...,
    static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Sequence[str] = ...,
    concrete: bool = ...,
) -> Callable[Parameters, Result]: ...
@overload
def checkpoint(
    fun: None = None,
    *,
    prevent_cse: bool = ...,
    policy: Callable[..., bool] | None = ...,
    static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Sequence[str] = ...,
    concrete: bool = ...,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]: ...
def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    concrete: bool = False,
) -> Callable[..., Any]:
    """`fun`, whose intermediate values are recomputed in the backward pass instead of stored.

    Args:
      policy: a function of (primitive, *types, **params) that selects the values that are kept;
        see `checkpoint_policies`.
      static_argnums, static_argnames: arguments that are not arrays.
      prevent_cse, concrete: accepted for JAX compatibility; recomputed operations are never merged with the originals.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> float(rlx.grad(rlx.checkpoint(lambda x: jnp.sin(jnp.sin(x))))(0.0))
    1.0
    """
    if fun is None:
        return lambda f: checkpoint(f, policy=policy, static_argnums=static_argnums, static_argnames=static_argnames)
    if policy is not None and not callable(policy):
        raise OptionError(
            f"checkpoint got policy={policy!r:.40}, which is not a function.",
            "Pass one of rlx.checkpoint_policies, for instance rlx.checkpoint_policies.dots_saveable.",
        )
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    traces = traces_of(fun)

    @named_after(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        held = {n % len(args): args[n] for n in static if -len(args) <= n < len(args)}
        moving = [a for i, a in enumerate(args) if i not in held]
        held_names = {k: v for k, v in kwargs.items() if k in names}
        moving_names = {k: v for k, v in kwargs.items() if k not in names}

        def call(*values: Any, **keywords: Any) -> Any:
            rest = iter(values)
            return fun(*[held[i] if i in held else next(rest) for i in range(len(args))], **keywords, **held_names)

        leaves, treedef = flatten_call(moving, moving_names, "an argument of a checkpointed function")
        flat = FlatFunction(call, treedef, name=function_name(fun))
        # the program also depends on which arguments are static, and on their values
        held_values = [part for where, value in (*held.items(), *held_names.items()) for part in (where, value)]
        program, captured, out_tree, cells = traces.find(flat, leaves, [len(args), *held_values])
        outs = checkpoint_call(*captured, *leaves, program=program, policy=policy)
        return tree.unflatten(out_tree, cells.write(outs))

    return function


def checkpoint_name(x: Any, name: str) -> Any:
    """x (an array, or a tree of arrays), with a name by which policies of checkpoint keep it or not.

    >>> import rlx
    >>> from rlx.ad_checkpoint import checkpoint_name
    >>> keep_root = rlx.checkpoint_policies.save_only_these_names("root")
    >>> f = rlx.checkpoint(lambda x: checkpoint_name(x * x, "root") + x, policy=keep_root)
    >>> float(rlx.grad(f)(3.0))
    7.0
    """
    return tree.map(lambda leaf: checkpoint_name_op(as_array(leaf), name=name), x)


Policy = Callable[..., bool]


class checkpoint_policies:
    """Policies for `checkpoint`: which values are kept for the backward pass.

    A policy is a function of (primitive, *types, **params) that returns whether the results of an
    equation are kept.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> f = rlx.checkpoint(lambda w, x: jnp.sum(jnp.sin(x @ w)), policy=rlx.checkpoint_policies.dots_saveable)
    >>> rlx.grad(f)(jnp.zeros((2, 2)), jnp.ones((1, 2))).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """

    @staticmethod
    def everything_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
        """Keep every value."""
        return True

    @staticmethod
    def nothing_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
        """Keep only the arguments."""
        return False

    @staticmethod
    def dots_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
        """Keep the results of matrix products and convolutions."""
        return primitive.name in ("dot_general", "conv_general_dilated")

    @staticmethod
    def dots_with_no_batch_dims_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
        """Keep the results of matrix products without batch dimensions."""
        if primitive.name != "dot_general":
            return False
        _, (left, right) = params["dimension_numbers"]
        return not left and not right

    checkpoint_dots = dots_saveable
    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_only_these_names(*names: str) -> Policy:
        """Keep values that checkpoint_name gave one of the names, and no others."""
        return lambda primitive, *types, **params: _name_of(primitive, params) in names

    @staticmethod
    def save_any_names_but_these(*names: str) -> Policy:
        """Keep values that checkpoint_name gave any other name, and none without a name."""
        return lambda primitive, *types, **params: _name_of(primitive, params) not in (None, *names)

    @staticmethod
    def save_anything_except_these_names(*names: str) -> Policy:
        """Keep every value but those that checkpoint_name gave one of the names."""
        return lambda primitive, *types, **params: _name_of(primitive, params) not in names

    @staticmethod
    def save_from_both_policies(first: Policy, second: Policy) -> Policy:
        """Keep values that either policy keeps."""
        return lambda primitive, *types, **params: (
            first(primitive, *types, **params) or second(primitive, *types, **params)
        )

    @staticmethod
    def save_and_offload_only_these_names(
        *,
        names_which_can_be_saved: Sequence[str],
        names_which_can_be_offloaded: Sequence[str],
        offload_src: str,
        offload_dst: str,
    ) -> Policy:
        """Keep values with a name of either list; there is only one memory, so nothing moves."""
        return checkpoint_policies.save_only_these_names(*names_which_can_be_saved, *names_which_can_be_offloaded)

    @staticmethod
    def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
        """Keep the results of matrix products without batch dimensions; nothing moves."""
        return checkpoint_policies.dots_with_no_batch_dims_saveable


def _name_of(primitive: Any, params: dict[str, Any]) -> str | None:
    return params["name"] if primitive.name == "checkpoint_name" else None
