"""The mutations: what is replaced in which file, and which tests of `make test` are expected to fail then."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTANTS", "Mutant"]


class Mutant(NamedTuple):
    """`old`, which occurs once in the file, becomes `new`. tests: arguments of pytest."""

    file: str
    old: str
    new: str
    tests: str


EDGES = "tests/test_numeric_edges.py"
KEYS = "tests/support/test_cache_keys.py"
STATES = "tests/optim/test_state_dtypes.py"
EFFECTS = "tests/transforms/test_option_effects.py"
SAVING = "tests/support/test_saving.py -k order_of_system"
FORKS = "tests/robust/test_processes_and_threads.py -k every_lock"
SAMPLING = "tests/lm/test_sampling.py"
ONNX = "tests/onnx_models/test_operator_edges.py"
STORE = "tests/backends/test_store.py"

MUTANTS = [
    # ---------------------------------------------------------------- keys of caches
    Mutant("rlx/call/jitted.py", "axes=axes,", "axes=(),", KEYS),
    Mutant("rlx/call/jitted.py", "where=where,", "where=None,", KEYS),
    Mutant("rlx/call/jitted.py", "token=config.token,", "token=None,", KEYS),
    Mutant("rlx/call/jitted.py", "types=tuple([x.type for x in arguments.leaves]),", "types=(),", KEYS),
    Mutant("rlx/call/arguments.py", "tuple((k, static_key(v), v) for", "tuple((k, None, v) for", KEYS),
    Mutant("rlx/call/arguments.py", "tuple((k, static_key(v), v) for", "tuple((0, static_key(v), v) for", KEYS),
    Mutant("rlx/call/jitted.py", "Key(signature, arguments.divisions)", "Key(signature, ())", KEYS),
    Mutant("rlx/call/jitted.py", "places=arguments.explicit_divisions,", "places=(),", KEYS),
    Mutant("rlx/trace/once.py", "types, config.token, state.axes,", "types, config.token, (),", KEYS),
    Mutant("rlx/trace/once.py", "types, config.token, state.axes,", "types, None, state.axes,", KEYS),
    Mutant("rlx/trace/once.py", "held = tuple(map(static_key, static))", "held = tuple(static)", KEYS),
    Mutant("rlx/trace/replay.py", "key += (kind, value or str(value))", "key += (kind, value)", KEYS),
    Mutant("rlx/trace/replay.py", "        key += (kind, len(value))\n", "", KEYS),
    Mutant("rlx/trace/replay.py", "        key.append(name)\n", "", KEYS),
    Mutant("rlx/passes/pipeline.py", "ExecutableKey(backend, context.options,", "ExecutableKey(backend, None,", KEYS),
    Mutant("rlx/passes/pipeline.py", "context.claims, memory_limit, program", "context.claims, None, program", KEYS),
    Mutant("rlx/passes/pipeline.py", "FORM, self.device, self.options", "FORM, self.options", KEYS),
    Mutant("rlx/passes/pipeline.py", "claims.loops_up_to, _name_of", "_name_of", KEYS),
    Mutant("rlx/backends/cpu/runtime/store.py", "sys.platform, name, present)", "sys.platform, name, ())", KEYS),
    Mutant("rlx/backends/cpu/runtime/store.py", "features.items() if there", "features.items()", KEYS),
    Mutant(
        "rlx/backends/cpu/runtime/store.py",
        "for part in (MAGIC, symbol.encode(), key)",
        "for part in (MAGIC, key)",
        STORE,
    ),
    Mutant("rlx/backends/c/compile.py", "sys.platform, macros.stdout)", 'sys.platform, "")', KEYS),
    Mutant("rlx/backends/c/compile.py", "Identity(self.command, tuple(self.flags)", "Identity(self.command, ()", KEYS),
    Mutant(
        "rlx/backends/cpu/emit/kernel_code.py",
        "repr((family, _VERSION, signature))",
        "repr((_VERSION, signature))",
        KEYS,
    ),
    # ---------------------------------------------------------------- threads, forks, files
    Mutant("rlx/call/cache.py", "        reopen_after_fork(self)\n", "", FORKS),
    Mutant("rlx/passes/pipeline.py", "        reopen_after_fork(self)\n", "", FORKS),
    Mutant("rlx/storage.py", "reopen_after_fork(sys.modules[__name__])\n", "", FORKS),
    Mutant("rlx/backends/cpu/runtime/store.py", "        self._makers = {}\n", "", FORKS),
    Mutant("rlx/serialization/atomic.py", "        os.fsync(file.fileno())\n", "", SAVING),
    Mutant("rlx/serialization/atomic.py", "        _flush_folder(descriptor)\n", "", SAVING),
    Mutant("rlx/serialization/atomic.py", "if old is None else 0o600", "if old is None else 0o666", SAVING),
    Mutant("rlx/serialization/atomic.py", "        file.flush()\n", "", SAVING),
    # ---------------------------------------------------------------- options
    Mutant("rlx/lowering/indexing.py", "kernels.options.deterministic and rounds if op", "False if op", EFFECTS),
    Mutant("rlx/distributed/members.py", 'and op in ("sum", "prod")', 'and op in ("sum",)', EFFECTS),
    Mutant("rlx/transforms/checkpoint.py", "not in (None, *names)", "not in names", EFFECTS),
    Mutant("rlx/transforms/checkpoint.py", "return not left and not right", "return True", EFFECTS),
    Mutant(
        "rlx/planning/in_place.py", "if self.changed_until(position).intersection(early.reads):", "if False:", EFFECTS
    ),
    # ---------------------------------------------------------------- dtypes of states
    Mutant(
        "rlx/optim/updates.py",
        "as_before(mu, state.mu), as_before(nu, state.nu)",
        "as_before(mu, state.mu), nu",
        STATES,
    ),
    Mutant("rlx/optim/updates.py", "TraceState(as_before(moved, state.trace))", "TraceState(moved)", STATES),
    Mutant(
        "rlx/optim/updates.py",
        "ScaleByRssState(as_before(sums, state.sum_of_squares))",
        "ScaleByRssState(sums)",
        STATES,
    ),
    # ---------------------------------------------------------------- edges of numeric routines
    Mutant(
        "rlx/ops/cumulative.py",
        "shift = select(equal(absolute(total), np.inf), 0, total)",
        "shift = total",
        f"{EDGES} -k cumulative",
    ),
    Mutant("rlx/lowering/reduction.py", 'elif op == "xor" and count % 2 == 0:', "elif False:", f"{EDGES} -k repeated"),
    Mutant("rlx/lowering/reduction.py", "s.mul(x, count), (result,)", "x, (result,)", f"{EDGES} -k repeated"),
    Mutant(
        "rlx/lowering/narrow_bits.py",
        "s.select(s.eq(x, y), y, result)",
        "s.select(s.eq(x, y), x, result)",
        f"{EDGES} -k neighbours",
    ),
    Mutant(
        "rlx/ops/rounding.py", "np.where(x == y, y, np.nextafter(x, y))", "np.nextafter(x, y)", f"{EDGES} -k neighbours"
    ),
    Mutant(
        "rlx/backends/cpu/emit/narrow.py",
        "(bits + 0x7FFF + ((bits >> 16) & 1))",
        "(bits + 0x8000)",
        f"{EDGES} -k narrow_floats",
    ),
    Mutant("rlx/random/uniform.py", "_where(wider, lax.add(span, one), span)", "span", f"{EDGES} -k ends_of_a_dtype"),
    Mutant(
        "rlx/random/uniform.py", "2.0 ** -int(ml_dtypes.finfo(dtype).nmant)", "2.0 ** -8", f"{EDGES} -k probabilities"
    ),
    Mutant("rlx/random/uniform.py", "_where(lax.le(high, low), one, span)", "span", f"{EDGES} -k ends_of_a_dtype"),
    Mutant(
        "rlx/numpy/nan_reductions.py",
        "max(x, axis, keepdims=keepdims, initial=initial, where=where)\n    return result if initial is not None else",
        "max(x, axis, keepdims=keepdims, initial=initial, where=where)\n    return",
        f"{EDGES} -k without_nan",
    ),
    Mutant(
        "rlx/quant/arrays.py",
        "np.float32(largest), np.float32(LEAST_SCALE))",
        "np.float32(largest), np.float32(0))",
        f"{EDGES} -k spread",
    ),
    Mutant(
        "rlx/quant/arrays.py",
        "np.float32(255), np.float32(LEAST_SCALE))",
        "np.float32(255), np.float32(0))",
        f"{EDGES} -k spread",
    ),
    Mutant(
        "rlx/ops/reduction.py",
        "dim - sum(a < dim for a in moved)\n\n    def lower(self, k: Any, x: Any, *, axes: Axes)",
        "dim\n\n    def lower(self, k: Any, x: Any, *, axes: Axes)",
        "tests/test_primitives.py -k batch",
    ),
    Mutant("rlx/lm/sampling.py", "share) & (jnp.arange(size) < size - 1)", "share)", SAMPLING),
    Mutant("rlx/lm/sampling.py", "where(rising < jnp", "where(rising <= jnp", SAMPLING),
    Mutant("rlx/lm/sampling.py", "chances < given.min_p", "chances <= given.min_p", SAMPLING),
    Mutant(
        "rlx/errors.py", "folded.setdefault(k.lower(), []).append(k)", "folded[k.lower()] = [k]", "tests/test_errors.py"
    ),
    Mutant(
        "rlx/transforms/reverse.py",
        "weaker = is_complex(ct.dtype) <= is_complex(t.dtype) and",
        "weaker =",
        "tests/transforms/test_options.py",
    ),
    # ---------------------------------------------------------------- broken files
    Mutant(
        "rlx/export/archive.py", " or info.file_size != info.compress_size", "", "tests/export/test_exported_files.py"
    ),
    Mutant(
        "rlx/export/archive.py",
        "if version[0] != VERSION[0]:",
        "if version[0] < VERSION[0]:",
        "tests/export/test_exported_files.py",
    ),
    Mutant(
        "rlx/gguf/header.py",
        "    _check_layout(cursor, places, [fields[0] for fields in described])\n",
        "",
        "tests/gguf/test_broken_gguf.py",
    ),
    # ---------------------------------------------------------------- memory that values share
    Mutant(
        "rlx/ir/verify_loops.py",
        "if not all(store_runs_once(kernel, other, levels) for other in kernel.stores):",
        "if False:",
        "tests/ir/test_verify_plan.py",
    ),
    # ---------------------------------------------------------------- others
    Mutant("rlx/onnx/shapes.py", "part = -(-x.shape[axis] // count)", "part = x.shape[axis] // count", ONNX),
    Mutant("rlx/onnx/shapes.py", "jnp.where(indices < 0, indices + count, indices)", "indices", ONNX),
    Mutant(
        "rlx/call/cache.py",
        "with self._lock:\n            entry = self.entries.get(key)",
        "if True:\n            entry = self.entries.get(key)",
        "tests/test_threads_and_interrupts.py -k slow_function",
    ),
]
