"""The lattice: values at which arithmetic branches, and every primitive's operands built of them.

A point is a number: zeros of both signs, infinities, NaN, the extremes of a dtype, ties. Elementwise primitives take
all combinations of the points. Operands of other primitives keep their samples' shapes and are filled: with one point,
with all of them in turn, with repeats, and with a point among ordinary numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from lattice_differences import EXCLUDED, allowed, tolerance
from primitive_cases import Case, cases_of

from rlx import errors
from rlx.ir.types import is_complex, is_float, is_inexact, is_integer
from rlx.ops.families import Elementwise
from rlx.trace.primitive import Sample

__all__ = ["Study", "differences", "points", "program", "studies"]

INF, NAN = np.inf, np.nan
_USUAL = (1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0, 30.0)
_FEW = (0.0, -0.0, 1.0, -1.0, 2.5, 0.5, INF, -INF, NAN)  # of three operands or more, and of parts of complex numbers
_SEVERAL = (0.0, 1.0, -1.0, 2.5, INF, NAN)  # of four


@cache
def points(dtype: np.dtype, among: int = 1, subnormal: bool = True) -> np.ndarray:
    """The numbers of a dtype, for one of `among` operands; jax's are without subnormal ones, which XLA flushes."""
    if dtype.kind == "b":
        return np.array([False, True])
    if is_integer(dtype):
        info = ml_dtypes.iinfo(dtype)
        numbers = {info.min, info.min + 1, -2, -1, 0, 1, 2, 7, 31, 32, info.max - 1, info.max}
        return np.array(sorted(n for n in numbers if info.min <= n <= info.max)).astype(dtype)
    if is_complex(dtype):
        parts = np.array(_FEW if among == 1 else (0.0, -0.0, 1.0, -2.5, INF, NAN))
        numbers = np.empty((len(parts), len(parts)), dtype)
        numbers.real, numbers.imag = parts[:, None], parts
        return numbers.ravel()
    if among > 2:
        return np.array(_FEW if among == 3 else _SEVERAL, dtype)
    info = ml_dtypes.finfo(dtype)
    ends = [float(v) for v in (info.max, info.smallest_normal, info.smallest_subnormal)][: 3 if subnormal else 2]
    near = [1 + float(info.eps), 1 - float(info.epsneg)]
    return np.array([0.0, -0.0, INF, -INF, NAN, *ends, *(-v for v in ends), *near, *_USUAL]).astype(dtype)


def _one_among(x: np.ndarray, point: complex) -> np.ndarray:
    """Ordinary numbers, and a point in their middle."""
    filled = x.copy()
    filled.reshape(-1)[x.size // 2] = point
    return filled


def fillings(x: np.ndarray, subnormal: bool) -> dict[str, np.ndarray]:
    """Arrays of x's shape by the name of the filling."""
    if not x.size:
        return {"empty": x}
    every = points(x.dtype, 1, subnormal)
    info = ml_dtypes.finfo(x.dtype)
    alone = {"0": 0.0, "-0": -0.0, "1": 1.0, "inf": INF, "-inf": -INF, "nan": NAN,
             "largest": info.max, "least normal": info.smallest_normal, "least": info.smallest_subnormal}  # fmt: skip
    if not subnormal:
        del alone["least"]
    found = {f"all {name}": np.full_like(x, v) for name, v in alone.items()}
    for step in (0, 5, 10):
        found[f"in turn from {step}"] = np.resize(np.roll(every, -step), x.shape)
    found["repeats"] = np.resize(np.array([1, 2, 2, 1, -1, 2, -1], x.dtype), x.shape)
    found["zeros of both signs"] = np.resize(np.array([0.0, -0.0, -0.0], x.dtype), x.shape)
    found |= {f"one {name}": _one_among(x, v) for name, v in alone.items() if name in ("0", "inf", "-inf", "nan")}
    return found


class Study(NamedTuple):
    """A primitive with parameters, and lists of operands of the same types."""

    case: Case
    fillings: dict[str, tuple[np.ndarray, ...]]

    @property
    def moving(self) -> list[int]:
        """Operands that have derivatives."""
        return [n for n, a in enumerate(self.case.arrays) if is_inexact(a.dtype)]


def _recast(case: Case, dtype: np.dtype) -> Case:
    """The sample of float64 in another dtype."""
    wide = {np.dtype("f8"): dtype} if is_float(dtype) else {np.dtype("c16"): dtype}
    args = tuple(a.astype(wide[a.dtype]) if a.dtype in wide else a for a in case.arrays)
    return Case(case.primitive, Sample(args, case.sample.params), case.number)


def elementwise_study(case: Case, subnormal: bool) -> Study:
    """All combinations of the points, one axis each."""
    arity = len(case.arrays)
    arrays = [points(a.dtype, arity, subnormal) for a in case.arrays]
    grid = [g.ravel() for g in np.meshgrid(*arrays, indexing="ij")]
    return Study(Case(case.primitive, Sample(tuple(grid), case.sample.params), case.number), {"grid": tuple(grid)})


def filled_study(case: Case, subnormal: bool) -> Study:
    """Each operand filled alone, then all of them alike; fillings of the table EXCLUDED are left out."""
    moving = [n for n, a in enumerate(case.arrays) if is_inexact(a.dtype)]
    excluded = [words for row in EXCLUDED if case.primitive.name in row.names for words in row.fillings]
    by_operand = {n: fillings(case.arrays[n], subnormal) for n in moving}
    found: dict[str, tuple[np.ndarray, ...]] = {"sample": case.arrays}
    groups = [(n,) for n in moving] + ([tuple(moving)] if len(moving) > 1 else [])
    for group in groups:
        for name in by_operand[group[0]]:
            if any(name.startswith(words) for words in excluded):
                continue
            operands = list(case.arrays)
            for n in group:
                operands[n] = by_operand[n].get(name, operands[n])
            found[f"{name} in {','.join(map(str, group))}"] = tuple(operands)
    return Study(case, found)


def studies(name: str, dtype: np.dtype, subnormal: bool = True, most: int = 3) -> list[Study]:
    """A primitive in a dtype: with all its parameters where it is elementwise, else the first samples."""
    wide = np.dtype("f8") if is_float(dtype) else np.dtype("c16") if is_complex(dtype) else dtype
    chosen: dict[Any, Case] = {}
    for case in cases_of(name):
        dtypes = {a.dtype for a in case.arrays}
        if wide in dtypes and not (dtypes - {wide} and any(is_inexact(d) for d in dtypes - {wide})):
            key = repr(case.sample.params) if isinstance(case.primitive, Elementwise) else case.number
            chosen.setdefault(key, case)
    found = []
    for case in chosen.values():
        try:
            recast = _recast(case, dtype)
            _ = recast.result_types  # some have no such dtype
        except errors.RlxError:
            continue
        study = elementwise_study if isinstance(case.primitive, Elementwise) else filled_study
        found.append(study(recast, subnormal))
    return found if found and isinstance(found[0].case.primitive, Elementwise) else found[:most]


def ramp(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Ordinary numbers, all different: tangents and cotangents."""
    size = int(np.prod(shape))
    numbers = np.linspace(0.5, 1.5, size) if not is_complex(dtype) else np.linspace(0.5 - 0.25j, 1.5 + 0.75j, size)
    return numbers.reshape(shape).astype(dtype)


def program(study: Study, library: Any, function: Callable[..., Any], moving: Sequence[int]) -> Callable[..., Any]:
    """The function of a study's operands that returns values, tangents of them and cotangents of operands, by name.

    `library` is rlx or jax, `function` the primitive in it, `moving` the operands with derivatives.
    """

    def flat(*operands: Any) -> tuple[Any, ...]:
        out = function(*operands, **study.case.sample.params)
        return tuple(out) if isinstance(out, (tuple, list)) else (out,)

    def every(*operands: Any) -> dict[str, list[Any]]:
        values = flat(*operands)
        smooth = [n for n, v in enumerate(values) if is_inexact(np.dtype(v.dtype))]
        found: dict[str, list[Any]] = {"value": list(values)}
        if not smooth or not moving:
            return found

        def of_moving(*xs: Any) -> tuple[Any, ...]:
            filled = list(operands)
            for n, x in zip(moving, xs, strict=True):
                filled[n] = x
            out = flat(*filled)
            return tuple(out[n] for n in smooth)

        primals = tuple(operands[n] for n in moving)
        tangents = tuple(ramp(p.shape, np.dtype(p.dtype)) for p in primals)
        found["jvp"] = list(library.jvp(of_moving, primals, tangents)[1])
        out, pull = library.vjp(of_moving, *primals)
        found["vjp"] = list(pull(tuple(ramp(v.shape, np.dtype(v.dtype)) for v in out)))
        return found

    return every


class Difference(NamedTuple):
    """An element that two results do not share."""

    kind: str  # "nan", "inf", "zero" (its sign), "ulp", or "integer"
    place: int
    found: Any
    expected: Any


def _unequal(found: np.ndarray, expected: np.ndarray, ulps: float, floor: Any) -> Iterator[Difference]:
    """Elements of real arrays that differ by more than so many units in the last place, and than `floor`."""
    x, y = found.reshape(-1), expected.reshape(-1)
    if not is_float(x.dtype):
        yield from (Difference("integer", n, x[n], y[n]) for n in np.flatnonzero(x != y).tolist())
        return
    info = ml_dtypes.finfo(x.dtype)
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= np.maximum(
            np.abs(b) * float(info.eps) * ulps, np.maximum(floor, float(info.smallest_subnormal))
        )
    nan, inf = np.isnan(a) != np.isnan(b), (np.isinf(a) | np.isinf(b)) & (a != b) & ~np.isnan(a) & ~np.isnan(b)
    zero = (a == 0) & (b == 0) & (np.signbit(x) != np.signbit(y))
    far = ~near & np.isfinite(a) & np.isfinite(b)
    for kind, mask in (("nan", nan), ("inf", inf), ("zero", zero), ("ulp", far)):
        yield from (Difference(kind, n, x[n], y[n]) for n in np.flatnonzero(mask).tolist())


def compared(found: Any, expected: Any, ulps: float, floor: float) -> list[Difference]:
    """Elements that differ; parts of complex numbers are compared one by one."""
    x, y = np.asarray(found), np.asarray(expected)
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    if is_complex(x.dtype):
        with np.errstate(all="ignore"):
            size = np.abs(y).ravel() * float(np.finfo(y.dtype).eps) * ulps  # parts are exact to places of the number
        floors = np.maximum(floor, np.where(np.isfinite(size), size, 0))
        pairs = ((x.real, y.real), (x.imag, y.imag))
        return [d for a, b in pairs for d in _unequal(np.ascontiguousarray(a), np.ascontiguousarray(b), ulps, floors)]
    return list(_unequal(x, y, ulps, floor))


def differences(
    study: Study,
    oracle: str,
    device: str,
    found: Callable[..., Mapping[str, Any]],
    expected: Callable[..., Mapping[str, Any]],
) -> list[str]:
    """Descriptions of elements in which two programs of a study differ, where no row of the tables allows it."""
    name, described = study.case.primitive.name, []
    for filling, operands in study.fillings.items():
        ours, theirs = found(*operands), expected(*operands)
        assert ours.keys() == theirs.keys(), (name, ours.keys(), theirs.keys())
        for what, results in ours.items():
            for number, (x, y) in enumerate(zip(results, theirs[what], strict=True)):
                ulps, floor = tolerance(name, what, oracle, np.asarray(y), operands)
                for d in compared(x, y, ulps, floor):
                    at = [a[d.place] for a in operands] if filling == "grid" and a_fits(operands, d) else []
                    if not allowed(name, oracle, device, what, number, d.kind, filling, at):
                        where = ", ".join(map(str, at)) or f"{filling}, element {d.place}"
                        described.append(f"{what} {number} at {where}: {d.kind}: {d.found}, expected {d.expected}")
    return described


def a_fits(operands: Sequence[np.ndarray], d: Difference) -> bool:
    """Whether an element belongs to one element of each operand."""
    return all(d.place < a.size for a in operands)
