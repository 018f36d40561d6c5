"""The calls of jitted functions in native code: the key is compared, the plan runs, and the results are made.

A call that is not known, or unusual in any way, runs in Python. Native code holds the GIL from the comparison to the
results, except while a long plan runs; it then has references to the memory that the plan reads.
"""

from __future__ import annotations

from rlx.backends.call_words import (
    ARGUMENTS,
    ARRAY,
    ARRAY_FORM,
    ARRAY_NUMPY,
    ARRAY_STORAGE,
    ARRAY_TYPE,
    ARRAY_WEAK,
    BUILDER,
    BUSY,
    CALL_TOKEN,
    CALLS,
    CLASS,
    CONFIG,
    DICT,
    DICT_FORM,
    FACTS,
    FIRST_FIELD,
    FORM,
    FRAME,
    FRESH,
    HELD,
    IN_PYTHON,
    KNOWN,
    LEAVES,
    LIST,
    LIST_FORM,
    MAKER,
    MAPPING,
    NEXT,
    NONE,
    ONE,
    ORDER,
    RESULT_SLOT,
    RESULTS,
    SETS,
    SHAPE,
    SLOTS,
    STATE,
    STORAGE,
    STORAGE_MEMORY,
    STORAGE_POINTER,
    TOKEN,
    TUPLE,
    TYPES,
)
from rlx.backends.cpu.runtime.executor import (
    acquire_reference,
    call_object,
    get_attribute,
    integer_value,
    release_reference,
    run_released,
    run_table,
)
from rlx.backends.cpu.runtime.frame import RELEASE, TABLE, TABLE_END
from rlx.backends.cpu.runtime.native import Word, external, load_int32, native, stack_of

__all__ = ["call_jitted"]

allocate_object = external("PyType_GenericAlloc", "ptr", "ptr", "i64")
call_without_arguments = external("PyObject_CallNoArgs", "ptr", "ptr")
clear_error = external("PyErr_Clear", "void")
copy_dict = external("PyDict_Copy", "ptr", "ptr")
dict_next = external("PyDict_Next", "i32", "ptr", "ptr", "ptr", "ptr")
dict_size = external("PyDict_Size", "i64", "ptr")
internal_error = external("PyErr_BadInternalCall", "void")
list_item = external("PyList_GetItem", "ptr", "ptr", "i64")
list_size = external("PyList_Size", "i64", "ptr")
make_list = external("PyList_New", "ptr", "i64")
set_dict_item = external("PyDict_SetItem", "i32", "ptr", "ptr", "ptr")
set_list_item = external("PyList_SetItem", "i32", "ptr", "i64", "ptr")
tuple_item = external("PyTuple_GetItem", "ptr", "ptr", "i64")
tuple_size = external("PyTuple_Size", "i64", "ptr")
vectorcall = external("PyObject_Vectorcall", "ptr", "ptr", "ptr", "i64", "ptr")

UNKNOWN = 1  # no address of an object


@native
def storage_of(facts: Word, value: Word, type: Word) -> int:
    """The storage of an array of a type on the host; 0 if the value is something else, or has no storage yet."""
    if value[CLASS] != facts[ARRAY] or value[facts[ARRAY_TYPE]] != type:
        return 0
    storage = value[facts[ARRAY_STORAGE]]
    if storage == 0 or storage[CLASS] != facts[STORAGE]:
        return 0
    return storage


@native
def skip_array(facts: Word, walk: Word, value: Word) -> int:
    """Whether a value is the array of the form at walk[0]; its storage is written to walk[1], and both move on."""
    storage = storage_of(facts, value, walk[0][1])
    walk[1][0] = storage
    walk[0] += 16
    walk[1] += 8
    return storage != 0


@native
def skip_items(facts: Word, walk: Word, items: Word, count: Word) -> int:
    """As skip_form, for values one after another."""
    for number in range(count):
        if skip_form(facts, walk, items[number]) == 0:
            return 0
    return 1


@native
def skip_dict(facts: Word, walk: Word, value: Word, count: Word) -> int:
    """As skip_form, for the values of a dict, whose keys are compared."""
    place = stack_of(0, 0, 0)  # position, key, value
    for _ in range(count):
        if dict_next(value, place, place + 8, place + 16) == 0 or place[1] != walk[0][0]:
            return 0
        walk[0] += 8
        if skip_form(facts, walk, place[2]) == 0:
            return 0
    return 1


@native
def skip_form(facts: Word, walk: Word, value: Word) -> int:
    """Whether a value has the form at walk[0], which moves behind it. No Python code runs."""
    form = walk[0]
    if form[0] == ARRAY_FORM:
        return skip_array(facts, walk, value)
    walk[0] += 16
    if form[0] == DICT_FORM:
        if value[CLASS] != facts[DICT] or dict_size(value) != form[1]:
            return 0
        return skip_dict(facts, walk, value, form[1])
    if form[0] == LIST_FORM:
        if value[CLASS] != facts[LIST] or list_size(value) != form[1]:
            return 0
        for number in range(form[1]):
            if skip_form(facts, walk, list_item(value, number)) == 0:
                return 0
        return 1
    if value[CLASS] != facts[TUPLE] or tuple_size(value) != form[1]:
        return 0
    for number in range(form[1]):
        if skip_form(facts, walk, tuple_item(value, number)) == 0:
            return 0
    return 1


@native
def has_form(facts: Word, known: Word, arguments: Word) -> int:
    """Whether arguments are those of a known call; their storages are written to HELD."""
    return skip_items(facts, stack_of(known + 8 * FORM, known[HELD]), arguments, known[ARGUMENTS])


@native
def is_free(facts: Word, storages: Word) -> int:
    """Whether only their list refers to storages, and only they to their memory, which is one array."""
    count = list_size(storages)
    for number in range(count):
        if load_int32(list_item(storages, number)) != 1:
            return 0
    return load_int32(list_item(storages, 0)[facts[STORAGE_MEMORY]]) == count


@native
def result_memory(facts: Word, known: Word) -> int:
    """A list of storages for the results, as a new reference; 0 with an error if there is no memory."""
    sets = known[SETS]
    for number in range(list_size(sets)):
        storages = list_item(sets, number)
        if is_free(facts, storages):
            acquire_reference(storages)
            return storages
    return call_without_arguments(known[FRESH])


@native
def new_array(facts: Word, storage: Word, type: Word, weak: Word) -> int:
    """A new array over a storage."""
    array = allocate_object(facts[ARRAY], 0)
    if array:
        acquire_reference(facts[NONE])
        acquire_reference(storage)
        acquire_reference(type)
        acquire_reference(weak)
        array[facts[ARRAY_NUMPY]] = facts[NONE]
        array[facts[ARRAY_STORAGE]] = storage
        array[facts[ARRAY_TYPE]] = type
        array[facts[ARRAY_WEAK]] = weak
    return array


@native
def mapping_of(facts: Word, known: Word, storages: Word) -> int:
    """The result as a dict of arrays."""
    result = copy_dict(known[MAKER])
    order = known[ORDER]
    for _ in range(known[RESULTS]):
        if result == 0:
            return 0
        at = order[1]
        array = new_array(facts, list_item(storages, at), known[TYPES][2 * at], known[TYPES][2 * at + 1])
        if array == 0 or set_dict_item(result, order[0], array) != 0:
            release_reference(result)
            result = 0
        if array:
            release_reference(array)
        order = order + 16
    return result


@native
def list_of(facts: Word, known: Word, storages: Word) -> int:
    """The results as a list of arrays."""
    result = make_list(known[RESULTS])
    for number in range(known[RESULTS]):
        if result:
            types = known[TYPES] + 16 * number
            array = new_array(facts, list_item(storages, number), types[0], types[1])
            if array:
                set_list_item(result, number, array)
            else:
                release_reference(result)
                result = 0
    return result


@native
def results_of(facts: Word, known: Word, storages: Word) -> int:
    """The result of a call whose plan has written the storages."""
    if known[SHAPE] == ONE:
        return new_array(facts, list_item(storages, 0), known[TYPES][0], known[TYPES][1])
    if known[SHAPE] == MAPPING:
        return mapping_of(facts, known, storages)
    arrays = list_of(facts, known, storages)
    if arrays == 0:
        return 0
    result = call_object(known[MAKER], arrays)
    release_reference(arrays)
    return result


@native
def run_plan(facts: Word, known: Word, storages: Word) -> int:
    """Bind the slots of arguments and results, and run the plan; 1 with an error."""
    frame = known[FRAME]
    for number in range(known[LEAVES]):
        slot = known[SLOTS][number]
        if slot:
            frame[slot] = integer_value(known[HELD][number][facts[STORAGE_POINTER]])
    for number in range(known[RESULTS]):
        frame[known[RESULT_SLOT] + number] = integer_value(list_item(storages, number)[facts[STORAGE_POINTER]])
    if frame[RELEASE]:
        return run_released(frame)
    return run_table(frame, frame[TABLE], frame[TABLE_END])


@native
def run_known(facts: Word, known: Word) -> int:
    """The result of a known call, 0 with an error, or UNKNOWN if the plan has not run."""
    known[BUSY] = 1
    for number in range(known[LEAVES]):
        acquire_reference(known[HELD][number])
    result = UNKNOWN
    storages = result_memory(facts, known)
    if storages:
        result = 0
        if run_plan(facts, known, storages) == 0:
            result = results_of(facts, known, storages)
        release_reference(storages)
    else:
        clear_error()  # Python tries again, and reports the error
    for number in range(known[LEAVES]):
        release_reference(known[HELD][number])
    known[BUSY] = 0
    return result


@native
def attribute_kept_elsewhere(instance: Word, name: Word) -> int:
    """An attribute that something else also refers to; 0 with an error."""
    value = get_attribute(instance, name)
    if value:
        release_reference(value)
    return value


@native
def known_result(facts: Word, known: Word, arguments: Word, count: Word) -> int:
    """The result of the known call with these arguments, 0 with an error, or UNKNOWN."""
    builder = attribute_kept_elsewhere(facts[STATE], facts[BUILDER])
    if builder == 0:
        return 0
    if builder != facts[NONE]:
        return UNKNOWN
    token = attribute_kept_elsewhere(facts[CONFIG], facts[TOKEN])
    if token == 0:
        return 0
    while known:
        if known[BUSY] == 0 and known[CALL_TOKEN] == token and known[ARGUMENTS] == count:
            if has_form(facts, known, arguments):
                return run_known(facts, known)
        known = known[NEXT]
    return UNKNOWN


@native
def call_jitted(jitted: Word, arguments: Word, count: Word, keywords: Word) -> int:
    """The method __call__ of jitted functions (METH_FASTCALL | METH_KEYWORDS)."""
    if jitted[FIRST_FIELD] == 0:  # __init__ has not run
        internal_error()
        return 0
    words = integer_value(jitted[FIRST_FIELD])
    facts = words[FACTS]
    if keywords == 0 and words[KNOWN][0]:
        result = known_result(facts, words[KNOWN][0], arguments, count)
        if result != UNKNOWN:
            if result:
                words[CALLS] += 1
            return result
    method = get_attribute(jitted, facts[IN_PYTHON])
    if method == 0:
        return 0
    result = vectorcall(method, arguments, count, keywords)
    release_reference(method)
    return result
