"""The processor-specific part of a file: plans, and the object code that they need."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from rlx.backends import backend_named
from rlx.backends.cpu.runtime.shipped import object_code_of, take_object_code
from rlx.call.compiled import CompiledProgram
from rlx.export.functions import FunctionTemplate
from rlx.ir.kernels import Plan
from rlx.ir.plan_data import Unwritable, read_plan, write_plan
from rlx.ir.program import Program
from rlx.passes.pipeline import Context, Planned

__all__ = ["native_members", "with_native_members"]

_DIGEST = 32  # bytes of a checksum


def native_members(functions: Sequence[FunctionTemplate]) -> dict[str, bytes]:
    """Plans and object code of functions for this processor; the names identify the processor."""
    backend = backend_named("cpu")
    context = Context.of(backend)
    compiled = [CompiledProgram(f.program({}), backend, optimized=f.optimized) for f in functions]
    plans = [None if found.executable is None else found.executable.plan for found in compiled]
    members: dict[str, bytes] = {}
    for number, (found, plan) in enumerate(zip(compiled, plans, strict=True)):
        if plan is not None:
            with suppress(Unwritable):  # lowered again on loading
                members[_plan_name(number, context)] = _sealed(write_plan(plan, _constants(found.core)))
    return {**members, **object_code_of([plan for plan in plans if plan is not None])}


def with_native_members(functions: Sequence[FunctionTemplate], members: Mapping[str, bytes]) -> list[FunctionTemplate]:
    """Functions that use the (trusted) result of `native_members`, if it is for this processor."""
    take_object_code(members)
    return [replace(f, planned=_planned(number, members)) for number, f in enumerate(functions)]


def _planned(number: int, members: Mapping[str, bytes]) -> Planned:
    def planned(program: Program, context: Context) -> Plan | None:
        data = members.get(_plan_name(number, context))
        with suppress(ValueError):  # as with object code, unreadable plans are made again
            return None if data is None else read_plan(_opened(data), _constants(program))
        return None

    return planned


def _sealed(data: bytes) -> bytes:
    """Data after its checksum. As for object code, it detects accidents; `trust` is the guard against malice."""
    return hashlib.blake2b(data, digest_size=_DIGEST).digest() + data


def _opened(sealed: bytes) -> bytes:
    data = sealed[_DIGEST:]
    if _sealed(data) != sealed:
        raise ValueError("its checksum does not match")
    return data


def _plan_name(number: int, context: Context) -> str:
    return f"{context.identity.hex()}_{number}.plan"


def _constants(program: Program) -> list[np.ndarray]:
    """A program's captured constants, as stored in plans."""
    return [array.numpy() for _, array in program.constants]
