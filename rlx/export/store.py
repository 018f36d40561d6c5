"""Conversion of functions to the members of a file, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as brief
from typing import Any, BinaryIO

import numpy as np

from rlx.array import ConcreteArray, is_concrete, wrap
from rlx.call.stages import ShapeDtypeStruct
from rlx.errors import RlxError
from rlx.export.archive import ArchiveMember, read_archive, write_archive
from rlx.export.functions import FunctionTemplate
from rlx.export.sizes import Constraint, Size, Unknowns
from rlx.export.structures import described, structure_of
from rlx.ir.extended import KEY_DTYPES
from rlx.ir.types import is_key
from rlx.serialization import safetensors
from rlx.serialization.contents import Broken, Contents
from rlx.serialization.trees import arrays_of, contents_of
from rlx.trace.text import dtype as dtype_named

__all__ = ["read_functions", "write_functions"]

WEIGHTS = "weights.safetensors"
NATIVE = "native/"
MOST_FUNCTIONS = 16
MOST_CONSTRAINTS = 64


def write_functions(
    file: BinaryIO,
    functions: Sequence[FunctionTemplate],
    platforms: Sequence[str],
    native: Mapping[str, bytes] | None = None,
) -> None:
    """Write a function and its derivatives; `native`: object code by the backend's names."""
    names: dict[int, str] = {}
    arrays: dict[str, Any] = {}
    for array in (array for f in functions for array in f.constants.values()):
        if id(_identity(array)) not in names:
            names[id(_identity(array))] = name = f"constant_{len(names)}"
            arrays[name] = array
    contents, dtypes = _contents(arrays)
    members = {f"{number}.mir": ArchiveMember.of(f.text.encode()) for number, f in enumerate(functions)}
    if arrays:
        members[WEIGHTS] = ArchiveMember(safetensors.size(contents), lambda f: safetensors.write(f, contents))
    members |= {NATIVE + name: ArchiveMember.of(code) for name, code in (native or {}).items()}
    listed = [
        {
            "name": f.name,
            "sizes": list(f.unknowns.names),
            "constraints": list(map(str, f.unknowns.constraints)),
            "optimized": f.optimized,
            "in_tree": described(f.in_tree),
            "in_avals": list(map(_aval, f.in_avals)),
            "out_tree": described(f.out_tree),
            "out_avals": list(map(_aval, f.out_avals)),
            "constants": {name: names[id(_identity(array))] for name, array in f.constants.items()},
        }
        for f in functions
    ]
    write_archive(file, {"platforms": list(platforms), "functions": listed, "dtypes": dtypes}, members)


def _identity(array: Any) -> Any:
    """The identity of an array: the memory of its NumPy array."""
    return array.numpy() if is_concrete(array) else array


def _contents(arrays: Mapping[str, Any]) -> tuple[Contents, dict[str, Any]]:
    """Arrays as safetensors stores them; for dtypes that the format lacks, their bytes and the dtype."""
    contents = contents_of(dict(arrays))
    dtypes: dict[str, str] = {}
    plain: dict[str, np.ndarray] = {}
    # widest first, so that all are aligned
    for name, array in sorted(contents.arrays.items(), key=lambda item: -item[1].dtype.itemsize):
        if safetensors.holds(array.dtype):
            plain[name] = array
        else:
            dtypes[name] = array.dtype.name
            plain[name] = np.ascontiguousarray(array)[..., None].view(np.uint8)
    wide = {name: a for name, a in plain.items() if name not in dtypes}
    return Contents({**wide, **{name: plain[name] for name in dtypes}}, contents.texts), dtypes


def _aval(aval: ShapeDtypeStruct) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else str(size) for size in aval.shape]
    found: dict[str, Any] = {"shape": shape, "dtype": aval.dtype.name}
    return {**found, "weak": True} if aval.weak_type else found


# ------------------------------------------------------------------ reading
def read_functions(data: memoryview) -> tuple[list[FunctionTemplate], tuple[str, ...], dict[str, bytes]]:
    """The functions of a file, its platforms, and its object code, which has not been used."""
    manifest, members = read_archive(data)
    weights = members.get(WEIGHTS)
    arrays = {} if weights is None else arrays_of(safetensors.read(weights))
    for name, dtype in _entry(manifest, "dtypes", dict).items():
        arrays[name] = _of_bytes(name, arrays.get(name), dtype)
    listed = _entry(manifest, "functions", list)
    if not 1 <= len(listed) <= MOST_FUNCTIONS:
        raise Broken(f"it has {len(listed)} functions")
    functions = [_function(number, entry, members, arrays) for number, entry in enumerate(listed)]
    native = {name[len(NATIVE) :]: bytes(code) for name, code in members.items() if name.startswith(NATIVE)}
    platforms = _entry(manifest, "platforms", list)
    return functions, tuple(map(str, platforms)), native


def _entry(entries: Any, name: str, kind: type) -> Any:
    found = entries.get(name) if isinstance(entries, dict) else None
    if not isinstance(found, kind):
        raise Broken(f"its manifest has no valid {name}: {brief(found)}")
    return found


def _of_bytes(name: str, array: Any, dtype: Any) -> ConcreteArray:
    kind = _dtype(dtype)
    if array is None or array.dtype != np.uint8 or array.ndim == 0 or array.shape[-1] != kind.itemsize:
        raise Broken(f"its array {name!r:.80} does not contain {kind}")
    return wrap(np.require(array.numpy(), None, "C").view(kind)[..., 0])


def _function(
    number: int, entry: Any, members: Mapping[str, memoryview], arrays: Mapping[str, Any]
) -> FunctionTemplate:
    member = f"{number}.mir"
    if member not in members:
        raise Broken(f"it has no {member}")
    constants = _entry(entry, "constants", dict)
    if unknown := [name for name in constants.values() if not isinstance(name, str) or name not in arrays]:
        raise Broken(f"it has no array {brief(unknown[0])}")
    names = _entry(entry, "sizes", list)
    reason = ""
    try:
        text = str(members[member], "utf-8")
        in_avals, out_avals = (tuple(map(_aval_of, _entry(entry, k, list))) for k in ("in_avals", "out_avals"))
        in_tree, out_tree = (structure_of(entry.get(k)) for k in ("in_tree", "out_tree"))
        if in_tree.num_leaves != len(in_avals) or out_tree.num_leaves != len(out_avals):
            raise Broken("the numbers of leaves of its trees and of its types differ")
        if not all(isinstance(n, str) and n.isidentifier() for n in names):
            raise Broken(f"its sizes have the names {brief(names)}")
        unknowns = Unknowns(tuple(names), _constraints(entry.get("constraints", []), names))
        held = {name: arrays[at] for name, at in constants.items()}
        name = _entry(entry, "name", str)
        optimized = bool(entry.get("optimized"))
        return FunctionTemplate(name, text, held, unknowns, in_tree, in_avals, out_tree, out_avals, optimized)
    except Broken as broken:
        reason = str(broken)
    except RlxError as error:
        reason = error.what
    except (ValueError, TypeError, RecursionError, UnicodeDecodeError, KeyError) as error:
        reason = f"{error}"
    raise Broken(reason)


def _constraints(texts: Any, names: Sequence[str]) -> tuple[Constraint, ...]:
    """The constraints in a manifest; version 1.0 has none."""
    if not isinstance(texts, list) or len(texts) > MOST_CONSTRAINTS or not all(isinstance(t, str) for t in texts):
        raise Broken(f"its sizes have the constraints {brief(texts)}")
    found = tuple(map(Constraint.of, texts))
    if any(not c.left.names | c.right.names <= set(names) for c in found):
        raise Broken(f"its constraints refer to sizes other than {brief(names)}")
    return found


def _aval_of(entry: Any) -> ShapeDtypeStruct:
    shape = _entry(entry, "shape", list)
    if not all(type(size) in (int, str) for size in shape):
        raise Broken(f"a shape has sizes other than numbers and names: {brief(shape)}")
    sizes: Any = tuple(Size(size) if isinstance(size, str) else size for size in shape)
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise Broken(f"a shape has a negative size: {brief(shape)}")
    return ShapeDtypeStruct(sizes, _dtype(entry.get("dtype")), bool(entry.get("weak")))


def _dtype(name: Any) -> Any:
    for dtype in KEY_DTYPES.values():
        if dtype.name == name:
            return dtype
    reason = ""
    try:
        found = dtype_named(name) if isinstance(name, str) else None
    except (TypeError, ValueError) as error:
        found, reason = None, str(error)
    if found is None or is_key(found):
        raise Broken(f"there is no dtype {brief(name)} {reason}".rstrip())
    return found
