"""What to do about each class of rlx.errors: why it is raised, and code that does what was meant."""

from __future__ import annotations

from textwrap import dedent
from typing import NamedTuple

__all__ = ["LESSONS", "Lesson"]


class Lesson(NamedTuple):
    """Why an error is raised, in a few sentences, and code that does what was meant; it runs in the tests."""

    why: str
    instead: str


def _lesson(why: str, instead: str) -> Lesson:
    return Lesson(dedent(why).strip(), dedent(instead).strip())


_STATIC = """
    A traced function has no values, only shapes and dtypes: it is compiled once and runs for all values. Where the
    program itself depends on a value, either the value is no array (make it a static argument, and there is one
    program for each), or the choice belongs into the program.
"""

LESSONS: dict[str, Lesson] = {
    "AxisError": _lesson(
        """
        Axes are numbered from 0 to the number of dimensions minus 1, or from the end as -1, -2, ...; one may be
        named once. It is often a batch axis that `vmap` has taken away: inside of `vmap` an array has one axis
        less.
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
        `psum` and its kin add up along an axis that some transform has named. It has to be called inside of a
        function that is mapped with that name.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        shares = rlx.vmap(lambda x: x / rlx.lax.psum(x, "batch"), axis_name="batch")(jnp.arange(4.0))
        assert float(shares.sum()) == 1.0
        """,
    ),
    "CallbackError": _lesson(
        """
        A compiled program knows the shape and dtype of a callback's result before it runs, from what
        `pure_callback` was told. The function has to return just that. What the function itself raises comes out
        with this error, too.
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
        Nobody can differentiate a function of Python's that rlx cannot see into. Say what its derivative is, or
        that there is none.
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
        A check of `rlx.experimental.checkify` found what it was there to find. Outside of compiled programs it is
        raised at once; inside, `checkify` collects the failures, and `.throw()` raises the first.
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
        Processes that compute together meet at every exchange. All of them have to come, with the same operation on
        arrays of the same shape and dtype, from programs of the same operations. Numbers may differ from process to
        process, `if rlx.process_index() == 0:` around an exchange may not: what only one process does (printing,
        saving) stays outside of jitted functions and calls no exchange. The message says who came with what, or who
        did not come within RLX_COLLECTIVE_TIMEOUT seconds.
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
        """,
    ),
    "ControlFlowTypeError": _lesson(
        """
        A compiled branch or loop has one type: both branches return the same shapes, dtypes and trees, and a loop's
        carry comes out as it went in. A common reason is a carry that begins as a Python number and becomes an
        array of another dtype: give it that dtype at the start.
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
        A rule of `custom_jvp` returns the result and the tangent of the result; for `custom_vjp` the forward rule
        returns the result and what the backward rule needs, and that returns a cotangent for each argument, of the
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
        The device is not in this installation (a package that it needs may be missing: `rlx doctor` says which), or
        two arrays of one operation lie on different devices: nothing is moved without being asked, as it would be
        slow and silent.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        device = rlx.devices()[0]
        x = rlx.device_put(jnp.ones(2), device)  # where everything else is
        assert x.device == device
        """,
    ),
    "DonatedArrayError": _lesson(
        """
        `donate_argnums` gives an argument's memory to the result. The array cannot be used afterwards: use the
        result in its place, or do not donate what is needed again.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        step = rlx.jit(lambda x: x * 0.5, donate_argnums=0)
        x = jnp.ones(1000)
        for _ in range(3):
            x = step(x)  # the name leads to the new array
        assert float(x[0]) == 0.125
        """,
    ),
    "DtypeError": _lesson(
        """
        The operation has no meaning for this dtype. Functions of `rlx.numpy` promote integers to floats where NumPy
        does; those of `rlx.lax` take what they are given. Convert with `.astype`.
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
        A Python number takes the dtype of the array beside it, and this one does not fit. Widen the array, or make
        the number an array of a wider dtype.
        """,
        """
        import rlx.numpy as jnp

        assert (jnp.ones(2, "int8").astype("int32") + 300).tolist() == [301, 301]
        """,
    ),
    "FileFormatError": _lesson(
        """
        The file is broken, incomplete, or of another format than its name says. Nothing of it was used. `rlx.save`
        replaces a file only when the new one is whole on the disk, so an older version is never lost by an
        interruption.
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
        Arrays do not change, so that programs can be transformed and memory shared. `x.at[index]` has `set`, `add`,
        `multiply`, `min`, `max` and others, and gives a new array; in a compiled program that happens in place
        where nobody can tell.
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
        JAX raises it for sizes that are symbols. Nothing in rlx does: sizes are numbers when a function is traced.
        The name is there for code that catches it.
        """,
        """
        import rlx

        assert issubclass(rlx.errors.InconclusiveDimensionOperation, rlx.errors.RlxError)
        """,
    ),
    "IndexBoundsError": _lesson(
        """
        There are more indices than axes, an index has a shape that does not fit, or a number lies outside of the
        array. Numbers in *arrays* of indices are not checked: as in JAX they are clamped when reading and dropped when
        writing, unless `mode` says otherwise.
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
        Arguments of transformed functions are arrays, numbers, and trees of them: lists, tuples, dicts, and classes
        that were registered. Texts, functions and configuration objects are static arguments, or closed over.
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
        The base of errors about indices, under the name that JAX gives it: see NonConcreteBooleanIndexError and
        IndexBoundsError.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        assert float(rlx.jit(lambda x: jnp.where(x > 0, x, 0).sum())(jnp.ones(3))) == 3.0
        """,
    ),
    "JAXTypeError": _lesson(
        """
        The base of errors about traced values, under the name that JAX gives it: see ConcretizationTypeError
        and UnexpectedTracerError.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        assert float(rlx.jit(lambda x: jnp.where(x > 0, 1.0, 0.0))(2.0)) == 1.0
        """,
    ),
    "JaxRuntimeError": _lesson(
        """
        The base of errors while a program runs, under the name that JAX gives it: see CallbackError and
        DonatedArrayError.
        """,
        """
        import rlx

        assert issubclass(rlx.errors.CallbackError, rlx.errors.JaxRuntimeError)
        """,
    ),
    "JaxprTypeError": _lesson(
        """
        The base of VerificationError, under the name that JAX gives it.
        """,
        """
        import rlx

        assert issubclass(rlx.errors.VerificationError, rlx.errors.JaxprTypeError)
        """,
    ),
    "KeyReuseError": _lesson(
        """
        JAX raises it under `debug_key_reuse`, where a random key is used twice. Nothing in rlx does. Two draws from
        one key are the same numbers: split it.
        """,
        """
        import rlx

        first, second = rlx.random.split(rlx.random.key(0))
        assert float(rlx.random.normal(first)) != float(rlx.random.normal(second))
        """,
    ),
    "MemoryLimitError": _lesson(
        """
        With all that can be computed again computed again, the program still needs more temporary memory than
        `memory_limit` allows. Raise the limit, make batches smaller, or say with `rlx.checkpoint` what to forget.
        `rlx.inspect(f)(x).memory` shows what takes the room.
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
        A partition spec alone does not say of which mesh. Set one with `rlx.set_mesh`, or write
        `NamedSharding(mesh, spec)`.
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
        The module or array does not have this name. The message says what comes near it, or how a name of another
        library is written here; `docs/coverage.md` lists JAX's names.
        """,
        """
        import rlx.numpy as jnp

        assert jnp.concatenate([jnp.ones(1), jnp.ones(1)]).shape == (2,)  # another library's cat
        """,
    ),
    "MissingRuleError": _lesson(
        """
        A primitive states its type, its meaning, its derivative, its batching and its lowering. A family
        (`rlx.ops.families`) derives most of them: an elementwise operation needs four lines. CONTRIBUTING.md has
        one.
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
        The switch `debug_nans` (or `debug_infs`) was on and an operation made a NaN out of numbers that were none;
        the message names it and your line. Keep the function away from where it has no value, on *both* sides of a
        `where`: the derivative of the side that is not chosen counts.
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
    "NonConcreteBooleanIndexError": _lesson(
        """
        `x[mask]` has as many elements as the mask has true ones, and a compiled program needs sizes before it sees
        values. Keep the size and give the others a weight or a value that does not matter, or say a largest size.
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
        There is one program for each value of a static argument, found by its hash. Pass a tuple for a list, a
        frozen dataclass for a dict; if it holds arrays, it should not be static.
        """,
        """
        import rlx

        f = rlx.jit(lambda x, sizes: x * len(sizes), static_argnums=1)
        assert float(f(2.0, (3, 4))) == 4.0
        """,
    ),
    "NotLinearError": _lesson(
        """
        `linear_transpose` is for functions that are linear in their arguments; the tangent of a derivative rule has
        to be linear, too. For derivatives of any function use `vjp`, which linearises first.
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
        An option has a value that it cannot take, or there is no such option. The message names those there are.
        """,
        """
        import rlx

        assert float(rlx.jit(lambda x: x + 1.0, memory_limit=2**20)(1.0)) == 2.0
        """,
    ),
    "OutOfMemoryError": _lesson(
        """
        The machine does not give the memory. Look at the shapes first: a broadcast that was not meant is the usual
        reason. Then compute less at once with `lax.map` and `batch_size`, keep less for the backward pass with
        `rlx.checkpoint` or `memory_limit`, or take a narrower dtype.
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
        `rlx.debug.print` fills its text in with the values by name or by position, as `str.format` does. It is no
        f-string: values are not there yet when the text is made.
        """,
        """
        import rlx

        rlx.jit(lambda x: rlx.debug.print("x is {x}", x=x) or x)(1.0)
        """,
    ),
    "RlxError": _lesson(
        """
        The base of all errors that rlx raises on purpose: `what` happened, the `line` of yours, and what to write
        `instead`. Errors are subclasses of the ones of Python that fit (`ValueError`, `TypeError`, ...), so code
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
        A gradient is of one number. Reduce the result to one (a sum, a mean), or say what you want of a function
        with many results: `vmap(grad(f))` for each element of a batch, `jacrev` and `jacfwd` for the whole matrix,
        `vjp` for a weighted sum.
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
        The shapes do not belong together. Elementwise, axes are aligned from the last one, and each pair is equal
        or one of them is 1. Inside of `vmap` a batch axis is not there.
        """,
        """
        import rlx.numpy as jnp

        rows, columns = jnp.ones(2), jnp.ones(3)
        assert (rows[:, None] + columns).shape == (2, 3)
        """,
    ),
    "ShardingError": _lesson(
        """
        A mesh, spec or sharding that does not fit what is there, or a collective that its axis has not. rlx runs in one
        process with the devices of one machine: `rlx.device_count()` says how many, and `RLX_NUM_CPU_DEVICES` of how
        many the CPU is.
        """,
        """
        import rlx

        mesh = rlx.make_mesh((rlx.device_count(),), ("x",))
        assert mesh.size == rlx.device_count()
        """,
    ),
    "SwitchError": _lesson(
        """
        A switch was set that forbids this, here or around the call: that is what it is for. The message names it.
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
        A function of NumPy was handed a traced value, which has no elements yet. `rlx.numpy` has the function under
        the same name; what only NumPy or another library has goes into a `pure_callback`.
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

        assert float(rlx.jit(lambda x: jnp.where(x > 0, x, -x))(-2.0)) == 2.0  # both are computed
        assert float(rlx.jit(lambda x: rlx.lax.cond(x > 0, jnp.sqrt, jnp.square, x))(4.0)) == 2.0  # one of them is
        assert float(rlx.jit(lambda x: rlx.lax.while_loop(lambda x: x > 1, lambda x: x / 2, x))(6.0)) == 0.75
        """,
    ),
    "TracerHashError": _lesson(
        """
        Equal keys need equal values, and arrays are compared by element. Use a tuple of numbers, `x.tobytes()`, or
        `id(x)` if the very object is meant.
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
        `x[:n]` has n elements, and sizes are known before values. A slice of *fixed* size that begins anywhere is
        `lax.dynamic_slice`; for a size that varies, keep all elements and mask.
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
        Two trees have to be of the same structure: the same keys, the same lengths, tuples where the other has
        tuples. `rlx.tree.structure(x)` shows a tree's.
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
        The dtypes have no common one that holds both (packed small formats do not mix), or the switch
        `numpy_dtype_promotion` is strict, so that every conversion is to be written.
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
        A traced value was kept in a list, an attribute or a global, and used when its function had ended. Traced
        functions have no side effects that last: return what you want to keep.
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
        A mutable reference stands for one place. A function gets it once, as an argument or closed over, and what it
        writes there has to be handed on: by jit, scan and their kin, and by grad and vmap where it has no derivative
        and is the same along the mapped axis.
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
        rlx does not do this, and says so by name instead of doing something else. The message says what there is in
        its place.
        """,
        """
        import rlx

        assert "add" in rlx.jit(lambda x: x + 1).lower(1.0).as_text()
        """,
    ),
    "VerificationError": _lesson(
        """
        A program or plan breaks a rule of its stage, after a pass that the message names. If the pass is yours,
        `rlx.inspect` and `RLX_DUMP=folder` show what it made; if not, it is a bug in rlx: please report it with
        what `rlx info` prints.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        graph = rlx.Graph.trace(jnp.sin, 1.0)
        assert rlx.opt.run_passes(graph, [lambda program: program]).program.name == graph.program.name
        """,
    ),
    "VmapAxisError": _lesson(
        """
        All mapped axes have one size, and `in_axes` fits the arguments: an integer for each, None for what is
        shared by all, or a tree of them.
        """,
        """
        import rlx
        import rlx.numpy as jnp

        weights, rows = jnp.ones(3), jnp.ones((5, 3))
        assert rlx.vmap(jnp.dot, in_axes=(None, 0))(weights, rows).shape == (5,)
        """,
    ),
}
