"""jit with in_shardings and out_shardings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import product
from typing import Any

from rlx.array import parts_of
from rlx.call.cache import SignatureEntry
from rlx.call.jitted import Jitted, Request
from rlx.errors import InputTypeError, ShardingError
from rlx.sharding.blocks import check_move, check_reach, spans
from rlx.sharding.mesh import Mesh
from rlx.sharding.shardings import NamedSharding, Sharding
from rlx.sharding.spec import UNCONSTRAINED, PartitionSpec
from rlx.sharding.stacks import stack_axes
from rlx.sharding.trees import check_shape, divided_so, on_devices, placed, placed_all, resolve, spread
from rlx.trace.builder import is_traced
from rlx.trace.flat import is_float0, shared_array
from rlx.trace.spanning import is_spanning
from rlx.trees import tree

__all__ = ["ShardedJitted", "sharded_jitted"]


class ShardedJitted(Jitted):
    """A jitted function with shardings of its arguments and results; see `rlx.jit`.

    The shardings are checked when the function is traced. On one device, arguments are not moved, and results have
    the given shardings.
    """

    def __init__(self, fun: Callable[..., Any], in_shardings: Any, out_shardings: Any, **options: Any) -> None:
        self.options = options
        # a list stands for the tuple of arguments
        self.in_shardings = tuple(in_shardings) if isinstance(in_shardings, list) else in_shardings
        self.out_shardings = out_shardings
        _check_leaves("in_shardings", self.in_shardings)
        _check_leaves("out_shardings", out_shardings)
        self.plain_fun = fun

        @wraps(fun)
        def checked(*args: Any, **kwargs: Any) -> Any:
            return _checked(self, *args, **kwargs)

        super().__init__(checked, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.refuse_keywords(kwargs)
        return self.delivered(super().__call__(*args, **kwargs))

    def _trace(self, request: Request) -> SignatureEntry:
        if self.in_shardings is not None:
            dynamic = request.arguments.split.args
            for x, sharding in zip(tree.leaves(dynamic), self.of_arguments(dynamic), strict=True):
                _refuse_other_place(self.name, x, sharding)
        return super()._trace(request)

    def delivered(self, out: Any) -> Any:
        """The results, with the shardings of out_shardings."""
        if self.out_shardings is None:
            return out
        leaves, treedef = tree.flatten(out)
        return tree.unflatten(treedef, placed_all(leaves, self.of_results(out)))

    def refuse_keywords(self, kwargs: dict[str, Any]) -> None:
        """Raises ShardingError for keyword arguments where in_shardings speak of positional ones."""
        if self.in_shardings is not None and any(name not in self.roles.static_argnames for name in kwargs):
            raise ShardingError(
                f"{self.name} has in_shardings and was called with keyword arguments {', '.join(kwargs)}.",
                "in_shardings are for positional arguments: pass them by position.",
            )

    def of_arguments(self, dynamic: tuple[Any, ...]) -> list[Sharding | None]:
        """The sharding of each leaf of the arguments that are not static."""
        return self._of("in_shardings", self.in_shardings, dynamic)

    def of_results(self, out: Any) -> list[Sharding | None]:
        """The sharding of each leaf of the result."""
        return self._of("out_shardings", self.out_shardings, out)

    def shardings_of_arguments(self, undivided: Any) -> Any:
        """The shardings of in_shardings, and `undivided` for unspecified ones."""
        return undivided if self.in_shardings is None else _or_else(self.of_arguments(undivided), undivided)

    def shardings_of_results(self, undivided: Any) -> Any:
        """The shardings of out_shardings, and `undivided` for unspecified ones."""
        return undivided if self.out_shardings is None else _or_else(self.of_results(undivided), undivided)

    def _of(self, option: str, given: Any, values: Any) -> list[Sharding | None]:
        owner = f"{option} of {self.name}"
        found = [on_devices(resolve(owner, entry)) for entry in spread(owner, given, values)]
        # unspecified ones use the same mesh
        meshes = [s.mesh for s in found if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh)]
        rest = NamedSharding(meshes[0], PartitionSpec()) if meshes else None
        return [rest if s is None else s for s in found]

    def on(self, device: str) -> ShardedJitted:
        """The same function with the same options on a device."""
        return sharded_jitted(self.plain_fun, self.in_shardings, self.out_shardings, {**self.options, "device": device})

    def __reduce__(self) -> Any:
        found = super().__reduce__()
        if isinstance(found, str):
            return found
        return sharded_jitted, (self.plain_fun, self.in_shardings, self.out_shardings, self.options)


def _refuse_other_place(name: str, x: Any, wanted: Sharding | None) -> None:
    """Raises ShardingError for an argument that was divided in another way than in_shardings say."""
    have = getattr(x, "_sharding", None)
    if not isinstance(have, NamedSharding) or have.num_devices == 1 or wanted is None:
        return
    if not have.is_equivalent_to(wanted, x.ndim):
        raise ShardingError(
            f"{name} has in_shardings of {wanted!r} for an argument that is divided as {have!r}.",
            "Divide the argument so first: rlx.device_put(x, sharding), or leave in_shardings out.",
        )


def _or_else(shardings: Sequence[Sharding | None], undivided: Any) -> Any:
    """The shardings in the structure of `undivided`, whose leaves are the default."""
    leaves, structure = tree.flatten(undivided)
    return tree.unflatten(structure, [found or leaf for found, leaf in zip(shardings, leaves, strict=True)])


def sharded_jitted(
    fun: Callable[..., Any], in_shardings: Any, out_shardings: Any, options: dict[str, Any]
) -> ShardedJitted:
    """A jitted function with in_shardings, out_shardings and other options of `jit`."""
    return ShardedJitted(fun, in_shardings, out_shardings, **options)


def _checked(jitted: ShardedJitted, *args: Any, **kwargs: Any) -> Any:
    """The user's function while it is traced, of arguments and with results of the given shardings."""
    if jitted.in_shardings is not None:
        split = jitted.roles.split(args, kwargs)
        dynamic = split.args
        shardings = jitted.of_arguments(dynamic)
        for leaf, sharding in zip(tree.leaves(dynamic), shardings, strict=True):
            if is_spanning(leaf):
                divided_so(leaf, sharding)
        args = split.complete(_lying_so(f"in_shardings of {jitted.name}", dynamic, shardings))
    out = jitted.plain_fun(*args, **kwargs)
    if jitted.out_shardings is None:
        return out
    shardings = jitted.of_results(out)
    for leaf, sharding in product(tree.leaves((args, kwargs)), shardings):
        check_move(leaf, sharding)  # also if a result is whole in every process: computing it exchanges parts
    return _lying_so(f"out_shardings of {jitted.name}", out, shardings)


def _lying_so(owner: str, values: Any, shardings: Sequence[Sharding | None]) -> Any:
    """The values with these shardings, divided among processes. Raises ShardingError for other shapes."""
    leaves, treedef = tree.flatten(values)
    for leaf, sharding in zip(leaves, shardings, strict=True):
        check_reach(sharding)
        check_shape(owner, sharding, leaf.shape if is_float0(leaf) else shared_array(leaf).shape)
    return tree.unflatten(treedef, [_lies_so(x, s) for x, s in zip(leaves, shardings, strict=True)])


def _lies_so(x: Any, sharding: Sharding | None) -> Any:
    moves = is_traced(x) or parts_of(x) or spans(sharding) or stack_axes(sharding)
    return placed(x, sharding) if moves else x


def _check_leaves(owner: str, shardings: Any) -> None:
    """Raises InputTypeError for other leaves than shardings, specs and None."""
    for leaf in tree.leaves(shardings):
        if not isinstance(leaf, (Sharding, PartitionSpec)):
            raise InputTypeError(
                f"jit got {leaf!r:.60}, a {type(leaf).__name__}, in {owner}.",
                "Its leaves are shardings, PartitionSpecs (under rlx.set_mesh) and None.",
            )
        spec = leaf if isinstance(leaf, PartitionSpec) else leaf.spec if isinstance(leaf, NamedSharding) else None
        if spec is not None and UNCONSTRAINED in spec.partitions:
            raise ShardingError(f"jit got {leaf!r} in {owner}.", "UNCONSTRAINED is for with_sharding_constraint.")
        if isinstance(leaf, NamedSharding) and leaf.mesh.empty:
            raise ShardingError(f"jit got {leaf!r} in {owner}, whose mesh is empty.", "Leave it out, or pass a mesh.")
