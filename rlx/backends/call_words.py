"""Word numbers of the structures that native code and Python share to run calls of jitted functions."""

from __future__ import annotations

# A CPython object, in words: its reference count, its class, then its fields. A jitted function's first field is an
# integer, the address of its words.
CLASS = 1
FIRST_FIELD = 2

# The words of one jitted function.
FACTS = 0  # the facts of the process
KNOWN = 1  # address of a word: the first known call
CALLS = 2  # calls that native code ran
JITTED_WORDS = 3

# The facts of a process: addresses of objects, and fields of classes as word numbers.
STATE = 0  # the tracing state; its attribute `builder` is None outside of traced programs
BUILDER = 1
CONFIG = 2  # the switches; their attribute `token` is part of the key of a call
TOKEN = 3
IN_PYTHON = 4  # the name of the method that runs any call
NONE = 5
DICT = 6
LIST = 15
TUPLE = 16
ARRAY = 7  # the class of arrays, and its fields
ARRAY_TYPE = 8
ARRAY_STORAGE = 9
ARRAY_NUMPY = 10
ARRAY_WEAK = 11
STORAGE = 12  # the class of storages, and its fields
STORAGE_POINTER = 13
STORAGE_MEMORY = 14
FACT_WORDS = 17

# A known call: the form of its arguments, the frame of its plan, the form of its results.
NEXT = 0  # the next known call of the function; 0: this is the last one
BUSY = 1  # 1 while it runs
CALL_TOKEN = 2
ARGUMENTS = 3  # how many
FRAME = 4
LEAVES = 5  # arrays among the arguments
SLOTS = 6  # address of the leaves' slots in the frame, 0 for a leaf that the plan does not read
HELD = 7  # address of a word for each leaf: its storage
SETS = 8  # a list of lists of storages for the results; a list is free if nothing else refers to its parts
FRESH = 9  # a function that returns a new list
RESULTS = 10
RESULT_SLOT = 11  # the first result's slot in the frame
TYPES = 12  # address of the results' types, each followed by True or False: whether it is weak
SHAPE = 13  # of the result: ONE array, MAPPING, or anything else, made by MAKER of a list
MAKER = 14  # a function, or the dict with the keys of the result
ORDER = 15  # address of the keys and numbers of a MAPPING's results
FORM = 16  # the forms of the arguments, one after another

# A form: [ARRAY_FORM, type], [LIST_FORM or TUPLE_FORM, size] and the forms of the items, or [DICT_FORM, size] and a key
# and the form of its value for each item.
ARRAY_FORM = 0
DICT_FORM = 1
LIST_FORM = 2
TUPLE_FORM = 3
ONE = 0
MAPPING = 1
OTHER = 2
