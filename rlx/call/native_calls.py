"""Known calls of jitted functions that native code runs: see rlx/backends/call_words.py.

The layouts of objects are read from the running interpreter. Where they are not as expected (other implementations of
Python, builds without the GIL), calls run in Python.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.array import ConcreteArray
from rlx.backends import call_words as words
from rlx.config import config
from rlx.forks import cached_property, reopen_after_fork
from rlx.ir.types import is_key
from rlx.offered_names import LateModule
from rlx.storage import HostStorage, Storage, divided, padded
from rlx.trace.builder import state
from rlx.trees import tree

if TYPE_CHECKING:
    from rlx.backends.cpu.runtime import entry as native_entry
    from rlx.call.compiled import CompiledProgram
else:
    native_entry = LateModule("rlx.backends.cpu.runtime.entry")

__all__ = ["JittedWords", "KnownCalls", "Uses", "WithWords"]

_USES = 16  # calls before native code is made for them
_MOST_KNOWN = 8  # known calls of a function
_SETS = 4  # sets of memory for results that a known call keeps
_SET_BYTES = 4096  # the largest one
_WORD = ctypes.sizeof(ctypes.c_int64)


def _array(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


class WithWords:
    """The base class of jitted functions, whose first field is the address of their words."""

    __slots__ = ("_words",)
    _words: int


class JittedWords:
    """The words of a jitted function."""

    def __init__(self, known: KnownCalls) -> None:
        self._array = _array(_address(_facts), known.address, 0)
        self.address = _address(self._array)

    @property
    def calls(self) -> int:
        """How many calls native code ran."""
        return int(self._array[words.CALLS])


class KnownCalls:
    """The known calls of a traced function, the newest first."""

    def __init__(self) -> None:
        self._first = _array(0)
        self._calls: list[_KnownCall] = []
        self.address = _address(self._first)

    def add(self, known: _KnownCall) -> None:
        """Add a call; the oldest one is dropped if there are many."""
        with _lock:
            kept = [known, *self._calls[: _MOST_KNOWN - 1]]
            # native code in another thread finds no call that is dropped below
            for call, following in zip(kept, [*kept[1:], None], strict=True):
                call.words[words.NEXT] = 0 if following is None else following.address
            self._first[0] = known.address
            for old in self._calls[_MOST_KNOWN - 1 :]:
                old.retire()
            self._calls = kept

    def clear(self) -> None:
        """Forget every known call."""
        with _lock:
            self._first[0] = 0
            for known in self._calls:
                known.retire()
            self._calls = []


_lock = threading.Lock()
reopen_after_fork(sys.modules[__name__])
_retired: list[Any] = []  # calls in progress when they were forgotten: native code still reads their words


class _KnownCall:
    """The words of a known call, and the objects that they refer to."""

    def __init__(self, values: Sequence[int], kept: Sequence[Any]) -> None:
        self.words = _array(*values)
        self.address = _address(self.words)
        self._kept = kept

    def retire(self) -> None:
        """Keep what native code may still read."""
        if self.words[words.BUSY]:
            _retired.append(self)


class _ArgumentForm:
    """The form of arguments in words, the objects that it refers to, and the numbers of leaves in a program's order.

    Raises TypeError for values other than lists, tuples, dicts, and arrays of numbers that are whole in the host's
    memory.
    """

    def __init__(self, args: Sequence[Any]) -> None:
        self.arguments = len(args)
        self.leaves = 0
        self.words: list[int] = []
        self.kept: list[Any] = []
        self.order: list[int] = tree.leaves(tuple(map(self._numbered, args)))

    def _numbered(self, value: Any) -> Any:
        kind = type(value)
        if kind is ConcreteArray and value._type is value.type and not is_key(value.dtype):
            self.words += words.ARRAY_FORM, self._refer(value._type)
            self.leaves += 1
            return self.leaves - 1
        if kind is dict:
            self.words += words.DICT_FORM, len(value)
            return {name: self._item(name, part) for name, part in value.items()}
        if kind is not list and kind is not tuple:
            raise TypeError(f"a {kind.__name__} runs in Python")
        self.words += words.LIST_FORM if kind is list else words.TUPLE_FORM, len(value)
        return kind(map(self._numbered, value))

    def _item(self, name: Any, value: Any) -> Any:
        self.words.append(self._refer(name))
        return self._numbered(value)

    def _refer(self, value: Any) -> int:
        self.kept.append(value)
        return id(value)


class Uses:
    """Counts the calls with a key; after a few, native code runs them. maker: of the result; None for one array."""

    def __init__(self, key: Sequence[Any], form: _ArgumentForm, compiled: CompiledProgram, maker: Any) -> None:
        self._left = _USES
        self._token = key[0]
        self._form = form
        self._compiled = compiled
        self._maker = maker

    @staticmethod
    def of(key: Sequence[Any], args: Sequence[Any], compiled: CompiledProgram, maker: Any) -> Uses | None:
        """A counter of calls with a key; None if native code cannot run them."""
        here = compiled.memory.host and not any(is_key(t.dtype) for t in compiled.types)
        runs = compiled.executable is not None and compiled.direct and here
        if not (type(key[0]) is int and runs and compiled.types and layout.known):
            return None
        try:
            return Uses(key, _ArgumentForm(args), compiled, maker)
        except TypeError:
            return None

    def count(self, jitted: type[WithWords], known: KnownCalls) -> None:
        """Count a call in Python; the last one lets native code run the next ones."""
        self._left -= 1
        if self._left:
            return
        executable = self._compiled.executable
        frame = None if executable is None else executable.own_frame()
        if frame is None:
            return
        if layout.installed(jitted):
            known.add(self._made(frame))
        else:
            self._left = _USES

    def _made(self, frame: Any) -> _KnownCall:
        compiled, form, sizes = self._compiled, self._form, [t.nbytes for t in self._compiled.types]
        slots = [0] * form.leaves
        for number, used in enumerate(compiled.used):
            slots[form.order[used]] = frame.input_slot + number
        sets: list[list[Storage]] = []
        fresh = _fresh_sets(sizes, sets) if sum(map(padded, sizes)) <= _SET_BYTES else frame.outputs
        shape, maker, order_words = _shape_of(self._maker, len(sizes))
        types = _array(*[id(x) for t in compiled.types for x in (t, bool(t.weak))])
        slot_words, held = _array(*slots), _array(*[0] * form.leaves)
        values = [0] * words.FORM
        values[words.CALL_TOKEN] = id(self._token)
        values[words.ARGUMENTS] = form.arguments
        values[words.FRAME] = frame.address
        values[words.LEAVES] = form.leaves
        values[words.SLOTS], values[words.HELD] = _address(slot_words), _address(held)
        values[words.SETS], values[words.FRESH] = id(sets), id(fresh)
        values[words.RESULTS], values[words.RESULT_SLOT] = len(sizes), frame.output_slot
        values[words.TYPES] = _address(types)
        values[words.SHAPE], values[words.MAKER], values[words.ORDER] = shape, id(maker), _address(order_words)
        kept = (self._token, form, frame, slot_words, held, sets, fresh, types, maker, order_words, compiled)
        return _KnownCall([*values, *form.words], kept)


def _fresh_sets(sizes: Sequence[int], sets: list[list[Storage]]) -> Callable[[], list[Storage]]:
    """A function that makes memory for small results, and keeps it in `sets`."""

    def fresh() -> list[Storage]:
        made = divided(sizes)
        sets[:] = [*sets[1 - _SETS :], made]
        return made

    return fresh


def _shape_of(maker: Any, count: int) -> tuple[int, Any, np.ndarray]:
    """The shape of a result of `count` arrays, the function or dict that it is made of, and the order of a dict."""
    if maker is None:
        return words.ONE, None, _array(0)
    result = maker.unflatten(range(count))
    if type(result) is dict and all(type(k) is str and type(v) is int for k, v in result.items()):
        return words.MAPPING, dict.fromkeys(result), _array(*[n for k, v in result.items() for n in (id(k), v)])
    return words.OTHER, maker.unflatten, _array(0)


# ------------------------------------------------------------------ the layouts of objects
_facts = _array(*[0] * words.FACT_WORDS)
_IN_PYTHON = sys.intern("_call")
_facts[words.IN_PYTHON] = id(_IN_PYTHON)


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


def _words_of(value: Any) -> list[int]:
    """The words of an object of a class without items."""
    return list((ctypes.c_int64 * (type(value).__basicsize__ // _WORD)).from_address(id(value)))


def _field(instance: Any, name: str, value: Any) -> int:
    """The word number of a field, found by a value that it is set to; ValueError if it is not found."""
    setattr(instance, name, value)
    (number,) = [n for n, word in enumerate(_words_of(instance)) if word == id(value)]
    return number


def _count(value: Any) -> int:
    """The reference count of an object as native code reads it."""
    return ctypes.c_int32.from_address(id(value)).value


class _ObjectLayout:
    """The layouts of objects in this process."""

    def __init__(self) -> None:
        self._methods: list[_Method] = []  # CPython refers to them as long as the class lives
        self._started = False

    @cached_property
    def known(self) -> bool:
        """Whether the layouts are as native code expects; it has them as facts from then on."""
        free_threaded = "t" in getattr(sys, "abiflags", "") or not getattr(sys, "_is_gil_enabled", lambda: True)()
        words_are_usual = _WORD == ctypes.sizeof(ctypes.c_void_p) and sys.byteorder == "little"
        if sys.implementation.name != "cpython" or free_threaded or not words_are_usual:
            return False
        try:
            self._read()
        except ValueError:
            return False
        return self._counts() and importlib.util.find_spec("llvmlite") is not None

    def _read(self) -> None:
        array, marks = ConcreteArray.__new__(ConcreteArray), [object() for _ in range(4)]
        storage = HostStorage.__new__(HostStorage)
        fields = ("_type", "_storage", "_numpy", "_weak")
        types, storages, numpys, weaks = (_field(array, name, mark) for name, mark in zip(fields, marks, strict=True))
        found = {
            words.STATE: id(state),
            words.BUILDER: id(_BUILDER),
            words.CONFIG: id(config),
            words.TOKEN: id(_TOKEN),
            words.NONE: id(None),
            words.DICT: id(dict),
            words.LIST: id(list),
            words.TUPLE: id(tuple),
            words.ARRAY: id(ConcreteArray),
            words.ARRAY_TYPE: types,
            words.ARRAY_STORAGE: storages,
            words.ARRAY_NUMPY: numpys,
            words.ARRAY_WEAK: weaks,
            words.STORAGE: id(HostStorage),
            words.STORAGE_POINTER: _field(storage, "pointer", marks[0]),
            words.STORAGE_MEMORY: _field(storage, "memory", marks[1]),
        }
        for number, value in found.items():
            _facts[number] = value
        first = _WithField()
        if _words_of(array)[words.CLASS] != id(ConcreteArray) or _field(first, "_words", marks[0]) != words.FIRST_FIELD:
            raise ValueError("a field is in another place")

    def _counts(self) -> bool:
        """Whether reference counts are where native code reads them."""
        value = np.zeros(1)
        before = _count(value)
        others = [value] * 3
        return _count(value) == before + len(others) and 0 < before < 8

    def installed(self, jitted: type[WithWords]) -> bool:
        """Whether native code runs the calls of jitted functions; the first time, its compilation is started."""
        if not self._methods and not self._started:
            self._started = True
            native_entry.start_loading("calls")
            return False
        if not self._methods:
            address = native_entry.load_runtime().addresses["call_jitted"]
            # METH_FASTCALL | METH_KEYWORDS
            method = _Method(b"__call__", address, 0x82, b"Run the compiled program.")
            make = ctypes.pythonapi.PyDescr_NewMethod
            make.restype, make.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
            self._methods.append(method)
            setattr(jitted, "__call__", make(jitted, ctypes.addressof(method)))  # noqa: B010
        return True


class _WithField(WithWords):
    """A class like that of jitted functions, whose instances also have a dict."""


_BUILDER, _TOKEN = sys.intern("builder"), sys.intern("token")
layout = _ObjectLayout()
