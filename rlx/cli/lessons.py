"""For each class of rlx.errors: its causes, and code that works."""

from __future__ import annotations

from textwrap import dedent
from typing import NamedTuple

__all__ = ["LESSONS", "Lesson"]


class Lesson(NamedTuple):
    """The causes of an error in a few sentences, and code that works; the tests run it."""

    why: str
    instead: str


def _lesson(why: str, instead: str) -> Lesson:
    return Lesson(dedent(why).strip(), dedent(instead).strip())


_STATIC = """
    A traced function has shapes and dtypes but no values: it is compiled once and runs for all values. If the program
    depends on a value, make the value a static argument (there is one program for each), or express the choice as an
    operation of the program.
"""

LESSONS: dict[str, Lesson] = {
    "AxisError": _lesson(
        """
        Axes are numbered from 0 to the number of dimensions minus 1, or from the end as -1, -2, ... Each axis may be
        named once. A common cause is a batch axis: inside `vmap` an array has one axis less.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        x = jnp.ones((2, 3))
        assert x.sum(axis=-1).shape == (2,)
        assert rlx.vmap(lambda row: row.sum(axis=0))(x).shape == (2,)  # a row has axis 0 only
        """,
    ),
    "AxisNameError": _lesson(
        """
        `psum` and the other collectives combine values along a named axis. Call them inside a function that is mapped
        with this name.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        weights = rlx.vmap(lambda x: x / rlx.lax.psum(x, "batch"), axis_name="batch")(jnp.arange(4.0))
        assert float(weights.sum()) == 1.0
        """,
    ),
    "CallbackError": _lesson(
        """
        A compiled program needs the shape and dtype of a callback's result before it runs. `pure_callback` declares
        them, and the function must return exactly this type. An exception raised by the function is also reported with
        this error.
        """,
        """
        import numpy as np
        import rlx

        kind = rlx.ShapeDtypeStruct((3,), "float64")
        found = rlx.jit(lambda x: rlx.pure_callback(lambda v: np.full(3, v), kind, x))(2.0)
        assert found.tolist() == [2.0, 2.0, 2.0]
        """,
    ),
    "CallbackTransformError": _lesson(
        """
        rlx cannot differentiate a Python function that it does not trace. Define its derivative, or declare that it has
        none.
        """,
        """
        import numpy as np
        import rlx

        @rlx.custom_jvp
        def host_sin(x):
            return rlx.pure_callback(lambda v: np.sin(v), x, x)

        @host_sin.defjvp
        def host_sin_jvp(primals, tangents):
            return host_sin(*primals), rlx.numpy.cos(*primals) * tangents[0]

        assert float(rlx.grad(host_sin)(0.0)) == 1.0
        """,
    ),
    "CheckError": _lesson(
        """
        A check of `rlx.experimental.checkify` failed. Outside compiled programs it raises immediately. Inside,
        `checkify` collects the failures, and `.throw()` raises the first one.
        """,
        """
        import rlx
        from rlx.experimental import checkify

        def root(x):
            checkify.check(x >= 0, "{x} is negative", x=x)
            return rlx.numpy.sqrt(x)

        error, value = rlx.jit(checkify.checkify(root))(-1.0)
        assert "negative" in error.get()
        """,
    ),
    "CollectiveError": _lesson(
        """
        Processes that compute together meet at every exchange. All of them must call the same operation on arrays of
        the same shape and dtype, from programs with the same operations. Numbers may differ between processes, but an
        exchange must not depend on `if rlx.process_index() == 0:`. Code for one process only (printing, saving) belongs
        outside jitted functions and must not exchange data. The message lists the operation of each process, or the
        processes that did not arrive within RLX_COLLECTIVE_TIMEOUT seconds.
        """,
        """
        import rlx
        from rlx.distributed import threads

        def work():
            total = rlx.distributed.all_reduce(1.0 + rlx.process_index())
            return float(total) if rlx.process_index() == 0 else None

        assert threads.run(2, work) == [3.0, None]
        """,
    ),
    "ConcretizationTypeError": _lesson(
        _STATIC,
        """
        from functools import partial
        import rlx

        @partial(rlx.jit, static_argnames="power")
        def scaled(x, power):
            return x / 10.0 ** float(power)  # a Python number: one program for each power

        assert float(scaled(5.0, power=1)) == 0.5

        # without jit values are known, but a Python number has no derivative: it is one only where none is meant
        slope = rlx.grad(lambda x: x * float(rlx.lax.stop_gradient(x)))
        assert slope(3.0).item() == 3.0
        """,
    ),
    "ControlFlowTypeError": _lesson(
        """
        A compiled branch or loop has one type: both branches return the same shapes, dtypes and trees, and a loop's
        carry keeps its type. A common cause is a carry that starts as a Python number and becomes an array of another
        dtype. Give it that dtype at the start.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        xs = jnp.arange(4.0).astype("float64")
        total, _ = rlx.lax.scan(lambda total, x: (total + x, None), jnp.zeros((), xs.dtype), xs)
        assert float(total) == 6.0
        assert rlx.lax.cond(True, lambda: jnp.zeros(2), lambda: jnp.ones(2)).shape == (2,)
        """,
    ),
    "CustomRuleError": _lesson(
        """
        A rule of `custom_jvp` returns the result and its tangent. For `custom_vjp`, the forward rule returns the result
        and the residuals for the backward rule. The backward rule returns a cotangent for each argument, with the
        argument's shape.
        """,
        """
        import rlx

        @rlx.custom_vjp
        def clipped_slope(x):
            return x**2

        clipped_slope.defvjp(lambda x: (x**2, x), lambda x, cotangent: (cotangent * rlx.numpy.clip(2 * x, -1, 1),))
        assert float(rlx.grad(clipped_slope)(3.0)) == 1.0
        """,
    ),
    "DeviceError": _lesson(
        """
        The device is not available (`rlx doctor` names a missing package), or two arrays of one operation are on
        different devices. rlx does not move arrays implicitly, because a hidden copy would be slow.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        device = rlx.devices()[0]
        x = rlx.device_put(jnp.ones(2), device)  # the default device
        assert x.device == device
        """,
    ),
    "DonatedArrayError": _lesson(
        """
        `donate_argnums` gives an argument's memory to the result. The array cannot be used afterwards. Use the result
        instead, or do not donate arrays that are needed again.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        step = rlx.jit(lambda x: x * 0.5, donate_argnums=0)
        x = jnp.ones(1000)
        for _ in range(3):
            x = step(x)  # x is now the new array
        assert float(x[0]) == 0.125
        """,
    ),
    "DtypeError": _lesson(
        """
        The operation is not defined for this dtype. Functions of `rlx.numpy` promote integers to floats where NumPy
        does; functions of `rlx.lax` do not promote. Convert with `.astype`.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        assert float(jnp.sin(1)) > 0.8
        assert float(rlx.lax.sin(jnp.asarray(1).astype("float32"))) > 0.8
        """,
    ),
    "DtypeOverflowError": _lesson(
        """
        A Python number takes the dtype of the array in the same operation, and this number does not fit. Convert the
        array, or the number, to a wider dtype.
        """,
        """
        import rlx.numpy as jnp

        assert (jnp.ones(2, "int8").astype("int32") + 300).tolist() == [301, 301]
        """,
    ),
    "FileFormatError": _lesson(
        """
        The file is damaged, incomplete, or not in the format of its name. None of it was used. `rlx.save` replaces a
        file only after the new one is complete on the disk, so an interruption does not lose the older version.
        """,
        """
        import pathlib, tempfile
        import rlx

        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "model.safetensors"
            rlx.save(file, {"w": [1.0, 2.0]})
            assert float(rlx.load(file)["w"][1]) == 2.0
        """,
    ),
    "ImmutableArrayError": _lesson(
        """
        Arrays are immutable, so that programs can be transformed and memory can be shared. `x.at[index]` has `set`,
        `add`, `multiply`, `min`, `max` and other methods, which return a new array. A compiled program updates in place
        where this cannot be observed.
        """,
        """
        import rlx.numpy as jnp

        x = jnp.zeros(3)
        x = x.at[0].set(1.0)
        x = x.at[1:].add(2.0)
        assert x.tolist() == [1.0, 2.0, 2.0]
        """,
    ),
    "InconclusiveDimensionOperation": _lesson(
        """
        JAX raises this error for symbolic sizes. rlx does not raise it, because sizes are numbers during tracing. The
        name exists for code that catches it.
        """,
        """
        import rlx

        assert issubclass(rlx.errors.InconclusiveDimensionOperation, rlx.errors.RlxError)
        """,
    ),
    "IndexBoundsError": _lesson(
        """
        There are more indices than axes, an index has a shape that does not fit, or a number is out of bounds. Numbers
        in *arrays* of indices are not checked: as in JAX, they are clamped when reading and dropped when writing,
        unless `mode` is set.
        """,
        """
        import rlx.numpy as jnp

        x = jnp.arange(3.0)
        assert float(x[-1]) == 2.0
        assert x[jnp.array([1, 5])].tolist() == [1.0, 2.0]  # the nearest element
        assert jnp.isnan(x.at[jnp.array([1, 5])].get(mode="fill")).tolist() == [False, True]
        """,
    ),
    "InputTypeError": _lesson(
        """
        Arguments of transformed functions are arrays, numbers, and trees of them: lists, tuples, dicts, and registered
        classes. Strings, functions and configuration objects must be static arguments or captured values.
        """,
        """
        from functools import partial
        import rlx
        import rlx.numpy as jnp

        @partial(rlx.jit, static_argnames="kind")
        def activate(x, kind):
            return getattr(jnp, kind)(x)

        assert float(activate(0.0, kind="cos")) == 1.0
        """,
    ),
    "JAXIndexError": _lesson(
        """
        The base class of errors about indices, under JAX's name: see NonConcreteBooleanIndexError and IndexBoundsError.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        assert float(rlx.jit(lambda x: jnp.where(x > 0, x, 0).sum())(jnp.ones(3))) == 3.0
        """,
    ),
    "JAXTypeError": _lesson(
        """
        The base class of errors about traced values, under JAX's name: see ConcretizationTypeError and
        UnexpectedTracerError.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        assert float(rlx.jit(lambda x: jnp.where(x > 0, 1.0, 0.0))(2.0)) == 1.0
        """,
    ),
    "JaxRuntimeError": _lesson(
        """
        The base class of errors at run time, under JAX's name: see CallbackError and DonatedArrayError.
        """,
        """
        import rlx

        assert issubclass(rlx.errors.CallbackError, rlx.errors.JaxRuntimeError)
        """,
    ),
    "JaxprTypeError": _lesson(
        """
        The base class of VerificationError, under JAX's name.
        """,
        """
        import rlx

        assert issubclass(rlx.errors.VerificationError, rlx.errors.JaxprTypeError)
        """,
    ),
    "KeyReuseError": _lesson(
        """
        JAX raises this error under `debug_key_reuse` if a random key is used twice. rlx does not raise it. Two draws
        from one key give the same numbers: split the key.
        """,
        """
        import rlx

        first, second = rlx.random.split(rlx.random.key(0))
        assert float(rlx.random.normal(first)) != float(rlx.random.normal(second))
        """,
    ),
    "MemoryLimitError": _lesson(
        """
        The program needs more temporary memory than `memory_limit`, even after all possible recomputation. Raise the
        limit, use smaller batches, or choose the values to recompute with `rlx.checkpoint`. `rlx.inspect(f)(x).memory`
        shows the memory of each temporary.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        f = lambda x: jnp.sort(jnp.sort(x) * 2.0)
        needed = rlx.inspect(f)(jnp.ones(1000)).memory.arena
        assert rlx.jit(f, memory_limit=needed)(jnp.ones(1000)).shape == (1000,)
        """,
    ),
    "MeshContextError": _lesson(
        """
        A partition spec does not name its mesh. Set a mesh with `rlx.set_mesh`, or write `NamedSharding(mesh, spec)`.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        with rlx.set_mesh(rlx.make_mesh((1,), ("x",))):
            assert rlx.lax.with_sharding_constraint(jnp.ones(2), rlx.P("x")).shape == (2,)
        """,
    ),
    "MissingNameError": _lesson(
        """
        The module or array does not have this name. The message suggests similar names, or the equivalent of a name
        from another library. `docs/coverage.md` lists JAX's names.
        """,
        """
        import rlx.numpy as jnp

        assert jnp.concatenate([jnp.ones(1), jnp.ones(1)]).shape == (2,)  # torch.cat
        """,
    ),
    "MissingRuleError": _lesson(
        """
        A primitive states its type, its reference, its derivative, its batching and its lowering. A family
        (`rlx.ops.families`) derives most of them: an elementwise operation needs four lines. CONTRIBUTING.md contains
        an example.
        """,
        """
        import numpy as np
        import rlx
        from rlx.ops.families import Elementwise

        @rlx.primitive
        class doubled(Elementwise):
            kinds = "f"

            def compute(self, x):
                return x * 2

            def scalar(self, s, x):
                return x * 2.0

            def partials(self, out, x):
                return (np.asarray(2.0, x.dtype),)

        assert float(rlx.grad(doubled)(3.0)) == 2.0
        """,
    ),
    "NanError": _lesson(
        """
        The switch `debug_nans` (or `debug_infs`) is on, and an operation produced a NaN from operands without NaN. The
        message names the operation and your line. Keep the function away from undefined arguments on *both* sides of a
        `where`, because the derivative of the side that is not selected is also computed.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        def safe_log(x):
            positive = jnp.where(x > 0, x, 1.0)
            return jnp.where(x > 0, jnp.log(positive), 0.0)

        with rlx.debug_nans(True):
            assert float(rlx.grad(safe_log)(0.0)) == 0.0
        """,
    ),
    "NestingError": _lesson(
        """
        A function is traced by calling it, so a function that calls itself without end while it is traced never
        returns, and each jitted function inside another one takes a dozen of Python's calls. Write a loop of
        `rlx.lax` where a traced value decides when a recursion ends; leave `rlx.jit` off the inner functions, since
        the outermost one compiles all of them.
        """,
        """
        import rlx
        from rlx import lax

        @rlx.jit
        def factorial(n):
            return lax.fori_loop(1, n + 1, lambda i, product: product * i, 1)

        assert factorial(5).item() == 120
        """,
    ),
    "NonConcreteBooleanIndexError": _lesson(
        """
        `x[mask]` has as many elements as the mask has true values, and a compiled program needs sizes before it has
        values. Keep the size and give the other elements a neutral weight or value, or state a maximum size.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        @rlx.jit
        def mean_of_positive(x):
            return x.mean(where=x > 0)

        assert float(mean_of_positive(jnp.array([-1.0, 2.0, 4.0]))) == 3.0
        first = rlx.jit(lambda x: jnp.nonzero(x > 0, size=2)[0])(jnp.array([-1.0, 2.0, 4.0]))
        assert first.tolist() == [1, 2]
        """,
    ),
    "NonHashableStaticArgumentError": _lesson(
        """
        There is one program for each value of a static argument, found by its hash. Pass a tuple instead of a list, or
        a frozen dataclass instead of a dict. A value that contains arrays should not be static.
        """,
        """
        import rlx

        f = rlx.jit(lambda x, sizes: x * len(sizes), static_argnums=1)
        assert float(f(2.0, (3, 4))) == 4.0
        """,
    ),
    "NotLinearError": _lesson(
        """
        `linear_transpose` is for functions that are linear in their arguments. The tangent of a derivative rule must
        also be linear. For derivatives of any function use `vjp`, which linearises first.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        value, pull = rlx.vjp(jnp.sin, 1.0)
        assert float(pull(1.0)[0]) == float(jnp.cos(1.0))
        """,
    ),
    "OptionError": _lesson(
        """
        An option has an invalid value, or does not exist. The message lists the valid ones.
        """,
        """
        import rlx

        assert float(rlx.jit(lambda x: x + 1.0, memory_limit=2**20)(1.0)) == 2.0
        """,
    ),
    "OutOfMemoryError": _lesson(
        """
        The machine cannot provide the memory. Check the shapes first: the usual cause is an accidental broadcast. Then
        compute less at once with `lax.map` and `batch_size`, save less for the backward pass with `rlx.checkpoint` or
        `memory_limit`, or use a narrower dtype.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        rows = jnp.ones((1000, 8))
        squares = rlx.lax.map(lambda row: (row[:, None] * row).sum(), rows, batch_size=100)
        assert squares.shape == (1000,)
        """,
    ),
    "PrintFormatError": _lesson(
        """
        `rlx.debug.print` inserts values into its text by name or position, as `str.format` does. Do not pass an
        f-string: during tracing there are no values.
        """,
        """
        import rlx

        rlx.jit(lambda x: rlx.debug.print("x is {x}", x=x) or x)(1.0)
        """,
    ),
    "RlxError": _lesson(
        """
        The base class of all errors of rlx. `what` describes the error, `line` is your line, and `instead` suggests the
        remedy. The errors are subclasses of the matching Python errors (`ValueError`, `TypeError`, ...), so code
        written for NumPy or JAX catches them.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        try:
            jnp.ones(2) + jnp.ones(3)
        except rlx.errors.RlxError as error:
            assert isinstance(error, ValueError) and "broadcast" in error.what
        """,
    ),
    "ScalarOutputError": _lesson(
        """
        `grad` needs a scalar result. Reduce the result to one number (a sum, a mean), or use another derivative of a
        function with many results: `vmap(grad(f))` for each element of a batch, `jacrev` and `jacfwd` for the whole
        matrix, `vjp` for a weighted sum.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        x = jnp.arange(3.0)
        assert rlx.vmap(rlx.grad(lambda x: x**2))(x).tolist() == [0.0, 2.0, 4.0]
        assert rlx.jacrev(lambda x: x**2)(x).shape == (3, 3)
        assert rlx.grad(lambda x: (x**2).sum())(x).tolist() == [0.0, 2.0, 4.0]
        """,
    ),
    "ShapeError": _lesson(
        """
        The shapes are incompatible. In elementwise operations, axes are aligned from the last one, and the sizes of
        each pair must be equal or one of them must be 1. Inside `vmap`, arrays do not have the batch axis.
        """,
        """
        import rlx.numpy as jnp

        rows, columns = jnp.ones(2), jnp.ones(3)
        assert (rows[:, None] + columns).shape == (2, 3)
        """,
    ),
    "ShardingError": _lesson(
        """
        A mesh, spec or sharding does not match the array or the devices, or a collective names an unknown axis.
        `rlx.device_count()` is the number of devices, and `RLX_NUM_CPU_DEVICES` sets the number of CPU devices.
        """,
        """
        import rlx

        mesh = rlx.make_mesh((rlx.device_count(),), ("x",))
        assert mesh.size == rlx.device_count()
        """,
    ),
    "SingularMatrixError": _lesson(
        """
        The matrix of a sparse system has no inverse: often a row or a column without elements, or a boundary condition
        that is missing. In compiled functions the solution is NaN instead. A least squares solution always exists.
        """,
        """
        import numpy as np
        from rlx import sparse

        singular = sparse.diags([1.0, 0.0], dtype="float64")
        regular = singular + 1e-6 * sparse.eye(2)
        assert sparse.spsolve(regular, np.array([1.0, 0.0])).shape == (2,)
        """,
    ),
    "SwitchError": _lesson(
        """
        A switch that is set here, or around the call, forbids this operation. The message names the switch.
        """,
        """
        import rlx

        f = rlx.jit(lambda x: x + 1.0)
        f(2.0)  # traced here
        with rlx.no_tracing():
            assert float(f(3.0)) == 4.0  # and not here
        """,
    ),
    "TracerArrayConversionError": _lesson(
        """
        A NumPy function received a traced value, which has no elements yet. `rlx.numpy` has the function under the same
        name. Call functions that exist only in NumPy or another library through `pure_callback`.
        """,
        """
        import numpy as np
        import rlx
        import rlx.numpy as jnp

        assert float(rlx.jit(lambda x: jnp.median(x))(np.arange(3.0))) == 1.0
        """,
    ),
    "TracerBoolConversionError": _lesson(
        _STATIC + "\nWithout `jit`, Python's `if` and `while` work on values, also under `grad`.",
        """
        import rlx
        import rlx.numpy as jnp

        assert float(rlx.jit(lambda x: jnp.where(x > 0, x, -x))(-2.0)) == 2.0  # both sides are computed
        assert float(rlx.jit(lambda x: rlx.lax.cond(x > 0, jnp.sqrt, jnp.square, x))(4.0)) == 2.0  # one branch runs
        assert float(rlx.jit(lambda x: rlx.lax.while_loop(lambda x: x > 1, lambda x: x / 2, x))(6.0)) == 0.75
        """,
    ),
    "TracerHashError": _lesson(
        """
        Equal keys need equal values, and arrays are compared by element. Use a tuple of numbers, `x.tobytes()`, or
        `id(x)` for the identity of the object.
        """,
        """
        import rlx.numpy as jnp

        x = jnp.ones(2)
        assert {tuple(x.tolist()): "found"}[(1.0, 1.0)] == "found"
        """,
    ),
    "TracerIntegerConversionError": _lesson(
        _STATIC,
        """
        from functools import partial
        import rlx

        @partial(rlx.jit, static_argnums=1)
        def power(x, n):
            for _ in range(n):  # unrolled: one program for each n
                x = x * x
            return x

        assert float(power(2.0, 3)) == 256.0
        looped = rlx.jit(lambda x, n: rlx.lax.fori_loop(0, n, lambda _, x: x * x, x))  # one program for all n
        assert float(looped(2.0, 3)) == 256.0
        """,
    ),
    "TracerSliceError": _lesson(
        """
        `x[:n]` has n elements, and sizes must be known before values. A slice of *fixed* size at a variable position is
        `lax.dynamic_slice`. For a variable size, keep all elements and use a mask.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        x = jnp.arange(6.0)
        window = rlx.jit(lambda x, start: rlx.lax.dynamic_slice(x, (start,), (2,)))
        assert window(x, 3).tolist() == [3.0, 4.0]
        first = rlx.jit(lambda x, n: x.sum(where=jnp.arange(6) < n))
        assert float(first(x, 3)) == 3.0
        """,
    ),
    "TreeMismatchError": _lesson(
        """
        Two trees must have the same structure: the same keys, the same lengths, and tuples in the same places.
        `rlx.tree.structure(x)` shows a tree's structure.
        """,
        """
        import rlx

        parameters = {"w": 1.0, "b": (2.0, 3.0)}
        zeros = rlx.tree.map(lambda x: 0.0 * x, parameters)
        assert rlx.tree.structure(zeros) == rlx.tree.structure(parameters)
        """,
    ),
    "TypePromotionError": _lesson(
        """
        The dtypes have no common dtype (packed small formats do not mix), or the switch `numpy_dtype_promotion` is
        strict, which requires explicit conversions.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        with rlx.numpy_dtype_promotion("strict"):
            assert (jnp.ones(2) + jnp.arange(2).astype("float32")).tolist() == [1.0, 2.0]
        """,
    ),
    "UnexpectedTracerError": _lesson(
        """
        A traced value was stored in a list, an attribute or a global variable, and used after its function had ended.
        Traced functions have no lasting side effects: return the values that you want to keep.
        """,
        """
        import rlx

        def f(x):
            hidden = x * 2
            return hidden + 1, hidden  # as a second result

        value, hidden = rlx.jit(f)(1.0)
        assert float(hidden) == 2.0
        gradient, hidden = rlx.grad(f, has_aux=True)(1.0)
        assert float(gradient) == 2.0
        """,
    ),
    "ReferenceUseError": _lesson(
        """
        A mutable reference denotes one location. A function receives it once, as an argument or a captured value. jit,
        scan and similar functions pass its updates on. grad and vmap do so only if the reference has no derivative and
        is the same along the mapped axis.
        """,
        """
        import rlx

        total = rlx.new_ref(0.0)

        @rlx.jit
        def count(ref, x):
            ref[...] += x

        count(total, 2.0)
        assert total[...] == 2.0
        """,
    ),
    "UnsupportedError": _lesson(
        """
        rlx does not support this operation. The message names an alternative.
        """,
        """
        import rlx

        assert "add" in rlx.jit(lambda x: x + 1).lower(1.0).as_text()
        """,
    ),
    "VerificationError": _lesson(
        """
        A program or plan violates a rule of its stage after the pass that the message names. If the pass is yours,
        `rlx.inspect` and `RLX_DUMP=folder` show its result. Otherwise it is a bug in rlx: please report it with the
        output of `rlx info`.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        with rlx.scoped(check=True):  # or RLX_CHECK=1: verifies the program after every pass
            assert rlx.jit(jnp.sin)(0.0) == 0.0
        """,
    ),
    "VmapAxisError": _lesson(
        """
        All mapped axes must have the same size, and `in_axes` must match the arguments: an integer for each mapped
        argument, None for a shared argument, or a tree of them.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        weights, rows = jnp.ones(3), jnp.ones((5, 3))
        assert rlx.vmap(jnp.dot, in_axes=(None, 0))(weights, rows).shape == (5,)
        """,
    ),
}
