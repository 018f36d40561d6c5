"""jit, and other uses of tracing a function: the shapes of its result, its program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from rlx.array import Device
from rlx.backends import loaded_backends
from rlx.call.cache import CacheInfo, forget_signatures
from rlx.call.descriptions import ShapeDtypeStruct
from rlx.call.hooks import sharding_hooks
from rlx.call.jit_options import memory_limit_of, names_of, numbers_of, refuse_uncallable
from rlx.call.jitted import Jitted
from rlx.call.policy import Policy
from rlx.call.stages import Compiled, Lowered, MemoryAnalysis, Traced
from rlx.errors import InputTypeError, OptionError, UnsupportedError
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.offered_names import LateModule
from rlx.ops.families import full_like
from rlx.trace.once import forget_traces
from rlx.trace.places import forget_operations
from rlx.transforms.programs import clear_transform_cache
from rlx.trees import tree

if TYPE_CHECKING:
    from rlx.passes import pipeline
else:
    pipeline = LateModule("rlx.passes.pipeline")

__all__ = [
    "CacheInfo",
    "Compiled",
    "JitFunction",
    "Jitted",
    "Lowered",
    "MemoryAnalysis",
    "ShapeDtypeStruct",
    "Traced",
    "clear_caches",
    "eval_shape",
    "jit",
    "make_program",
]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
ResultMade = TypeVar("ResultMade", covariant=True)


class JitFunction(Protocol[Parameters, ResultMade]):
    """The result of `jit` for type checkers: the given function with further methods."""

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> ResultMade:
        """Run the compiled program."""
        ...

    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., ResultMade]:
        """A jitted method."""
        ...

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The traced program, for arrays or objects with shapes and dtypes."""
        ...

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The program before it is compiled."""
        ...

    def cache_info(self) -> Any:
        """How often it was traced, and how often it was not."""
        ...

    def clear_cache(self) -> None:
        """Clear the cache of traced programs."""
        ...


@overload
def jit(
    fun: Callable[Parameters, Result],
    *,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Sequence[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Sequence[str] | None = ...,
    device: str | Device | Policy | None = ...,
    backend: str | None = ...,
    keep_unused: bool = ...,
    inline: bool = ...,
    memory_limit: int | None = ...,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    compiler_options: dict[str, Any] | None = ...,
) -> JitFunction[Parameters, Result]: ...
@overload
def jit(
    fun: None = None,
    *,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Sequence[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Sequence[str] | None = ...,
    device: str | Device | Policy | None = ...,
    backend: str | None = ...,
    keep_unused: bool = ...,
    inline: bool = ...,
    memory_limit: int | None = ...,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    compiler_options: dict[str, Any] | None = ...,
) -> Callable[[Callable[Parameters, Result]], JitFunction[Parameters, Result]]: ...
def jit(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    device: str | Device | Policy | None = None,
    backend: str | None = None,
    keep_unused: bool = False,
    inline: bool = False,
    memory_limit: int | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    compiler_options: dict[str, Any] | None = None,
    **unused: Hashable,
) -> Any:
    """Compile `fun`. It is traced once for each combination of argument structure, shapes and dtypes.

    On the CPU, an axis whose size changes between calls is traced with a symbolic size from its second size on. Other
    sizes then use the same program, unless a decision of `fun` or of the compiler is different for them.

    Args:
      fun: a function of arrays, or trees of them. It must be pure: side effects such as printing happen
        while tracing only.
      static_argnums, static_argnames: arguments that are part of the cache key instead of being traced;
        hashable.
      donate_argnums, donate_argnames: arguments whose memory may be reused; they cannot be used again.
      device, backend: the device to run on, or its name: arguments are copied there. If omitted, programs run
        on the device of their arguments, which must all be on one; on the default device if none is an rlx array.
        "auto" or an rlx.placement.Policy chooses a device for each program, unless an argument is on a device.
      memory_limit: bytes that temporaries may take. Values beyond the limit are computed a second time instead
        of being kept (see rlx.checkpoint, which does so by hand); results are the same up to rounding. It
        applies to the outermost jit; arguments, results and constants do not count.
      keep_unused, inline: accepted for compatibility with JAX: the compiler drops and inlines anyway.
      in_shardings, out_shardings: the division of the positional arguments and the results among devices: a
        sharding, a PartitionSpec under rlx.set_mesh, None, or a tree of these that is a prefix of the arguments or
        results. They are checked against shapes; on one device nothing is divided.
      compiler_options: None; XLA's options are not supported.

    Returns: a function of the same arguments, with .trace, .lower, .cache_info, .clear_cache.

    Raises (when called): DeviceError for arguments on several devices; MemoryLimitError if temporaries cannot be
      brought under memory_limit; the errors of tracing.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> @rlx.jit
    ... def f(x):
    ...     return jnp.sqrt(x * x + 1.0)
    >>> f(jnp.zeros(2))
    Array([1., 1.], dtype=float32)
    """
    shardings = None if in_shardings is None and out_shardings is None else (in_shardings, out_shardings)
    _check_options(device, backend, shardings, compiler_options, unused)
    options: dict[str, Any] = dict(
        static_argnums=numbers_of(static_argnums),
        static_argnames=names_of(static_argnames),
        donate_argnums=numbers_of(donate_argnums),
        donate_argnames=names_of(donate_argnames),
        device=_named_device(device, backend),
        memory_limit=memory_limit_of(memory_limit),
    )

    def jitted(function: Callable[..., Any]) -> Jitted:
        refuse_uncallable(function)
        if shardings is None:
            return Jitted(function, **options)
        return sharding_hooks.jitted(function, *shardings, options)

    return jitted if fun is None else jitted(fun)


def _check_options(device: Any, backend: Any, shardings: Any, compiler_options: Any, unused: dict[str, Any]) -> None:
    """Raises OptionError for options of jit that exclude one another or are unknown; UnsupportedError for XLA's."""
    if compiler_options:
        raise UnsupportedError(
            f"jit has no compiler options {', '.join(compiler_options)}.",
            "rlx's options are the switches of rlx.config.",
        )
    if (device is not None or backend is not None) and shardings is not None:
        raise OptionError(
            "jit got a device (or backend), and in_shardings or out_shardings.", "Shardings name their devices."
        )
    if device is not None and backend is not None:
        raise OptionError("jit got device and backend.", "Both name where to compute: pass one.")
    if unused:
        raise OptionError(
            f"jit does not know {', '.join(unused)}.",
            "It takes static_argnums, static_argnames, donate_argnums, donate_argnames, device and memory_limit.",
        )


def _named_device(device: str | Device | Policy | None, backend: str | None) -> str | Policy | None:
    """The name of a device, or a policy."""
    return device.name if isinstance(device, Device) else device or backend


def clear_caches() -> None:
    """Clear every cache of traced and compiled programs in this process.

    >>> import rlx
    >>> f = rlx.jit(lambda x: x + 1.0)
    >>> float(f(1.0)), f.cache_info().currsize
    (2.0, 1)
    >>> rlx.clear_caches()
    >>> f.cache_info().currsize
    0
    """
    forget_signatures()
    pipeline.executables.clear()
    for backend in loaded_backends():
        backend.clear_code()
    forget_operations()
    forget_traces()
    clear_transform_cache()


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Shapes and dtypes of `fun`'s result, without computing it.

    Arguments are arrays or anything with .shape and .dtype, and so may be the results of `fun`. Returns a tree of
    ShapeDtypeStruct.

    >>> import rlx
    >>> rlx.eval_shape(lambda x: x @ x, rlx.ShapeDtypeStruct((3, 3), "float32"))
    ShapeDtypeStruct(shape=(3, 3), dtype=float32)
    """
    try:
        return (fun if isinstance(fun, Jitted) else Jitted(fun)).eval_shape(*args, **kwargs)
    except InputTypeError:
        pass  # the results may already be descriptions

    def described(*args: Any, **kwargs: Any) -> Any:
        return tree.map(_stand_in, fun(*args, **kwargs))

    return Jitted(described).eval_shape(*args, **kwargs)


def _stand_in(x: Any) -> Any:
    """A result that is described already: an array of that type, which is never computed."""
    return full_like(TensorType(x.shape, x.dtype, x.weak_type), 0) if isinstance(x, ShapeDtypeStruct) else x


def make_program(fun: Callable[..., Any]) -> Callable[..., Program]:
    """A function that returns the traced program (HIR) of `fun` instead of running it.

    >>> import rlx
    >>> rlx.make_program(lambda x: x + 1.0)(2.0)
    @program('lambda')
    def lambda_(x0: "weak float32[]"):
        v0 = ops.add(x0, 1.0)  # weak float32[] ...
        return (v0,)
    """

    def traced(*args: Any, **kwargs: Any) -> Program:
        jitted = fun if isinstance(fun, Jitted) else Jitted(fun)
        return jitted.trace(*args, **kwargs).closed()

    return traced
