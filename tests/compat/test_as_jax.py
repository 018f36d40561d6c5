"""rlx in place of jax: imports, undoing, and libraries that run on it unmodified."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import textwrap
from collections import OrderedDict, defaultdict
from typing import Any

import jax as real_jax
import numpy as np
import pytest

import rlx
import rlx.compat


def test_imports_give_rlx_and_come_back() -> None:
    with rlx.compat.as_jax() as installation:
        jax = importlib.import_module("jax")
        assert jax is not real_jax and jax.jit is rlx.jit and jax.Array is rlx.Array
        for name in ("numpy", "numpy.linalg", "lax", "nn", "random", "scipy.special", "tree_util", "flatten_util"):
            module = importlib.import_module(f"jax.{name}")
            assert module.__name__ == f"jax.{name}"
        assert importlib.import_module("jax.numpy").sin is rlx.numpy.sin
        assert jax.scipy.special.expit is rlx.scipy.special.expit
        assert jax.random.normal is rlx.random.normal and jax.ops.segment_sum is rlx.ops.segment_sum
        assert jax.config.jax_enable_x64 is False and jax.__version_info__ > (0, 4)
        assert importlib.import_module("jax.experimental.ode").odeint is rlx.experimental.ode.odeint
        assert jax.numpy.newaxis is None
        assert float(jax.pure_callback(lambda x: x + 1, jax.ShapeDtypeStruct((), np.float32), np.float32(1))) == 2.0
        assert importlib.import_module("jax.example_libraries.stax").Dense is rlx.example_libraries.stax.Dense
        with pytest.raises(ModuleNotFoundError, match="no module jax.nowhere"):
            importlib.import_module("jax.nowhere")
        with pytest.raises(AttributeError, match=r"jax\.numpy\.nothing"):
            _ = jax.numpy.nothing
    assert importlib.import_module("jax") is real_jax
    assert importlib.import_module("jax.numpy").sin is not rlx.numpy.sin
    installation.undo()
    assert importlib.import_module("jax") is real_jax


def test_dicts_are_sorted() -> None:
    """Plain ones and defaultdicts, in lists and in nodes of users; OrderedDicts stay, and so do all of them outside."""

    class Held:
        def __init__(self, value: Any) -> None:
            self.value = value

    rlx.tree_util.register_pytree_node(Held, lambda h: ((h.value,), None), lambda _, children: Held(*children))
    given = {"b": 1.0, "a": [{"z": 2.0, "y": 3.0}], "c": Held({"q": 4.0, "p": 5.0})}
    given["d"] = defaultdict(float, {"n": 6.0, "m": 7.0})
    given["e"] = OrderedDict({"v": 8.0, "u": 9.0})

    def orders() -> list[list[str]]:
        found: list[list[str]] = []
        for make in (
            lambda: rlx.tree.map(lambda x: x, given),
            lambda: rlx.tree.unflatten(rlx.tree.structure(given), rlx.tree.leaves(given)),
            lambda: rlx.jit(lambda x: rlx.tree.map(lambda v: v * 2, x))(given),
            lambda: rlx.grad(lambda x: sum(rlx.tree.leaves(x)))(given),
            lambda: rlx.vmap(lambda x: x, axis_size=2, in_axes=None)(given),
            lambda: rlx.lax.scan(lambda c, _: (c, None), given, None, 1)[0],
        ):
            made = make()
            found.append("".join(map("".join, (made, made["a"][0], made["c"].value, made["d"], made["e"]))))
        return found

    with rlx.compat.as_jax():
        assert set(orders()) == {"abcdeyzpqmnvu"}
    assert set(orders()) == {"bacdezyqpnmvu"}


def test_a_sharding_over_the_abstract_mesh_in_force() -> None:
    with rlx.set_mesh(rlx.make_mesh((1,), ("x",), axis_types=(rlx.sharding.AxisType.Auto,))):
        place = rlx.NamedSharding(rlx.sharding.get_abstract_mesh(), rlx.P("x"))
        assert rlx.jit(lambda x: x * 2, out_shardings=place)(np.ones(4, np.float32)).tolist() == [2.0] * 4


def test_an_alias_that_outlives_the_block_stays_rlx() -> None:
    with rlx.compat.as_jax():
        import jax
    assert jax.numpy.sin is rlx.numpy.sin
    assert jax.scipy.special.gammaln is rlx.scipy.special.gammaln


def test_names_for_several_devices_are_rlx_s() -> None:
    with rlx.compat.as_jax():
        sharding = importlib.import_module("jax.sharding")
        jax = importlib.import_module("jax")
        assert sharding.Mesh is rlx.sharding.Mesh and jax.P is sharding.PartitionSpec is rlx.P
        assert jax.shard_map is rlx.shard_map and jax.pmap is rlx.pmap
        assert importlib.import_module("jax.experimental.shard_map").shard_map(
            lambda x: x, jax.make_mesh((1,), ("x",)), jax.P("x"), jax.P("x")
        )(np.ones(2)).tolist() == [1.0, 1.0]
        for name in ("mesh_utils", "multihost_utils", "pjit"):
            assert importlib.import_module(f"jax.experimental.{name}").__all__
        with pytest.raises(ValueError, match="8 devices, but this process has 1"):
            jax.make_mesh((8,), ("x",))
        found = jax.typeof(np.ones((2, 3), np.float32))
        assert (found.shape, found.ndim, found.size, found.weak_type) == ((2, 3), 2, 6, False)
        assert found.sharding.mesh.empty and not found.sharding.mesh.are_all_axes_explicit
        assert found.sharding.spec == jax.P(None, None)
        placed = jax.device_put(np.ones(2), jax.NamedSharding(jax.make_mesh((1,), ("x",)), jax.P("x")))
        assert jax.typeof(placed).sharding.spec == jax.P("x")
        with jax.numpy_dtype_promotion("strict"), jax.check_tracer_leaks():
            assert jax.core.get_aval(1.0).weak_type


def test_programs_are_exported_by_jax_s_names() -> None:
    with rlx.compat.as_jax():
        import jax
        from jax import export

        (b,) = export.symbolic_shape("b", constraints=["b >= 2"])
        checks = [export.DisabledSafetyCheck.platform(), export.DisabledSafetyCheck.custom_call("f")]
        platforms = [export.default_export_platform()]
        make = export.export(jax.jit(lambda x: x * 2.0), platforms=platforms, disabled_checks=checks)
        exported = make(jax.ShapeDtypeStruct((b,), "float32"))
    assert [check.is_custom_call() for check in checks] == [None, "f"]
    assert isinstance(exported, export.Exported) and exported.platforms == ("cpu",)
    assert export.deserialize(exported.serialize(vjp_order=1)).call(np.ones(3, np.float32)).tolist() == [2.0] * 3


def test_a_placeholder_refuses() -> None:
    with rlx.compat.as_jax():
        ffi = importlib.import_module("jax.ffi")
        assert not isinstance(3, ffi.ffi_call) and ffi.ffi_call is ffi.ffi_call
        with pytest.raises(rlx.errors.UnsupportedError, match=r"jax\.ffi\.ffi_call is not part of rlx: it calls"):
            ffi.ffi_call("name", ())


def test_a_library_s_own_primitive_is_its_implementation() -> None:
    with rlx.compat.as_jax():
        core = importlib.import_module("jax.extend.core")
        own = core.Primitive("twice")
        with pytest.raises(rlx.errors.UnsupportedError, match="no implementation"):
            own.bind(1.0)
        own.def_impl(lambda x: 2 * x)
        importlib.import_module("jax.interpreters.mlir").register_lowering(own, None)
        importlib.import_module("jax.interpreters.batching").primitive_batchers[own] = None
    assert rlx.jit(rlx.grad(lambda x: own.bind(x) * x))(3.0) == 12.0


def run(program: str) -> str:
    """The output of a program in a fresh process, which sees no jax but rlx."""
    head = "import rlx.compat\nrlx.compat.as_jax()\nimport warnings\nwarnings.simplefilter('ignore')\n"
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(importlib.util.find_spec("optax") is None, reason="optax is not installed")
@pytest.mark.thorough
def test_optax_trains() -> None:
    text = run(
        """
        import jax, jax.numpy as jnp, optax, sys
        assert not any(name.startswith("jaxlib") for name in sys.modules)
        x = jnp.arange(12.0).reshape(4, 3) / 10
        y = x @ jnp.array([1.0, -2.0, 3.0]) + 0.5
        loss = lambda p: ((x @ p["w"] + p["b"] - y) ** 2).mean()
        clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.3, 0.9))
        for optimizer in (optax.adam(0.1), clipped, optax.lion(0.02)):
            params = {"w": jnp.zeros(3), "b": jnp.zeros(())}
            state = optimizer.init(params)

            @jax.jit
            def step(params, state):
                value, grads = jax.value_and_grad(loss)(params)
                updates, state = optimizer.update(grads, state, params)
                return optax.apply_updates(params, updates), state, value

            for _ in range(300):
                params, state, value = step(params, state)
            assert value < 2e-2, value
        print("trained")
        """
    )
    assert text == "trained\n"


@pytest.mark.skipif(importlib.util.find_spec("equinox") is None, reason="equinox is not installed")
def test_equinox_trains() -> None:
    text = run(
        """
        import equinox as eqx, jax, jax.numpy as jnp, optax
        model = eqx.nn.MLP(2, 1, 8, 2, key=jax.random.PRNGKey(0))
        x = jax.random.normal(jax.random.PRNGKey(1), (16, 2))
        y = x[:, :1] * x[:, 1:]
        optimizer = optax.adam(1e-2)
        state = optimizer.init(eqx.filter(model, eqx.is_array))

        @eqx.filter_jit
        def step(model, state):
            loss = lambda m: ((jax.vmap(m)(x) - y) ** 2).mean()
            value, grads = eqx.filter_value_and_grad(loss)(model)
            updates, state = optimizer.update(grads, state, model)
            return eqx.apply_updates(model, updates), state, value

        for _ in range(200):
            model, state, value = step(model, state)
        assert value < 0.05, value
        print("trained")
        """
    )
    assert text == "trained\n"


def test_names_that_are_none_or_like_pythons_own():
    with rlx.compat.as_jax():
        import jax.numpy as jnp

        assert jnp.newaxis is None
        assert jnp.__array_api_version__ == rlx.numpy.__array_api_version__
        assert all(hasattr(jnp, name) for name in dir(jnp))


def test_the_number_of_devices_is_open_until_somebody_looks() -> None:
    text = run(
        """
        import jax, jax.numpy
        from jax._src import xla_bridge
        jax.config.update("jax_num_cpu_devices", 2)
        print(len(jax.devices()), list(xla_bridge._backends))
        """
    )
    assert text == "2 ['cpu']\n"
