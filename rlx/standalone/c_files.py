"""rlx.export_c: a function as a C file and a header that need only C99 and libm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlx.backends.c.dialect import C_KEYWORDS, CDialect
from rlx.backends.c.files import CFiles, CFunction
from rlx.backends.claims import Claims
from rlx.call.jit import jit
from rlx.call.stages import Traced
from rlx.ir.options import LoweringOptions
from rlx.ir.packed_sums import PACKED_SUM, takes_packed_sum
from rlx.ir.splats import SPLAT_BLOCKS, takes_splats
from rlx.ir.types import TensorType
from rlx.passes.pipeline import Context, lower_to_plan
from rlx.planning.in_place import results_over_arguments
from rlx.planning.memory import place_temporaries
from rlx.standalone.leaves import free_name, places

__all__ = ["CFiles", "c_function", "export_c"]


def export_c(
    f: Callable[..., Any],
    *types: Any,
    path: str | Path | None = None,
    name: str | None = None,
    blas: bool = False,
    donate_argnums: int | Sequence[int] = (),
) -> CFiles:
    """The source of a C file with `f` as a function, and its header. They need only C99 and libm, and do not allocate.

    The function is `void name(const float *x, ..., float *out)`: it takes a pointer to each leaf of the arguments, in
    the order of `rlx.tree.leaves(types)`, then one to each leaf of the result, which it writes. The header documents
    each, and has macros for their sizes. The function works in static memory, so only one call may run at a time;
    `name_in` does the same in NAME_ARENA_BYTES bytes of memory that the caller passes. Values captured by f are part of
    the source.

    Args:
      f: a function of arrays, as for jit; also its derivatives.
      types: an array, a number or a rlx.ShapeDtypeStruct for each argument, or a tree of those.
      path: the output files are path.c and path.h; an ending .c or .h is left out.
      name: the C function's name; by default the last part of `path`, or the name of f.
      blas: call CBLAS for matrix products, which must then be linked; otherwise they are loops.
      donate_argnums: arguments that results replace, such as parameters and an optimiser's state. A leaf of them is
        overwritten by the first result of its shape and dtype, and both are one parameter of the C function, in the
        argument's place. A training loop then copies nothing.

    Returns: both files' contents, as `.source` and `.header`.

    Linear systems, Cholesky, LU, QR, eigh, svd and Fourier transforms become loops and products.

    Raises: UnsupportedError, by name, for operations that only the host can run (general eigenvalues, Schur forms,
      callbacks, hyp1f1, hyp2f1, jv, gammaincinv, complex wofz).

    >>> import rlx, rlx.numpy as jnp
    >>> def loss(w, x):
    ...     return jnp.mean(jnp.tanh(x @ w) ** 2)
    >>> w, x = rlx.ShapeDtypeStruct((3,), "float32"), rlx.ShapeDtypeStruct((8, 3), "float32")
    >>> files = rlx.export_c(rlx.grad(loss), w, x)
    >>> next(line for line in files.header.splitlines() if line.startswith("void"))
    'void loss(const float *w, const float *x, float *out);'
    """
    stem = None if path is None else Path(path).with_suffix("") if Path(path).suffix in (".c", ".h") else Path(path)
    own = None if stem is None else stem.name
    function = c_function(f, types, name or own, own and f"{own}.h", blas, donate_argnums)
    files = function.texts()
    if stem is not None:
        for end, text in zip((".c", ".h"), files, strict=True):
            Path(f"{stem}{end}").write_text(text, encoding="utf-8")
    return files


def c_function(
    f: Callable[..., Any],
    types: Sequence[Any],
    name: str | None = None,
    header: str | None = None,
    blas: bool = False,
    donate_argnums: int | Sequence[int] = (),
    tiles: bool = True,
) -> CFunction:
    """A function in C; see export_c. header: the header's file name, by default the function's; tiles: see CDialect."""
    traced = jit(f, donate_argnums=donate_argnums).trace(*types)
    pairs = _replacements(traced)
    options = LoweringOptions(least_row_tiles=0)
    claims = Claims(routines=frozenset(), blocks=SPLAT_BLOCKS | {PACKED_SUM}, fits=_fits)
    plan = lower_to_plan(traced.closed(), context=Context(options, claims, "c"))
    if pairs:
        plan = place_temporaries(results_over_arguments(plan, pairs), options.alignment)
    chosen = free_name(name or traced.fun_name, set(CDialect.reserved))
    replaced = dict(pairs)
    arguments, results = places(f, types, traced, {*C_KEYWORDS, chosen}, replaced)
    return CFunction(plan, chosen, arguments, results, header or f"{chosen}.h", blas, replaced, tiles)


def _fits(name: str, types: tuple[TensorType, ...], attributes: Mapping[str, Any]) -> bool:
    return takes_packed_sum(types, attributes) if name == PACKED_SUM else takes_splats(name, types, attributes)


def _replacements(traced: Traced) -> list[tuple[int, int]]:
    """The numbers of donated argument leaves, each with the number of the result that replaces it."""
    program = traced.closed()
    free: dict[TensorType, list[int]] = {}
    for number in traced.donate_argnums:
        free.setdefault(_plain(program.input_types[number]), []).append(number)
    found = []
    for number, kind in enumerate(program.output_types):
        if waiting := free.get(_plain(kind)):
            found.append((waiting.pop(0), number))
    return found


def _plain(kind: TensorType) -> TensorType:
    return TensorType(kind.shape, kind.dtype)
