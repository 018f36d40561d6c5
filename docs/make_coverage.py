"""Write docs/coverage.md: for each public name of JAX, whether rlx has it, differs, or lacks it and why.

Run it after names change: python docs/make_coverage.py
docs/jax_names.json contains JAX's names, so that JAX is not needed.
"""

from __future__ import annotations

import importlib
import json
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
TARGET, SOURCE = ROOT / "docs" / "coverage.md", ROOT / "docs" / "jax_names.json"


NOTHING = object()


class Section(NamedTuple):
    """The names of a JAX module: present, different (with the difference), absent (with the reason)."""

    module: str
    here: list[str]
    differs: dict[str, str]
    absent: dict[str, str]

    @property
    def total(self) -> int:
        """The number of names in JAX's module."""
        return len(self.here) + len(self.differs) + len(self.absent)


# JAX module -> rlx module with its names, if named differently
MODULES = {"jax.ad_checkpoint": "rlx"}

# names with an equivalent under another name
ELSEWHERE = {
    "jax.profiler.ProfileData": ("rlx.profiling.Profile", "rlx.profile(f)(*args) returns one"),
    "jax.profiler.ProfileEvent": ("rlx.profiling.KernelProfile", ""),
    "jax.custom_derivatives.custom_jvp_call_p": ("rlx.ops.call.custom_jvp_call", ""),
    "jax.custom_derivatives.custom_vjp_call_p": ("rlx.ops.call.custom_vjp_call", ""),
}

# names with differences
DIFFERS = {
    "jax.custom_vjp": "nondiff_argnums may be traced values; optimize_remat is accepted: under checkpoint the first run"
    " also uses fwd",
    "jax.debug_key_reuse": "key reuse is not tracked: only False is accepted",
    "jax.errors.InconclusiveDimensionOperation": "never raised: sizes are numbers",
    "jax.errors.JaxprTypeError": "the base of VerificationError, which rlx.ir.verify raises",
    "jax.errors.KeyReuseError": "never raised: key reuse is not tracked",
    "jax.make_jaxpr": "returns a Program, which prints as runnable Python; its primitives have NumPy's names",
    "jax.memory": "a device has a single memory, so all Spaces are equal",
    "jax.numpy_dtype_promotion": "checks the operands of functions called by the user, not of nested calls",
    "jax.numpy_rank_promotion": "checks the operands of functions called by the user, not of nested calls",
    "jax.allow_f16_reductions": "accepted: sums of 16-bit floats are computed in float32",
    "jax.lax.create_token": "an empty array: effects are ordered without tokens",
    "jax.lax.dce_sink": "unused values are computed only if they have effects; prevent_mlir_dce=True raises an error",
    "jax.softmax_custom_jvp": "accepted: softmax has one derivative",
    "jax.threefry_partitionable": "both of JAX's counter orders",
    "jax.transfer_guard": "accepted: transfers between devices only happen on device_put, jit(device=) or reads",
    "jax.transfer_guard_device_to_device": "accepted: transfers between devices only happen on device_put, jit(device=) or reads",
    "jax.transfer_guard_device_to_host": "accepted: transfers between devices only happen on device_put, jit(device=) or reads",
    "jax.transfer_guard_host_to_device": "accepted: transfers between devices only happen on device_put, jit(device=) or reads",
    "jax.Array": "NumPy arrays are accepted everywhere; operators with a NumPy array return an rlx array",
    "jax.Ref": "written values are passed through programs: jaxprs show no references",
    "jax.Device": "a platform's name and a number",
    "jax.config": "64-bit numbers need no switch: jax_enable_x64 makes them the default; rlx adds switches",
    "jax.numpy.array": "a Python integer out of range for the default dtype becomes int64 or uint64",
    "jax.default_matmul_precision": "None is full float32; lower precisions let GPUs round float32 to tf32, and have no other effect",
    "jax.device_put": "values are copied to other devices; the array has the requested sharding",
    "jax.jit": "code without jit runs eagerly; donated, static and keyword arguments as in JAX; results are unsharded"
    " on the device unless out_shardings specifies otherwise",
    "jax.pmap": "over CPU devices of one process, which share its memory",
    "jax.shard_map": "over CPU devices of one process, which share its memory; check_vma checks the computed values",
    "jax.smap": "over CPU devices of one process, which share its memory",
    "jax.auto_pcast": "False: bodies of loops and branches are not checked",
    "jax.lax.pcast": "in a shard_map, derivatives by varying values are separate per device; a varying value may be cast again",
    "jax.distributed.initialize": "joins processes started by MPI; meshes do not span them",
    "jax.named_call": "names the function; programs show file and line of each operation",
    "jax.named_scope": "not shown in programs, which show file and line of each operation",
    "jax.typeof": "returns an rlx.ir.types.TensorType: shape, dtype, weakness",
    "jax.tree_util.PyTreeDef": "created only by flattening; dicts keep their key order",
    "jax.dtypes.canonicalize_dtype": "64-bit dtypes are unchanged",
    "jax.debug.breakpoint": "Python's debugger, with the caller's arrays in `values`",
    "jax.profiler.trace": "records annotations; rlx.profile times kernels",
    "jax.profiler.start_trace": "records annotations; rlx.profile times kernels",
    "jax.ops.segment_prod": "no derivative for segments of several slices (as in JAX)",
}

_ONE_DEVICE = "programs run in one process on one device"
_PRIMITIVE = "JAX's primitive object; rlx's primitives are classes in rlx.ops"
_NEVER = "a switch for JAX internals"
_LATER = "not written yet"

# names or patterns, first match wins
ABSENT = {
    "jax.remove_size_one_mesh_axis_from_type": "array types contain no mesh axes",
    "jax.experimental.mesh_utils.device_kind_handler_dict": "a single device has one order",
    "jax.experimental.multihost_utils.live_devices": _ONE_DEVICE,
    "jax.experimental.multihost_utils.ProcessFailureError": _ONE_DEVICE,
    "jax.lax.precv": _ONE_DEVICE,
    "jax.lax.psend": _ONE_DEVICE,
    "jax.lax.ragged_all_to_all": _ONE_DEVICE,
    "jax.lax*_p": _PRIMITIVE,
    "jax.random.random_gamma_p": _PRIMITIVE,
    "jax.custom_derivatives.remat_opt_p": _PRIMITIVE,
    "jax.numpy.float4*": "the dtype has no kernels",
    "jax.numpy.float6*": "the dtype has no kernels",
    "jax.numpy.float8*": "the dtype has no kernels",
    "jax.numpy.int*": "integers of less than a byte have no kernels",
    "jax.numpy.uint*": "integers of less than a byte have no kernels",
    "jax.debug.*Effect": "an effect is a property of a primitive",
    "jax.profiler.*memory_profile": "rlx.inspect(f)(*args).memory reports the memory of a program",
    "jax.profiler.Profile*": "rlx.profile(f)(*args) returns an object with all measurements",
    "jax.profiler.*": "no server: traces are files",
    "jax.ad_checkpoint.print_saved_residuals": "rlx.inspect(rlx.grad(f))(*args) shows them",
    "jax.ad_checkpoint.*": "residuals are saved or recomputed, not moved between memories",
    "jax.*": _NEVER,
    "jax.scipy.*": _LATER,
}
# patterns that only apply to the top level
_TOP = {"jax.*"}


def find(path: str) -> Any:
    """The object at a dotted path; NOTHING if there is none."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part, NOTHING)
        return value
    return NOTHING


def reason(path: str) -> str:
    """The reason why a name is absent. Raises LookupError if none is given."""
    for pattern, why in ABSENT.items():
        if pattern in _TOP and path.count(".") > 1:
            continue
        if fnmatchcase(path, pattern):
            return why
    raise LookupError(f"add the reason for {path} to ABSENT")


def sections() -> list[Section]:
    """JAX's modules, with their names classified."""
    found = []
    for module, names in json.loads(SOURCE.read_text(encoding="utf-8"))["names"].items():
        section = Section(module, [], {}, {})
        here = MODULES.get(module, module.replace("jax", "rlx", 1))
        for name in names:
            path = f"{module}.{name}"
            if find(f"{here}.{name}") is not NOTHING:
                if path in DIFFERS:
                    section.differs[name] = DIFFERS[path]
                else:
                    section.here.append(name)
            elif path in ELSEWHERE:
                other, note = ELSEWHERE[path]
                if find(other) is NOTHING:
                    raise LookupError(f"there is no {other}")
                section.differs[name] = f"`{other}`" + (f": {note}" if note else "")
            else:
                section.absent[name] = reason(path)
        found.append(section)
    return found


def _groups(reasons: dict[str, str]) -> list[tuple[str, str]]:
    """Names that share a reason, in one row."""
    grouped: dict[str, list[str]] = {}
    for name, why in reasons.items():
        grouped.setdefault(why, []).append(f"`{name}`")
    return [(", ".join(names), why) for why, names in grouped.items()]


def page() -> str:
    """The text of docs/coverage.md."""
    version = json.loads(SOURCE.read_text(encoding="utf-8"))["version"]
    found = sections()
    counts = [
        sum(len(part) for part in parts) for parts in zip(*((s.here, s.differs, s.absent) for s in found), strict=True)
    ]
    lines = [
        f"# Public names of JAX {version} in rlx",
        "",
        "Generated by `python docs/make_coverage.py`, checked by a test. Of"
        f" {sum(counts)} names, {counts[0]} are present, {counts[1]} are present with differences, {counts[2]} are absent.",
        "A name in `jax.x` is in `rlx.x`. `rlx.compat.as_jax()` substitutes rlx for jax; see ecosystem.md.",
        "",
        "| module | names | present | different | absent |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| `{s.module}` | {s.total} | {len(s.here)} | {len(s.differs)} | {len(s.absent)} |" for s in found]
    for section in found:
        lines += ["", f"## {section.module}", ""]
        if section.here:
            lines += [f"Present: {', '.join(f'`{name}`' for name in section.here)}.", ""]
        if section.differs:
            lines += ["| different | difference |", "|---|---|"]
            lines += [f"| `{name}` | {how} |" for name, how in section.differs.items()]
            lines.append("")
        if section.absent:
            lines += ["| absent | reason |", "|---|---|"]
            lines += [f"| {names} | {why} |" for names, why in _groups(section.absent)]
            lines.append("")
        if not lines[-1]:
            lines.pop()
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} written")
