"""Write docs/coverage.md: for each public name of JAX, whether it is here, differs, or is absent and why.

Run it after a change of names: python docs/make_coverage.py
docs/jax_names.json holds JAX's names, so that JAX is not needed.
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
    """The names of a module of JAX: those here, those that differ (with how), those absent (with why)."""

    module: str
    here: list[str]
    differs: dict[str, str]
    absent: dict[str, str]

    @property
    def total(self) -> int:
        """How many names JAX's module has."""
        return len(self.here) + len(self.differs) + len(self.absent)


# modules of JAX whose names are somewhere else here
MODULES = {"jax.ad_checkpoint": "rlx"}

# the same under another name
ELSEWHERE = {
    "jax.profiler.ProfileData": ("rlx.profiling.Profile", "rlx.profile(f)(*args) makes one"),
    "jax.profiler.ProfileEvent": ("rlx.profiling.KernelProfile", ""),
    "jax.custom_derivatives.custom_jvp_call_p": ("rlx.ops.call.custom_jvp_call", ""),
    "jax.custom_derivatives.custom_vjp_call_p": ("rlx.ops.call.custom_vjp_call", ""),
}

# here, and not quite the same
DIFFERS = {
    "jax.custom_vjp": "nondiff_argnums may be traced values; optimize_remat is accepted: under checkpoint the first run"
    " is fwd's, too",
    "jax.debug_key_reuse": "keys are not followed: False alone is accepted",
    "jax.errors.InconclusiveDimensionOperation": "nothing raises it: sizes are numbers",
    "jax.errors.JaxprTypeError": "the base of VerificationError, which rlx.ir.verify raises",
    "jax.errors.KeyReuseError": "nothing raises it: keys are not followed",
    "jax.make_jaxpr": "returns a Program, which prints as Python that runs; its primitives have NumPy's names",
    "jax.memory": "a device has one memory, so that every Space is it",
    "jax.numpy_dtype_promotion": "looks at the operands of functions that the user calls, not at those that they call",
    "jax.numpy_rank_promotion": "looks at the operands of functions that the user calls, not at those that they call",
    "jax.allow_f16_reductions": "accepted: sums of 16-bit floats are computed in float32",
    "jax.lax.create_token": "an empty array: effects keep their order without tokens",
    "jax.lax.dce_sink": "what nobody reads is computed only where it has effects; prevent_mlir_dce=True is refused",
    "jax.softmax_custom_jvp": "accepted: softmax has one derivative",
    "jax.threefry_partitionable": "True alone is accepted",
    "jax.transfer_guard": "accepted: transfers between devices happen where device_put, jit(device=) or reading asks for them",
    "jax.transfer_guard_device_to_device": "accepted: transfers between devices happen where device_put, jit(device=) or reading asks for them",
    "jax.transfer_guard_device_to_host": "accepted: transfers between devices happen where device_put, jit(device=) or reading asks for them",
    "jax.transfer_guard_host_to_device": "accepted: transfers between devices happen where device_put, jit(device=) or reading asks for them",
    "jax.Array": "NumPy arrays are taken wherever these are; operators with a NumPy array give an rlx array",
    "jax.Ref": "what is written is threaded through programs: jaxprs show no references",
    "jax.Device": "a platform's name and a number",
    "jax.config": "64-bit numbers need no switch: jax_enable_x64 makes them the default; further switches of rlx's own",
    "jax.numpy.array": "a Python integer that the default dtype cannot hold becomes int64 or uint64",
    "jax.default_matmul_precision": "None is full float32; less than that lets GPUs round float32 to tf32, and changes nothing elsewhere",
    "jax.device_put": "values are copied to a device that they do not lie on; the array's sharding is the one asked for",
    "jax.jit": "runs eagerly at once without it; donate, static and keyword arguments as JAX's; results lie whole"
    " on the device unless out_shardings say otherwise",
    "jax.pmap": "over CPU devices of one process, which share its memory",
    "jax.shard_map": "over CPU devices of one process, which share its memory; check_vma goes by what is computed",
    "jax.smap": "over CPU devices of one process, which share its memory",
    "jax.auto_pcast": "False: bodies of loops and branches are not looked at",
    "jax.lax.pcast": "in a shard_map derivatives by what varies are each device's own; a value that varies may be cast again",
    "jax.distributed.initialize": "joins processes that MPI has started; meshes do not span them",
    "jax.named_call": "gives the function its name; programs name file and line of each operation",
    "jax.named_scope": "programs do not show it: they name file and line of each operation",
    "jax.typeof": "returns an rlx.ir.types.TensorType: shape, dtype, weakness",
    "jax.tree_util.PyTreeDef": "made by flattening only; a dict comes back with its keys in the order in which it came",
    "jax.dtypes.canonicalize_dtype": "64-bit dtypes stay what they are",
    "jax.debug.breakpoint": "Python's debugger, with the caller's arrays in `values`",
    "jax.profiler.trace": "records annotations; rlx.profile times kernels",
    "jax.profiler.start_trace": "records annotations; rlx.profile times kernels",
    "jax.ops.segment_prod": "no derivative where a segment has several slices (as JAX's)",
}

_ONE_DEVICE = "programs run in one process on one device"
_PRIMITIVE = "JAX's primitive object; rlx's primitives are classes in rlx.ops"
_NEVER = "a switch about JAX's own machinery"
_LATER = "not written yet"

# names or patterns, first match wins
ABSENT = {
    "jax.remove_size_one_mesh_axis_from_type": "an array's type names no mesh axes",
    "jax.experimental.mesh_utils.device_kind_handler_dict": "one device has one order",
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
    "jax.profiler.*memory_profile": "rlx.inspect(f)(*args).memory says what a program needs",
    "jax.profiler.Profile*": "rlx.profile(f)(*args) returns an object with all that it measured",
    "jax.profiler.*": "no server: a trace is a file",
    "jax.ad_checkpoint.print_saved_residuals": "rlx.inspect(rlx.grad(f))(*args) shows them",
    "jax.ad_checkpoint.*": "residuals are saved or computed again; they do not move between memories",
    "jax.*": _NEVER,
    "jax.scipy.*": _LATER,
}
# patterns that only speak of the top level
_TOP = {"jax.*"}


def find(path: str) -> Any:
    """What a dotted path leads to; NOTHING for nothing."""
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
    """Why a name is absent. Raises LookupError where nobody said."""
    for pattern, why in ABSENT.items():
        if pattern in _TOP and path.count(".") > 1:
            continue
        if fnmatchcase(path, pattern):
            return why
    raise LookupError(f"say in ABSENT why {path} is not here")


def sections() -> list[Section]:
    """JAX's modules, each name in its place."""
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
        f"# The public names of JAX {version}, and what is here",
        "",
        "Made by `python docs/make_coverage.py`; a test keeps it current. Of"
        f" {sum(counts)} names {counts[0]} are here, {counts[1]} are here and differ, {counts[2]} are absent.",
        "A name of `jax.x` is found in `rlx.x`. `rlx.compat.as_jax()` puts rlx in place of jax; see ecosystem.md.",
        "",
        "| module | names | here | differ | absent |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| `{s.module}` | {s.total} | {len(s.here)} | {len(s.differs)} | {len(s.absent)} |" for s in found]
    for section in found:
        lines += ["", f"## {section.module}", ""]
        if section.here:
            lines += [f"Here: {', '.join(f'`{name}`' for name in section.here)}.", ""]
        if section.differs:
            lines += ["| differs | how |", "|---|---|"]
            lines += [f"| `{name}` | {how} |" for name, how in section.differs.items()]
            lines.append("")
        if section.absent:
            lines += ["| absent | why |", "|---|---|"]
            lines += [f"| {names} | {why} |" for names, why in _groups(section.absent)]
            lines.append("")
        if not lines[-1]:
            lines.pop()
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} written")
