"""Error classes. A message describes the mistake, shows your line, and says what to write instead."""

from __future__ import annotations

import functools
import linecache
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from types import CodeType, FrameType, FunctionType
from typing import Any

from numpy.linalg import LinAlgError

__all__ = [
    "AxisError",
    "AxisNameError",
    "CallbackError",
    "CallbackTransformError",
    "CheckError",
    "CollectiveError",
    "ConcretizationTypeError",
    "ControlFlowTypeError",
    "CustomRuleError",
    "DeviceError",
    "DonatedArrayError",
    "DtypeError",
    "DtypeOverflowError",
    "FileFormatError",
    "ImmutableArrayError",
    "InconclusiveDimensionOperation",
    "IndexBoundsError",
    "InputTypeError",
    "JAXIndexError",
    "JAXTypeError",
    "JaxRuntimeError",
    "JaxprTypeError",
    "KeyReuseError",
    "MemoryLimitError",
    "MeshContextError",
    "MissingNameError",
    "MissingRuleError",
    "NanError",
    "NestingError",
    "NonConcreteBooleanIndexError",
    "NonHashableStaticArgumentError",
    "NotLinearError",
    "OptionError",
    "OutOfMemoryError",
    "PrintFormatError",
    "ReferenceUseError",
    "RlxError",
    "ScalarOutputError",
    "ShapeError",
    "ShardingError",
    "SingularMatrixError",
    "SwitchError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerHashError",
    "TracerIntegerConversionError",
    "TracerSliceError",
    "TreeMismatchError",
    "TypePromotionError",
    "UnexpectedTracerError",
    "UnsupportedError",
    "VerificationError",
    "VmapAxisError",
    "cell_name",
    "short_name",
    "user_frame",
    "user_line",
    "warn",
]

def __dir__() -> list[str]:
    return sorted(__all__)


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_VMAP = os.path.join(_PACKAGE, "transforms", "vmap.py")
# the outermost frames of threads and processes that rlx starts: no user's code is in front of them
_STARTERS = tuple(
    os.path.join(os.path.dirname(os.__file__), *path)
    for path in (("threading.py",), ("concurrent", "futures", "thread.py"), ("multiprocessing", "process.py"))
)


def user_frame(skip: int = 1) -> FrameType | None:
    """The innermost frame outside rlx, and outside NumPy and SciPy, whose functions call rlx's.

    >>> import rlx
    >>> from rlx.errors import user_frame
    >>> user_frame() is not None
    True
    """
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_PACKAGE) or _is_numerical(frame) or _is_generated(frame)
    ):
        frame = frame.f_back
    return frame


def _is_numerical(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(("numpy.", "scipy."))


def _is_generated(frame: FrameType) -> bool:
    """Whether a frame belongs to a method that a dataclass of rlx has by itself."""
    return frame.f_code.co_filename == "<string>" and str(frame.f_globals.get("__name__")).startswith("rlx.")


def is_ours(file: str) -> bool:
    """Whether a file of source code belongs to rlx.

    >>> from rlx import errors
    >>> errors.is_ours(errors.__file__), errors.is_ours("train.py")
    (True, False)
    """
    return file.startswith(_PACKAGE)


def entered() -> str:
    """The name of rlx's function that the user's code called.

    >>> from rlx.errors import entered
    >>> entered()
    'entered'
    """
    inside = frame = sys._getframe()
    while frame is not None and is_ours(frame.f_code.co_filename):
        inside, frame = frame, frame.f_back
    return inside.f_code.co_name


def user_line() -> str:
    """'file:line' and the text of the user's own line, for a message.

    >>> import rlx
    >>> from rlx.errors import user_line
    >>> "in <module>" in user_line()
    True
    """
    frame = user_frame(2)
    if frame is None or frame.f_code.co_filename in _STARTERS:
        return ""
    return source_line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def cell_name(file: str) -> str:
    """The name of the notebook cell whose source IPython calls `file`, such as "Cell In[8]"; "" for other files.

    >>> from rlx.errors import cell_name
    >>> cell_name("model.py")
    ''
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    found = None if shell is None else shell.compile.format_code_name(file)
    return "" if found is None else " ".join(found)


def short_name(file: str) -> str:
    """A file's name without its folder, or a notebook cell's name, for messages.

    >>> from rlx.errors import short_name
    >>> short_name("/home/me/model.py")
    'model.py'
    """
    return cell_name(file) or os.path.basename(file)


def source_line(file: str, line: int, function: str) -> str:
    """'file:line, in function' and the text of the line, for a message."""
    text = linecache.getline(file, line).strip()
    place = f"{short_name(file)}:{line}, in {function}"
    return f"  at {place}\n    {text}" if text else f"  at {place}"


def line_of_function(function: Any) -> str:
    """The line that defines a user's function, in the form of user_line; empty if it is unknown."""
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType) and not is_ours(code.co_filename):
        return source_line(code.co_filename, code.co_firstlineno, code.co_name)
    call = vars(type(function)).get("__call__")
    wrapped = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
    inner = wrapped or (call if isinstance(call, FunctionType) else None)
    return "" if inner is None else line_of_function(inner)


def did_you_mean(name: str, known: Iterable[str], spelt: Callable[[str], str] = str) -> str:
    """Names similar to a misspelt name, as a question; empty if there are none.

    >>> from rlx.errors import did_you_mean
    >>> did_you_mean("reshpae", ["ravel", "reshape", "repeat"])
    'Did you mean reshape?'
    """
    near = [spelt(k) for _, k in similar(name, known)]
    return f"Did you mean {' or '.join(filter(None, (', '.join(near[:-1]), near[-1])))}?" if near else ""


def similar(name: str, known: Iterable[str]) -> list[tuple[float, str]]:
    """(similarity, name) of the most similar of the known names, best first; case does not count.

    >>> from rlx.errors import similar
    >>> similar("Relu", ["relu", "ravel"])
    [(1.0, 'relu')]
    """
    import difflib  # only after a mistake

    folded: dict[str, list[str]] = {}
    for k in known:
        folded.setdefault(k.lower(), []).append(k)
    found = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.75)
    ratios = [difflib.SequenceMatcher(None, f, name.lower()).ratio() for f in found]
    return [(ratio, k) for ratio, f in zip(ratios, found, strict=True) for k in folded[f]]


def warn(what: str, category: type[Warning] = UserWarning) -> None:
    """A warning at the user's own line.

    >>> import rlx
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     rlx.errors.warn("Something is odd.")
    >>> str(seen[0].message)
    'Something is odd.'
    """
    frame = user_frame(2)
    depth = 2
    walked = sys._getframe(1)
    while walked is not None and walked is not frame:
        walked, depth = walked.f_back, depth + 1
    warnings.warn(what, category, stacklevel=depth)


class RlxError(Exception):
    """The base class of all errors of rlx.

    `what` happened; `instead`: what to write. The user's own line is added between the two.

    >>> import rlx
    >>> raise rlx.errors.RlxError("Something happened.", "Write something else.")
    Traceback (most recent call last):
        ...
    rlx.errors.RlxError: Something happened...
    """

    def __init__(self, what: str, instead: str = "", line: str | None = None) -> None:
        self.what = what
        self.instead = instead
        self.line = user_line() if line is None else line
        super().__init__(self._text())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled unchanged: the reading process has a different line."""
        return _read, (type(self), self.args, vars(self))

    def relocate(self, line: str) -> None:
        """Replace the line by another line of the user's code.

        >>> import rlx
        >>> error = rlx.errors.RlxError("Something happened.", "Write something else.", "  at here")
        >>> error.relocate("  at there")
        >>> str(error).splitlines()[1]
        '  at there'
        """
        self.line = line
        self.args = (self._text(),)

    def _text(self) -> str:
        return "\n".join(part for part in (self.what, self.line, self.instead, _more(type(self))) if part)


_PER_EXAMPLE = "Inside of vmap, shapes are without the mapped axis."


def _is_mapped() -> bool:
    """Whether rlx.vmap calls the user's function that the error is raised in."""
    frame = user_frame(2)
    while frame is not None and not is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    while frame is not None and is_ours(frame.f_code.co_filename):
        if frame.f_code.co_filename == _VMAP:
            return True
        frame = frame.f_back
    return False


def _read(error: type[RlxError], args: tuple[Any, ...], fields: dict[str, Any]) -> RlxError:
    found = error.__new__(error, *args)
    found.args = args
    vars(found).update(fields)
    return found


@functools.cache
def _more(error: type[RlxError]) -> str:
    """The page about an error: the page of its first public class."""
    known = (base for base in error.__mro__ if base.__module__ == __name__ and base.__name__ in __all__)
    base = next(known, RlxError)
    return "" if base is RlxError else f"More: rlx explain {base.__name__}"


class ShapeError(RlxError, ValueError, TypeError):
    """Operands with incompatible shapes.

    >>> import rlx.numpy as jnp
    >>> jnp.ones(2) + jnp.ones(3)
    Traceback (most recent call last):
        ...
    rlx.errors.ShapeError: add got operands whose shapes do not broadcast: float32[2] and float32[3]...
    """

    def __init__(self, what: str, instead: str = "", line: str | None = None) -> None:
        super().__init__(what, f"{instead} {_PER_EXAMPLE}" if _is_mapped() else instead, line)


class AxisError(ShapeError, IndexError):
    """An axis number that an array does not have.

    >>> import rlx.numpy as jnp
    >>> jnp.ones((2, 3)).sum(axis=2)
    Traceback (most recent call last):
        ...
    rlx.errors.AxisError: sum got axis 2 for an array of 2 dimensions...
    """


class DtypeError(RlxError, TypeError, ValueError):
    """An operand of a dtype that the operation does not accept.

    >>> import rlx
    >>> rlx.lax.sin(1)
    Traceback (most recent call last):
        ...
    rlx.errors.DtypeError: sin does not take int32...
    """


class TypePromotionError(DtypeError):
    """Operands without a common dtype, or without one that the switch numpy_dtype_promotion allows.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> with rlx.numpy_dtype_promotion("strict"):
    ...     jnp.ones(2) + jnp.arange(2)
    Traceback (most recent call last):
        ...
    rlx.errors.TypePromotionError: Operands have dtypes float32, int32, while the switch numpy_dtype_pr...
    """


class SwitchError(RlxError, RuntimeError):
    """An operation that a switch forbids.

    >>> import rlx
    >>> with rlx.no_tracing():
    ...     rlx.jit(lambda x: x + 1.0)(2.0)
    Traceback (most recent call last):
        ...
    rlx.errors.SwitchError: lambda would be traced, which the switch no_tracing forbids...
    """


class DtypeOverflowError(DtypeError, OverflowError):
    """A number that its dtype, or a packed storage type, cannot hold.

    >>> import rlx
    >>> rlx.numpy.ones(2, "int8") + 300
    Traceback (most recent call last):
        ...
    rlx.errors.DtypeOverflowError: The Python integer 300 does not fit int8...
    """


class InputTypeError(RlxError, TypeError):
    """An argument that is not an array, a number, or a tree of them.

    >>> import rlx.numpy as jnp
    >>> jnp.sin("text")
    Traceback (most recent call last):
        ...
    rlx.errors.InputTypeError: An argument of sin is of type str, which is not an array, a number, or a...
    """


class JAXTypeError(RlxError, TypeError):
    """JAX's name for the base class of errors about traced values.

    >>> import rlx
    >>> try:
    ...     rlx.jit(lambda x: float(x))(1.0)
    ... except rlx.errors.JAXTypeError as error:
    ...     print(type(error).__name__)
    ConcretizationTypeError
    """


class JAXIndexError(RlxError, IndexError):
    """JAX's name for the base class of errors about indices.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> try:
    ...     rlx.jit(lambda x: x[x > 0])(jnp.ones(3))
    ... except rlx.errors.JAXIndexError as error:
    ...     print(type(error).__name__)
    NonConcreteBooleanIndexError
    """


class JaxRuntimeError(RlxError, RuntimeError):
    """JAX's name for the base class of errors at run time.

    >>> import rlx
    >>> import numpy as np
    >>> try:
    ...     rlx.pure_callback(lambda x: np.ones(3), rlx.ShapeDtypeStruct((2,), "float64"), 1.0)
    ... except rlx.errors.JaxRuntimeError as error:
    ...     print(type(error).__name__)
    CallbackError
    """


class KeyReuseError(JAXTypeError):
    """JAX's error for a random key that is used twice; rlx does not raise it.

    >>> import rlx
    >>> issubclass(rlx.errors.KeyReuseError, TypeError)
    True
    """


class InconclusiveDimensionOperation(RlxError):
    """JAX's error for a comparison of symbolic sizes; rlx does not raise it.

    >>> import rlx
    >>> issubclass(rlx.errors.InconclusiveDimensionOperation, Exception)
    True
    """


class ConcretizationTypeError(JAXTypeError):
    """A traced value was needed as a concrete one while tracing.

    >>> import rlx
    >>> rlx.jit(lambda x: float(x))(1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.ConcretizationTypeError: float() needs the value of a traced weak float32[], which is not kn...
    """


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value in `if`, `while`, `and`, `or`, `not` or bool().

    >>> import rlx
    >>> rlx.jit(lambda x: 1 if x > 0 else 0)(1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.TracerBoolConversionError: bool() needs the value of a traced weak bool[], which is not know...
    """


class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced value as an index, a length or an argument of range().

    >>> import rlx
    >>> rlx.jit(lambda n: list(range(n)))(3)
    Traceback (most recent call last):
        ...
    rlx.errors.TracerIntegerConversionError: index() needs the value of a traced weak int32[], which is not...
    """


class TracerSliceError(TracerIntegerConversionError, IndexError):
    """A traced value as a bound of a slice: the result's size would depend on it.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.jit(lambda x, n: x[:n])(jnp.ones(3), 2)
    Traceback (most recent call last):
        ...
    rlx.errors.TracerSliceError: A slice has the traced bound weak int32[], so that the size of its result ...
    """


class TracerArrayConversionError(ConcretizationTypeError):
    """A traced value passed to NumPy.

    >>> import rlx
    >>> import numpy as np
    >>> rlx.jit(lambda x: np.asarray(x))(1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.TracerArrayConversionError: A NumPy function (np.asarray or another) needs the value of ...
    """


class TracerHashError(RlxError, TypeError):
    """A traced value or an array as a dict key or set member.

    >>> import rlx.numpy as jnp
    >>> {jnp.ones(2)}
    Traceback (most recent call last):
        ...
    rlx.errors.TracerHashError: An rlx array cannot be hashed, so it cannot be a dict key or a set memb...
    """


class NonConcreteBooleanIndexError(JAXIndexError):
    """A traced boolean mask as an index: the result's size would depend on values.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.jit(lambda x: x[x > 0])(jnp.ones(3))
    Traceback (most recent call last):
        ...
    rlx.errors.NonConcreteBooleanIndexError: A traced bool mask bool[3] is used as an index: the result...
    """


class IndexBoundsError(JAXIndexError):
    """An index that does not fit the array: too many entries, out of bounds, or of a wrong shape.

    >>> import rlx.numpy as jnp
    >>> jnp.ones(3)[0, 0]
    Traceback (most recent call last):
        ...
    rlx.errors.IndexBoundsError: too many indices for array: array is 1-dimensional, but 2 were indexed...
    """


class ImmutableArrayError(RlxError, TypeError, ValueError):
    """x[index] = value: arrays are immutable.

    >>> import rlx.numpy as jnp
    >>> jnp.ones(3)[0] = 1.0
    Traceback (most recent call last):
        ...
    rlx.errors.ImmutableArrayError: x[index] = value does not work: rlx arrays are immutable...
    """


class UnexpectedTracerError(JAXTypeError):
    """A traced value outlived the function that it was traced in.

    >>> import rlx
    >>> kept = []
    >>> y = rlx.jit(lambda x: kept.append(x * 2) or x)(1.0)
    >>> kept[0] + 1.0
    Traceback (most recent call last):
        ...
    rlx.errors.UnexpectedTracerError: A traced weak float32[] is used outside of the function that it was t...
    """


class OptionError(RlxError, TypeError, ValueError):
    """An unknown option of jit, or an option with an invalid value.

    >>> import rlx
    >>> rlx.jit(lambda x: x, memory_limit=-1)
    Traceback (most recent call last):
        ...
    rlx.errors.OptionError: jit got memory_limit=-1...
    """


class NonHashableStaticArgumentError(RlxError, ValueError, TypeError):
    """A static argument of jit that cannot be hashed.

    >>> import rlx
    >>> rlx.jit(lambda x, n: x, static_argnums=1)(1.0, [2])
    Traceback (most recent call last):
        ...
    rlx.errors.NonHashableStaticArgumentError: Static argument 1 of lambda is a list, which cannot be h...
    """


class NotLinearError(RlxError, TypeError):
    """linear_transpose of a function, or a derivative rule, that is not linear.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.linear_transpose(jnp.sin, 1.0)(1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.NotLinearError: sin is not linear in its operands, so it cannot be transposed...
    """


class DonatedArrayError(JaxRuntimeError):
    """An array was used after it had been donated to a jitted call, or deleted.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> x = jnp.ones(1000)
    >>> y = rlx.jit(lambda x: x + 1.0, donate_argnums=0)(x)
    >>> x + 1.0
    Traceback (most recent call last):
        ...
    rlx.errors.DonatedArrayError: This array was donated to a jitted call and its memory has been given...
    """


class OutOfMemoryError(RlxError, MemoryError):
    """The machine cannot provide the memory for an array or a compiled function.

    >>> import rlx.numpy as jnp
    >>> jnp.ones((10**9, 10**9))
    Traceback (most recent call last):
        ...
    rlx.errors.OutOfMemoryError: There is no memory for float32[1000000000,1000000000] (3.5 EiB)...
    """


class SingularMatrixError(RlxError, LinAlgError):
    """A solver got a sparse matrix that is singular.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sparse.spsolve(sparse.diags([1.0, 0.0], dtype="float64"), np.ones(2))
    Traceback (most recent call last):
        ...
    rlx.errors.SingularMatrixError: spsolve got a singular matrix: a pivot is exactly zero...
    """


class MissingNameError(RlxError, AttributeError):
    """A name that a module, an array or the configuration does not have.

    `find`, a function of the name and of the names that are `known`, finds the remedy when the message is read: hasattr
    is quick.

    >>> import rlx.numpy as jnp
    >>> jnp.tahn(1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.MissingNameError: rlx.numpy has no tahn...
    """

    def __init__(
        self,
        what: str,
        instead: str = "",
        line: str | None = None,
        name: str = "",
        known: Iterable[str] = (),
        find: Callable[[str, Iterable[str]], str] = did_you_mean,
    ) -> None:
        super().__init__(what, instead, line)
        self._known, self._find = tuple(known), find
        # Python would add a guess of its own if it knew the object
        self.name, self.obj = name, None

    def __str__(self) -> str:
        instead = self.instead or self._find(self.name or "", self._known)
        return "\n".join(part for part in (self.what, self.line, instead, _more(type(self))) if part)


class PrintFormatError(RlxError, ValueError, KeyError, IndexError):
    """A format string of debug.print that does not match its values.

    >>> import rlx
    >>> rlx.debug.print("{y}", 1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.PrintFormatError: debug.print: the format string names the value 'y'; given were 0...
    """

    __str__ = Exception.__str__  # KeyError would quote it


class ScalarOutputError(RlxError, TypeError):
    """grad of a function whose result is not one real number.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.grad(lambda x: 2.0 * x)(jnp.ones(2))
    Traceback (most recent call last):
        ...
    rlx.errors.ScalarOutputError: grad takes a function that returns one scalar; lambda returned float3...
    """


class ShardingError(RlxError, ValueError):
    """A mesh, partition spec or sharding that does not match the devices, the mesh or the array.

    >>> import rlx
    >>> rlx.make_mesh((8,), ("x",))
    Traceback (most recent call last):
        ...
    rlx.errors.ShardingError: make_mesh needs 8 devices, but this process has 1...
    """


class VmapAxisError(RlxError, ValueError, TypeError):
    """in_axes, out_axes or axis sizes of vmap that do not match the arguments.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.vmap(lambda x, y: x + y)(jnp.ones(2), jnp.ones(3))
    Traceback (most recent call last):
        ...
    rlx.errors.VmapAxisError: vmap got mapped axes of different sizes [2, 3]: arguments of shapes (2,) ...
    """


class AxisNameError(VmapAxisError, ShardingError, NameError):
    """A name of a mapped axis that is not in scope.

    >>> import rlx
    >>> rlx.lax.psum(1.0, "batch")
    Traceback (most recent call last):
        ...
    rlx.errors.AxisNameError: There is no mapped axis named 'batch' here...
    """


class ControlFlowTypeError(RlxError, TypeError, ValueError):
    """Branches or loop carries whose types differ.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.lax.cond(True, lambda: 1.0, lambda: jnp.ones(2))
    Traceback (most recent call last):
        ...
    rlx.errors.ControlFlowTypeError: lax.cond: result has different types: float32[2] from false_fun, f...
    """


class TreeMismatchError(RlxError, ValueError, TypeError):
    """Trees with different structures where equal structures are required.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.jvp(jnp.sin, (1.0,), (1.0, 2.0))
    Traceback (most recent call last):
        ...
    rlx.errors.TreeMismatchError: jvp got primals of structure PyTreeDef(((*,), {})) and tangents of s...
    """


class FileFormatError(RlxError, ValueError):
    """A file that is damaged, or not in the expected format.

    >>> import rlx
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "broken.npz"
    ...     file.write_bytes(b"no archive") and rlx.load(file)
    Traceback (most recent call last):
        ...
    rlx.errors.FileFormatError: ...broken.npz is not a .npz file of arrays: it is not an archive...
    """


class CustomRuleError(RlxError, TypeError, ValueError):
    """A custom derivative rule with a wrong result.

    >>> import rlx
    >>> f = rlx.custom_jvp(lambda x: x)
    >>> _ = f.defjvp(lambda primals, tangents: 1.0)
    >>> rlx.grad(f)(1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.CustomRuleError: The custom_jvp rule of lambda must return a pair (result, tangent), got...
    """


class MissingCustomRuleError(CustomRuleError, AttributeError):
    """A call of a custom_jvp or custom_vjp function without a rule."""


class MemoryLimitError(RlxError, MemoryError):
    """A program that does not fit into jit's memory_limit.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.jit(lambda x: jnp.sort(jnp.sort(x) * 2.0), memory_limit=1)(jnp.ones(1000))
    Traceback (most recent call last):
        ...
    rlx.errors.MemoryLimitError: lambda needs 3.9 KiB of temporary memory, with all that can be compute...
    """


class NestingError(RlxError, RecursionError):
    """A function that is traced calls others, jitted ones or itself, more deeply than Python allows.

    >>> import rlx
    >>> @rlx.jit
    ... def factorial(n):
    ...     return n * factorial(n - 1)
    >>> factorial(3)
    Traceback (most recent call last):
        ...
    rlx.errors.NestingError: Tracing factorial went more than 1000 calls deep, ...
    """


class NanError(RlxError, FloatingPointError):
    """An operation that produced a NaN while the switch debug_nans was on, or an infinity with debug_infs.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> with rlx.debug_nans(True):
    ...     jnp.log(-1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.NanError: log made a NaN from operands (weak float32[]) without one...
    """

    _located = False
    _iterations = ""

    def locate(self, line: str) -> None:
        """Name the line that recorded the operation; only the first call has an effect.

        >>> import rlx
        >>> error = rlx.errors.NanError("log made a NaN.")
        >>> error.locate("  at there")
        >>> error.locate("  at its caller")
        >>> error.line
        '  at there'
        """
        if not self._located and line:
            self.relocate(line)
        self._located = True

    def within(self, iteration: int, loop: str) -> None:
        """Name the iteration of a loop in which it happened; inner loops come first.

        >>> import rlx
        >>> error = rlx.errors.NanError("log made a NaN.")
        >>> error.within(2, "scan of length 5")
        >>> error.what
        'log made a NaN. It happened in iteration 2, counted from 0, of a scan of length 5.'
        """
        before = f" It happened{self._iterations}."
        self._iterations += f"{', ' if self._iterations else ' '}in iteration {iteration}, counted from 0, of a {loop}"
        self.what = f"{self.what.removesuffix(before)} It happened{self._iterations}."
        self.args = (self._text(),)


class DeviceError(RlxError, ValueError, RuntimeError):
    """A device or backend that is not available, or an operation on arrays of different devices.

    >>> import rlx
    >>> rlx.devices("toaster")
    Traceback (most recent call last):
        ...
    rlx.errors.DeviceError: There is no device 'toaster'; rlx has backends for: cpu, ...
    """


class MeshContextError(ShardingError, RuntimeError):
    """A partition spec without a mesh.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.lax.with_sharding_constraint(jnp.ones(2), rlx.P("x"))
    Traceback (most recent call last):
        ...
    rlx.errors.MeshContextError: with_sharding_constraint got P('x',), but no mesh is set...
    """


class CallbackError(JaxRuntimeError):
    """A host callback whose result does not match its declaration.

    >>> import rlx
    >>> import numpy as np
    >>> rlx.pure_callback(lambda x: np.ones(3), rlx.ShapeDtypeStruct((2,), "float64"), 1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.CallbackError: The callback lambda returned float64[3] instead of float64[2]...
    """


class CollectiveError(JaxRuntimeError):
    """A collective operation that processes did not reach together: one has stopped, or they run different programs.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> threads.run(2, lambda: rlx.distributed.all_reduce(1.0 if rlx.process_index() else [1.0, 2.0]))
    Traceback (most recent call last):
        ...
    rlx.errors.CollectiveError: The members of the group 'world' do different things...
    """


class CheckError(RlxError, ValueError):
    """A check of rlx.experimental.checkify that failed, or that is compiled without checkify.

    >>> from rlx.experimental import checkify
    >>> checkify.check(1 > 2, "one is not more than two")
    Traceback (most recent call last):
        ...
    rlx.ops.check.FailedCheckError: one is not more than two (`check` failed)...
    """


class MissingRuleError(RlxError, TypeError):
    """A primitive class that does not state a rule.

    >>> import rlx
    >>> @rlx.primitive
    ... class Nothing(rlx.Primitive):
    ...     pass
    Traceback (most recent call last):
        ...
    rlx.errors.MissingRuleError: primitive 'Nothing' states no type, reference, jvp, transpose, batch, ...
    """


class UnsupportedError(RlxError, NotImplementedError):
    """An operation that rlx does not support.

    >>> import rlx
    >>> rlx.jit(lambda x: x + 1).lower(1.0).as_text("hlo")
    Traceback (most recent call last):
        ...
    rlx.errors.UnsupportedError: A program of rlx has no text in 'hlo'...
    """


class ReferenceUseError(InputTypeError, ValueError):
    """A mutable reference that is passed twice, or written where the update cannot be returned.

    >>> import rlx
    >>> ref = rlx.new_ref(0.0)
    >>> rlx.jit(lambda a, b: a[...] + b[...])(ref, ref)
    Traceback (most recent call last):
        ...
    rlx.errors.ReferenceUseError: lambda got one Ref twice, as a and as b...
    """


class JaxprTypeError(RlxError, TypeError):
    """JAX's name for the base class of VerificationError.

    >>> import rlx
    >>> issubclass(rlx.errors.VerificationError, rlx.errors.JaxprTypeError)
    True
    """


class CallbackTransformError(UnsupportedError, ValueError):
    """A transform of a host callback that does not support it.

    >>> import rlx
    >>> rlx.grad(lambda x: rlx.pure_callback(lambda v: v, x, x))(1.0)
    Traceback (most recent call last):
        ...
    rlx.errors.CallbackTransformError: pure_callback of lambda has no derivative...
    """


class VerificationError(JaxprTypeError, AssertionError):
    """A program or plan that violates a rule of its stage: a bug in rlx or in a user's pass.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> from rlx.ir.verify import verify_program
    >>> program = rlx.make_program(jnp.sin)(1.0)
    >>> verify_program(program.replace(inputs=()), "hir")
    Traceback (most recent call last):
        ...
    rlx.errors.VerificationError: ...
    """


def not_linear(name: str) -> NotLinearError:
    """The error for an operation that cannot be transposed."""
    return NotLinearError(
        f"{name} is not linear in its operands, so it cannot be transposed.",
        "linear_transpose takes a function that is linear in its arguments, and a derivative rule is linear"
        " in the tangents: use rlx.vjp for other functions.",
    )


def immutable(name: str, instead: str = "") -> ImmutableArrayError:
    """The error for a function that would write into an array; `name`: rlx.numpy's, which takes inplace=False."""
    return ImmutableArrayError(
        f"{name} writes into its argument, and rlx arrays are immutable.",
        instead or f"Write x = rlx.numpy.{name}(x, ..., inplace=False), or x = x.at[index].set(values).",
    )


def out_of_memory(types: Iterable[Any], why: str = "") -> OutOfMemoryError:
    """The error for arrays that do not fit into memory; `why` is their purpose."""
    wanted = ", ".join(f"{t!r} ({bytes_text(t.nbytes)})" for t in types)
    return OutOfMemoryError(
        f"There is no memory for {wanted}{why}.",
        "Check the shapes; compute less at once, with rlx.lax.map(f, xs, batch_size=...) or rlx.lax.scan; or use a"
        " narrower dtype.",
    )


def bytes_text(count: int) -> str:
    """A number of bytes in a readable unit."""
    for power, unit in ((60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} B"


def describe(value: Any) -> str:
    """A value's type and shape in a few words, for messages."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return f"{type(value).__name__} {value!r:.60}"
    return f"{dtype}[{','.join(map(str, shape))}]"
