"""rlx.export_c: a function as a C file and a header that need only C99 and libm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from rlx.backends.c.dialect import C_KEYWORDS, CDialect
from rlx.backends.c.files import CFiles, CFunction
from rlx.backends.c.sized import SizedFunction
from rlx.backends.claims import Claims
from rlx.call.jit import jit
from rlx.call.stages import ShapeDtypeStruct, Traced
from rlx.errors import OptionError
from rlx.export.exported import export
from rlx.export.sizes import Unknowns, evaluate_shape, unknowns_in
from rlx.ir.options import LoweringOptions
from rlx.ir.packed_sums import PACKED_SUM, takes_packed_sum
from rlx.ir.program import Program
from rlx.ir.splats import SPLAT_BLOCKS, takes_splats
from rlx.ir.types import TensorType
from rlx.passes.pipeline import Context, lower_to_plan
from rlx.planning.in_place import results_over_arguments
from rlx.planning.memory import place_temporaries
from rlx.standalone.leaves import free_name, places
from rlx.standalone.output_paths import without_ending, write_all
from rlx.standalone.parameter_values import weight_file, with_values
from rlx.standalone.sized_c import sized_files, with_sized_places
from rlx.trace.flat import shared_array
from rlx.trees import tree

__all__ = ["CFiles", "c_function", "export_c"]


def export_c(
    f: Callable[..., Any],
    *types: Any,
    path: str | Path | None = None,
    name: str | None = None,
    blas: bool = False,
    donate_argnums: int | Sequence[int] = (),
    params: Any = None,
    weights: Literal["source", "file"] = "source",
    cmake: bool = False,
) -> CFiles:
    """The source of a C file with `f` as a function, and its header. They need only C99 and libm, and do not allocate.

    The function is `void name(const float *x, ..., float *out)`: it takes a pointer to each leaf of the arguments, in
    the order of `rlx.tree.leaves(types)`, then one to each leaf of the result, which it writes. The header documents
    each, and has macros for their sizes. The function works in static memory, so only one call may run at a time;
    `name_in` does the same in NAME_ARENA_BYTES bytes of memory that the caller passes. Values captured by f are part of
    the source.

    If shapes contain symbolic sizes (rlx.export.symbolic_shape), the function takes their values first, as int64_t, and
    the arena last; `name_arena_bytes` gives its size for these values. Sizes are at least 1.

    Args:
      f: a function of arrays, as for jit; also its derivatives.
      types: an array, a number or a rlx.ShapeDtypeStruct for each argument, or a tree of those.
      path: the output files are path.c and path.h; an ending .c or .h is left out.
      name: the C function's name; by default the last part of `path`, or the name of f.
      blas: call CBLAS for matrix products, which must then be linked; otherwise they are loops.
      donate_argnums: arguments that results replace, such as parameters and an optimiser's state. A leaf of them is
        overwritten by the first result of its shape and dtype, and both are one parameter of the C function, in the
        argument's place. A training loop then copies nothing.
      params: the first argument of f, which the C function does not have: its arrays become constants. Quantised arrays
        keep their codes. `types` are those of the other arguments. None: there is no such argument.
      weights: where constants are: "source" writes them as `static const` arrays, "file" to path.safetensors. The C
        function then takes the address of that file's contents first.
      cmake: also write a CMakeLists.txt into the folder of `path`, with the function as a library.

    Returns: the files' contents, as `.source`, `.header`, `.weights` and `.cmake`.

    Linear systems, Cholesky, LU, QR, eigh, svd and Fourier transforms become loops and products.

    Raises: UnsupportedError, by name, for operations that only the host can run (general eigenvalues, Schur forms,
      callbacks, hyp1f1, hyp2f1, jv, gammaincinv, complex wofz). ShapeError if the program depends on a symbolic size
      other than through numbers. OptionError for another value of `weights`, and for donated params.

    >>> import rlx, rlx.numpy as jnp
    >>> def loss(w, x):
    ...     return jnp.mean(jnp.tanh(x @ w) ** 2)
    >>> w, x = rlx.ShapeDtypeStruct((3,), "float32"), rlx.ShapeDtypeStruct((8, 3), "float32")
    >>> files = rlx.export_c(rlx.grad(loss), w, x)
    >>> next(line for line in files.header.splitlines() if line.startswith("void"))
    'void loss(const float *w, const float *x, float *out);'
    """
    stem = without_ending(path, ".c", ".h")
    own = None if stem is None else stem.name
    chosen: dict[str, Any] = {
        "name": name or own, "header": own and f"{own}.h", "blas": blas, "donate_argnums": donate_argnums,
        "params": params, "weights": weights,
    }  # fmt: skip
    unknowns = unknowns_in([leaf for leaf in tree.leaves((params, types)) if isinstance(leaf, ShapeDtypeStruct)])
    files = _sized(f, types, unknowns, chosen) if unknowns.names else c_function(f, types, **chosen).texts()
    if cmake:
        library = own or name or "exported"
        files = files._replace(cmake=cmake_text(library, blas))
    write_all(stem, dict(zip((".c", ".h", ".safetensors"), files, strict=False)))
    write_all(None if stem is None else stem.parent / "CMakeLists", {".txt": files.cmake})
    return files


def c_function(
    f: Callable[..., Any],
    types: Sequence[Any],
    name: str | None = None,
    header: str | None = None,
    blas: bool = False,
    donate_argnums: int | Sequence[int] = (),
    params: Any = None,
    weights: Literal["source", "file"] = "source",
    tiles: bool = True,
    sizes: Sequence[str] = (),
    program: Program | None = None,
) -> CFunction:
    """A function in C; see export_c. header: the header's file name, by default the function's.

    tiles: see CDialect. sizes: names of sizes that are the function's first parameters.
    program: the function's program, if it is known.
    """
    if weights not in ("source", "file"):
        raise OptionError(f"weights is {weights!r}.", 'Write "source" or "file".')
    types = types if params is None else (params, *types)
    traced = jit(f, donate_argnums=donate_argnums).trace(*types)
    pairs = _replacements(traced)
    values = [np.asarray(shared_array(leaf, "a leaf of params")) for leaf in tree.leaves(params)]
    if min(traced.donate_argnums, default=len(values)) < len(values):
        raise OptionError(
            "donate_argnums has argument 0, which params makes constant.",
            "Donate other arguments, or leave params out.",
        )
    options = LoweringOptions(least_row_tiles=0)
    if sizes:  # the lengths of sums vary, so that they are not cut
        options = replace(options, chunk_elements=1 << 62)
    claims = Claims(routines=frozenset(), blocks=SPLAT_BLOCKS | {PACKED_SUM}, fits=_fits)
    plan = lower_to_plan(program or traced.closed(), context=Context(options, claims, "c"))
    if pairs:
        plan = place_temporaries(results_over_arguments(plan, pairs), options.alignment)
    chosen = free_name(name or traced.fun_name, set(CDialect.reserved))
    replaced = dict(pairs)
    taken = {*C_KEYWORDS, chosen, "weights"}
    parameters = {size: free_name(size, taken) for size in sizes}
    arguments, results = places(f, types, traced, taken, replaced)
    plan = with_values(plan, [place.name for place in arguments[: len(values)]], values)
    replaced = {argument - len(values): result for argument, result in replaced.items()}
    file = weight_file(plan) if weights == "file" else None
    rest = (chosen, arguments[len(values) :], results, header or f"{chosen}.h", blas, replaced, file)
    return SizedFunction(with_sized_places(plan), *rest, sizes=parameters) if sizes else CFunction(plan, *rest, tiles)


def _sized(f: Callable[..., Any], types: Sequence[Any], unknowns: Unknowns, chosen: Mapping[str, Any]) -> CFiles:
    """The files of a function whose sizes are arguments."""
    held = () if chosen["params"] is None else (chosen["params"],)
    exported = export(f)(*held, *types)
    leaves, structure = tree.flatten(types)

    def function_for(sizes: Mapping[str, int]) -> SizedFunction:
        known = [
            leaf.update(shape=evaluate_shape(leaf.shape, sizes)) if isinstance(leaf, ShapeDtypeStruct) else leaf
            for leaf in leaves
        ]
        program = exported.program(**sizes)
        own = tree.unflatten(structure, known)
        return cast(SizedFunction, c_function(f, own, **chosen, sizes=unknowns.names, program=program))

    return sized_files(function_for, exported.unknowns, exported.fun_name, exported.as_text())


_CMAKE = """cmake_minimum_required(VERSION 3.10)
project(NAME C)

add_library(NAME STATIC NAME.c)
target_include_directories(NAME PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(NAME PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(NAME PRIVATE -ffp-contract=off -fno-math-errno -fno-strict-aliasing)
endif()
if(UNIX)
  target_link_libraries(NAME PUBLIC m)
endif()
"""


def cmake_text(name: str, blas: bool) -> str:
    """A CMakeLists.txt with the C file of this name as a static library."""
    found = f"find_package(BLAS REQUIRED)\ntarget_link_libraries({name} PUBLIC BLAS::BLAS)\n"
    return _CMAKE.replace("NAME", name) + (found if blas else "")


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
