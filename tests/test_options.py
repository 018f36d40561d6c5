"""Every option of the main functions, and every switch, has a row that shows its effect.

A Row observes the function without the option and with it, and names both results. A string is another test that shows
the effect. An option that does nothing is in ACCEPTED, and the function's docstring says so.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.config import Config

TESTS = Path(__file__).resolve().parent
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(rlx, name)
    for name in (
        "jit checkpoint grad value_and_grad vmap jvp vjp linearize linear_transpose jacfwd jacrev hessian custom_jvp"
        " custom_vjp pmap shard_map make_jaxpr inspect profile save load device_put pure_callback export_c export_numba"
    ).split()
}
FUNCTIONS |= {f"lax.{name}": getattr(lax, name) for name in "scan fori_loop map associative_scan custom_root".split()}
FUNCTIONS["lax.dot_general"] = lax.dot_general


class Row(NamedTuple):
    """`observe()` gives `plain`, and `observe(option=value)` gives `chosen`: results, or names of errors' classes."""

    observe: Callable[..., Any]
    value: Any
    plain: Any
    chosen: Any


def observed(row: Row, **options: Any) -> Any:
    try:
        return row.observe(**options)
    except Exception as error:
        return type(error).__name__


# ------------------------------------------------------------------ observations
X = np.array([1.0, 2.0], np.float32)


def numbers(value: Any) -> Any:
    return rlx.tree.map(lambda leaf: np.asarray(leaf).tolist(), value)


def kind(x: Any) -> str:
    """Whether a jitted or checkpointed function saw a tracer."""
    return "number" if isinstance(x, int) else "array"


def seen(transform: Callable[..., Any], **options: Any) -> str:
    kinds: list[str] = []

    def function(x: Any, n: Any) -> Any:
        kinds.append(kind(n))
        return x * 2.0

    transform(function, **options)(1.0, n=3) if "static_argnames" in options else transform(function, **options)(1.0, 3)
    return kinds[0]


def deleted(**options: Any) -> bool:
    x = jnp.ones(3)
    rlx.jit(lambda x: x + 1, **options)(x).block_until_ready()
    return x.is_deleted()


def of_transform(transform: Callable[..., Any], **options: Any) -> Any:
    """The derivative of x * x * y at (3, 2)."""
    aux = options.get("has_aux")
    return numbers(transform(lambda x, y: (x * x * y, 7.0) if aux else x * x * y, **options)(3.0, 2.0))


def of_complex(transform: Callable[..., Any], **options: Any) -> Any:
    return numbers(transform(lambda z: z * z, **options)(1j))


def of_integer(transform: Callable[..., Any], **options: Any) -> str:
    return str(rlx.tree.leaves(transform(lambda n: n * 2.0, **options)(3))[-1].dtype)


def pushed(transform: Callable[..., Any], *arguments: Any, **options: Any) -> int:
    """The number of results."""
    aux = options.get("has_aux")
    return len(transform(lambda x: (x, 7.0) if aux else x, *arguments, **options))


def mapped(**options: Any) -> Any:
    return rlx.vmap(lambda x: jnp.sum(x) + jnp.zeros(4), **options)(np.ones((2, 3), np.float32)).shape


def named(transform: Callable[..., Any], **options: Any) -> Any:
    return numbers(transform(lambda x: x / lax.psum(x, "i"), **options)(np.ones(1, np.float32)))


def rule(custom: Callable[..., Any], **options: Any) -> str:
    """Whether the function gets its second argument as it is."""
    found: list[str] = []

    def function(x: Any, n: Any) -> Any:
        found.append(kind(n))
        return x * n

    own = custom(function, **options)
    if custom is rlx.custom_jvp:
        own.defjvp(lambda *a: (a[-2][0], a[-1][0]))
    else:
        own.defvjp(lambda x, n: (x * n, None), lambda *a: (a[-1],) if options else (a[-1], None))
    rlx.jit(lambda x: own(x, 3))(1.0)
    return found[0]


MESH = rlx.make_mesh((1,), ("x",))


def sharded(**options: Any) -> str:
    return str(getattr(rlx.jit(lambda x: x, **options)(jnp.ones(2)).sharding, "spec", None))


def in_mesh(**options: Any) -> Any:
    given = {"mesh": MESH, "in_specs": rlx.P("x"), "out_specs": rlx.P("x")} | options
    return rlx.shard_map(lambda x: x + lax.axis_index("x"), **given)(jnp.ones(2)).tolist()


def scanned(**options: Any) -> Any:
    xs = None if "length" in options else np.arange(3)
    return numbers(lax.scan(lambda c, x: (c + 1, c if x is None else x * 10 + c), 0, xs, **options))


def callback(**options: Any) -> Any:
    result = rlx.ShapeDtypeStruct((), "float32")
    f = lambda x: rlx.pure_callback(np.sin, result, x, **options)  # noqa: E731
    return rlx.vmap(f)(X).shape


def switch(name: str, observe: Callable[[], Any], value: Any, plain: Any, chosen: Any) -> Row:
    def under(**values: Any) -> Any:
        with rlx.scoped(**values):
            return observe()

    return Row(under, value, plain, chosen)


PX, TYPE = rlx.P("x"), rlx.ShapeDtypeStruct((2,), "float32")


def given_away(**options: Any) -> bool:
    x = jnp.ones((1, 2))
    rlx.pmap(lambda x: x + 1, **options)(x)
    return x.is_deleted()


def root(**options: Any) -> int:
    """The number of results; 0 for one array."""
    found = (2.0, 7.0) if options else 2.0
    result = lax.custom_root(lambda x: x - 2.0, 1.0, lambda f, x: found, lambda g, y: y / g(1.0), **options)
    return len(result) if isinstance(result, tuple) else 0


def product(**options: Any) -> bool:
    f = rlx.make_program(lambda x: lax.dot_general(x, x, (((0,), (0,)), ((), ())), **options))
    return "tf32=True" in str(f(X))


def of_axes(call: Callable[..., Any], **options: Any) -> Any:
    """Gradients by a weight that members of a mapped axis share."""
    return rlx.vmap(lambda x: call(lambda w: w * x, 1.0, **options), axis_name="i")(X).tolist()


def seen_by_jit() -> bool:
    """Whether a jitted function sees a tracer."""
    found: list[bool] = []
    rlx.jit(lambda x: found.append(isinstance(x, rlx.core.Tracer)) or x)(1.0)
    return found[0]


# ------------------------------------------------------------------ the table
ROWS: dict[str, Row | str] = {
    "jit.static_argnums": Row(lambda **o: seen(rlx.jit, **o), 1, "array", "number"),
    "jit.static_argnames": Row(lambda **o: seen(rlx.jit, **o), "n", "array", "number"),
    "jit.donate_argnums": Row(deleted, 0, False, True),
    "jit.donate_argnames": Row(deleted, "x", False, True),
    "jit.device": Row(lambda **o: rlx.jit(jnp.sin, **o)(X).shape, "nowhere", (2,), "DeviceError"),
    "jit.backend": Row(lambda **o: rlx.jit(jnp.sin, **o)(X).shape, "nowhere", (2,), "DeviceError"),
    "jit.memory_limit": Row(lambda **o: rlx.jit(jnp.sin, **o)(X).shape, -1, (2,), "OptionError"),
    "jit.in_shardings": "sharding/test_spanning.py::test_jit_refuses_what_lies_otherwise_than_its_in_shardings",
    "jit.out_shardings": Row(sharded, rlx.NamedSharding(MESH, rlx.P("x")), "None", "P('x',)"),
    "jit.compiler_options": "transforms/test_more_rules.py::test_stages_say_what_they_are",
    "checkpoint.static_argnums": Row(lambda **o: seen(rlx.checkpoint, **o), 1, "array", "number"),
    "checkpoint.static_argnames": Row(lambda **o: seen(rlx.checkpoint, **o), "n", "array", "number"),
    "checkpoint.policy": "transforms/test_option_effects.py::test_what_a_policy_keeps",
    "vmap.in_axes": Row(mapped, 1, (2, 4), (3, 4)),
    "vmap.out_axes": Row(mapped, 1, (2, 4), (4, 2)),
    "vmap.axis_name": Row(lambda **o: named(rlx.vmap, **o), "i", "AxisNameError", [1.0]),
    "vmap.axis_size": Row(mapped, 5, (2, 4), "VmapAxisError"),
    "pmap.in_axes": Row(lambda **o: rlx.pmap(lambda x: x, **o)(np.ones((1, 2))).shape, None, (1, 2), "VmapAxisError"),
    "pmap.out_axes": Row(lambda **o: rlx.pmap(lambda x: x, **o)(np.ones((1, 2))).shape, 1, (1, 2), (2, 1)),
    "pmap.axis_name": Row(lambda **o: named(rlx.pmap, **o), "i", "AxisNameError", [1.0]),
    "pmap.axis_size": Row(lambda **o: rlx.pmap(lambda x: x, **o)(np.ones(1)).shape, 2, (1,), "ShardingError"),
    "shard_map.in_specs": Row(in_mesh, rlx.P("y"), [1.0, 1.0], "ShardingError"),
    "shard_map.mesh": Row(in_mesh, rlx.make_mesh((1,), ("z",)), [1.0, 1.0], "ShardingError"),
    "jvp.has_aux": Row(lambda **o: pushed(rlx.jvp, (1.0,), (1.0,), **o), True, 2, 3),
    "vjp.has_aux": Row(lambda **o: pushed(rlx.vjp, 1.0, **o), True, 2, 3),
    "linearize.has_aux": Row(lambda **o: pushed(rlx.linearize, 1.0, **o), True, 2, 3),
    "custom_jvp.nondiff_argnums": Row(lambda **o: rule(rlx.custom_jvp, **o), (1,), "array", "number"),
    "custom_vjp.nondiff_argnums": Row(lambda **o: rule(rlx.custom_vjp, **o), (1,), "array", "number"),
    "custom_jvp.nondiff_argnames": Row(lambda **o: rule(rlx.custom_jvp, **o), ("n",), "array", "number"),
    "custom_vjp.nondiff_argnames": "transforms/test_more_rules.py::test_nondiff_argnames",
    "make_jaxpr.static_argnums": Row(lambda **o: seen(rlx.make_jaxpr, **o), 1, "array", "number"),
    "make_jaxpr.axis_env": "support/test_core.py::test_options_of_make_jaxpr",
    "make_jaxpr.return_shape": Row(
        lambda **o: type(rlx.make_jaxpr(jnp.sin, **o)(1.0)).__name__, True, "Program", "tuple"
    ),
    "inspect.device": Row(
        lambda **o: "reference" in rlx.inspect(jnp.sin, **o)(X).kernels.texts, "nowhere", False, "DeviceError"
    ),
    "profile.runs": "profiling/test_profile.py::test_what_cannot_be_profiled",
    "device_put.device": Row(lambda **o: rlx.device_put(X, **o).shape, "nowhere", (2,), "DeviceError"),
    "device_put.may_alias": "robust/test_memory_borders.py::test_memory_is_shared_on_request",
    "pure_callback.vmap_method": Row(callback, "sequential", "UnsupportedError", (2,)),
    "export_c.blas": "backends/test_c.py::test_exported_products_by_blas",
    "export_c.donate_argnums": "backends/test_c_in_place.py::test_results_replace_arguments",
    "export_c.params": "backends/test_c_weights.py::test_parameters_are_constants",
    "export_c.weights": "backends/test_c_weights.py::test_parameters_are_constants",
    "export_c.cmake": "backends/test_c_weights.py::test_cmake_builds_the_library",
    "lax.scan.xs": Row(lambda xs=None: scanned(**({"length": 1} if xs is None else {})), X, (1, [0]), (3, [0, 11, 22])),
    "lax.scan.length": Row(scanned, 2, (3, [0, 11, 22]), (2, [0, 1])),
    "lax.scan.reverse": Row(scanned, True, (3, [0, 11, 22]), (3, [2, 11, 20])),
    "lax.map.batch_size": "lax/test_scan.py::test_map_in_batches",
    "lax.associative_scan.reverse": Row(
        lambda **o: lax.associative_scan(jnp.add, X, **o).tolist(), True, [1.0, 3.0], [3.0, 2.0]
    ),
    "lax.associative_scan.axis": Row(
        lambda **o: lax.associative_scan(jnp.add, np.ones((1, 2)), **o).tolist(), 1, [[1.0, 1.0]], [[1.0, 2.0]]
    ),
    "lax.dot_general.preferred_element_type": Row(
        lambda **o: lax.dot_general(*[np.ones(2, np.float16)] * 2, (((0,), (0,)), ((), ())), **o).dtype.name,
        np.float32, "float16", "float32",
    ),
}  # fmt: skip
for _name in ("grad", "value_and_grad", "jacfwd", "jacrev", "hessian"):
    _f = FUNCTIONS[_name]
    _plain = {"value_and_grad": (18.0, 12.0), "hessian": 4.0}.get(_name, 12.0)
    _second = {"value_and_grad": (18.0, 9.0), "hessian": 0.0}.get(_name, 9.0)
    _aux = {"value_and_grad": ((18.0, 7.0), 12.0)}.get(_name, (_plain, 7.0))
    _square = {"value_and_grad": (-1, 2j), "hessian": 2 + 0j}.get(_name, 2j)
    _refused = "ScalarOutputError" if "grad" in _name else "DtypeError"
    ROWS[f"{_name}.argnums"] = Row(lambda f=_f, **o: of_transform(f, **o), 1, _plain, _second)
    ROWS[f"{_name}.has_aux"] = Row(lambda f=_f, **o: of_transform(f, **o), True, _plain, _aux)
    ROWS[f"{_name}.holomorphic"] = Row(lambda f=_f, **o: of_complex(f, **o), True, _refused, _square)
for _name in ("grad", "value_and_grad", "jacrev"):
    _chosen = "int32" if _name == "jacrev" else str(np.dtype([("float0", "V")]))
    ROWS[f"{_name}.allow_int"] = Row(lambda f=FUNCTIONS[_name], **o: of_integer(f, **o), True, "DtypeError", _chosen)
ROWS |= {
    "vmap.spmd_axis_name": Row(
        lambda **o: rlx.vmap(lambda x: rlx.shard_map(lambda y: y, mesh=MESH, in_specs=PX, out_specs=PX)(x), **o)(
            np.ones((1, 2), np.float32)
        ).shape,
        "x", (1, 2), "ShardingError",
    ),
    "shard_map.axis_names": Row(in_mesh, {"q"}, [1.0, 1.0], "ShardingError"),
    "shard_map.check_vma": "parallel/test_costs.py::test_a_pipeline_keeps_as_many_inputs_as_there_are_stages",
    "pmap.backend": Row(lambda **o: rlx.pmap(jnp.sin, **o)(np.ones((1, 2))).shape, "nowhere", (1, 2), "DeviceError"),
    "pmap.devices": Row(lambda **o: rlx.pmap(lambda x: x, **o)(np.ones((1, 2))).shape, [], (1, 2), "ShardingError"),
    "pmap.static_broadcasted_argnums": Row(
        lambda **o: rlx.pmap(lambda x, n: x * n, **o)(np.ones((1, 1)), 5).tolist(), 1, "VmapAxisError", [[5.0]]
    ),
    "pmap.donate_argnums": Row(given_away, 0, False, True),
    "load.like": "support/test_serialization.py::test_random_keys",
    "load.names": "support/test_serialization.py::test_some_arrays_are_read_without_the_rest",
    "lax.custom_root.has_aux": Row(root, True, 0, 2),
    "lax.dot_general.precision": Row(product, "bfloat16", False, True),
    "lax.dot_general.out_sharding": Row(
        lambda **o: lax.dot_general(X, X, (((0,), (0,)), ((), ())), **o).shape, rlx.P("q"), (), "MeshContextError"
    ),
    "export_c.name": Row(lambda **o: "sine_" in rlx.export_c(jnp.sin, TYPE, **o).source, "sine_", False, True),
    "export_numba.name": Row(lambda **o: "def sine_" in rlx.export_numba(jnp.sin, TYPE, **o), "sine_", False, True),
}  # fmt: skip
for _name, _call in {
    "grad": lambda f, w, **o: rlx.grad(f, **o)(w),
    "value_and_grad": lambda f, w, **o: rlx.value_and_grad(f, **o)(w)[1],
    "vjp": lambda f, w, **o: rlx.vjp(f, w, **o)[1](1.0)[0],
    "linear_transpose": lambda f, w, **o: rlx.linear_transpose(f, w, **o)(1.0)[0],
}.items():
    _row = Row(lambda call=_call, **o: of_axes(call, **o), ("i",), [1.0, 2.0], "UnsupportedError")
    ROWS[f"{_name}.reduce_axes"] = _row


def widened() -> str:
    return str(jnp.asarray(np.ones(1)).dtype)


_pairs = {
    "check": "test_inspect.py::test_every_step_is_verified",
    "default_float": switch("default_float", lambda: jnp.zeros(1).dtype.name, np.float64, "float32", "float64"),
    "default_int": switch("default_int", lambda: jnp.arange(1).dtype.name, np.int64, "int32", "int64"),
    "disable_jit": switch("disable_jit", lambda: seen_by_jit(), True, True, False),
    "debug_nans": switch("debug_nans", lambda: str(jnp.log(-1.0)), True, "nan", "NanError"),
    "debug_infs": switch("debug_infs", lambda: str(jnp.exp(1000.0)), True, "inf", "NanError"),
    "device": switch("device", lambda: jnp.sin(X).shape, "nowhere", (2,), "DeviceError"),
    "numpy_rank_promotion": switch(
        "numpy_rank_promotion", lambda: jnp.add(jnp.ones((1, 2)), jnp.ones(2)).shape, "raise", (1, 2), "ShapeError"
    ),
    "numpy_dtype_promotion": switch(
        "numpy_dtype_promotion", lambda: jnp.add(jnp.ones(2), jnp.arange(2)).shape, "strict", (2,), "TypePromotionError"
    ),
    "legacy_prng_key": switch(
        "legacy_prng_key", lambda: rlx.random.uniform(rlx.random.PRNGKey(0)).shape, "error", (), "InputTypeError"
    ),
    "no_tracing": switch("no_tracing", lambda: rlx.jit(lambda x: x)(1.0).shape, True, (), "SwitchError"),
    "enable_custom_prng": switch("enable_custom_prng", lambda: rlx.random.PRNGKey(0).shape, True, (2,), ()),
    "default_prng_impl": switch("default_prng_impl", lambda: rlx.random.PRNGKey(0).shape, "rbg", (2,), (4,)),
    "narrow": switch("narrow", widened, True, "float64", "float32"),
    "deterministic": "transforms/test_option_effects.py::test_deterministic_scatters",
    "auto_device": "placement/test_choice.py::test_the_environment_sets_the_policy",
    "explain": "test_jit.py::test_explain_says_what_changed",
    "symbolic_sizes": "test_symbolic_sizes.py::test_the_switch",
    "progress": "test_manners.py::test_a_short_one_and_a_silenced_one_say_nothing",
    "dump": "test_inspect.py::test_dump",
    "excess_precision": "passes/test_narrow_rounding.py::test_excess_precision_is_a_switch",
    "log_compiles": "support/test_jax_switches.py::test_compiles_are_logged",
    "check_tracer_leaks": "support/test_jax_switches.py::test_leaks_are_found_where_the_function_ends",
    "num_cpu_devices": "sharding/test_eight_devices.py::test_the_number_of_devices_is_a_setting",
    "default_matmul_precision": "lax/test_product_precision.py::test_jitted_functions_are_traced_for_each_default",
    "mesh": "sharding/test_meshes.py::test_functions_are_traced_for_each_mesh_in_force",
    "threefry_partitionable": "random/test_counters.py::test_functions_follow_the_switch",
}
ROWS |= {f"config.{name}": row for name, row in _pairs.items()}

# parameters that say what is computed, or where it is written
SUBJECTS = ("fun", "f", "path")
# accepted for JAX's sake: the docstring says so
ACCEPTED = set(
    "jit.keep_unused jit.inline checkpoint.prevent_cse checkpoint.concrete device_put.src device_put.donate"
    " lax.scan.unroll lax.fori_loop.unroll".split()
)


def options() -> set[str]:
    """The parameters with a default, without those that say what is computed, and the switches."""
    found = {f"config.{name}" for name in Config.__annotations__ if name not in ("token", "watched")}
    for name, function in FUNCTIONS.items():
        for parameter in inspect.signature(function).parameters.values():
            if parameter.default is not parameter.empty and parameter.name not in (*SUBJECTS, "_split_transpose"):
                found.add(f"{name}.{parameter.name}")
    return found


def test_every_option_has_a_row() -> None:
    assert options() == {*ROWS, *ACCEPTED}


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if isinstance(row, Row)])
def test_an_option_has_its_effect(name: str) -> None:
    row = ROWS[name]
    assert isinstance(row, Row)
    assert row.plain != row.chosen
    assert (observed(row), observed(row, **{name.rpartition(".")[2]: row.value})) == (row.plain, row.chosen)


def test_effects_that_other_tests_show() -> None:
    """The named tests exist, and use the option by name."""
    for name, place in ROWS.items():
        if isinstance(place, str):
            file, _, test = place.partition("::")
            text = (TESTS / file).read_text(encoding="utf-8")
            found = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == test]
            assert len(found) == 1, (name, place)
            words = name.rpartition(".")[2]
            source = ast.get_source_segment(text, found[0]) or ""
            assert re.search(rf"(\b|_){words}(\b|_)", source, re.IGNORECASE), (name, place)


def test_options_without_an_effect_are_said_to_be_accepted() -> None:
    for name in ACCEPTED:
        function, _, option = name.rpartition(".")
        line = re.search(rf"^.*\b{option}\b.*:(.|\n)*?\.$", FUNCTIONS[function].__doc__ or "", re.MULTILINE)
        assert line is not None and "accepted for" in line[0], name
