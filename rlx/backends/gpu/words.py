"""DeviceWords: the words in which C-like languages of devices differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["DeviceWords"]


@dataclass(frozen=True, slots=True)
class DeviceWords:
    """The words of a C-like language with work-items. Texts with names in braces are formats.

    head: declarations before helper functions and kernels. kernel: the beginning of a kernel's declaration, for groups
    of {items}; {roomy}: how many groups run at the same time, after a comma, if work-items may then have as many
    registers as they need. item, group, groups: the numbers of a work-item in its group and of its group, and the
    number of groups. barrier: the work-items of a group wait for one another, and see each other's writes. fence: a
    work-item's accesses of device memory before and after it are ordered for all work-items. watched: the uint32_t at
    {pointer}, other groups' writes included. groups, fence and watched are only for devices whose groups can wait for
    one another.

    shuffle: the {value} of the work-item of a {warp} whose number differs in the bits of {distance}; of {kind}.
    exchange: by type of word, the compare-and-swap of the word at {place}, which is replaced by {after} if it is
    {before}, and returned. atomics: by reducer, a function of a pointer and a value, and the dtypes that it takes.

    global_space, group_pointer, group_space: qualifiers of pointers to the memory of the device and of a group, and in
    declarations of a group's memory. unroll, unroll_by: the lines before loops that compilers unroll, completely and
    {count} times; unroll_by may be empty. place: the address of an array, from its parameters {memory} and {start}.
    overloaded: functions that C has for float by the suffix f, and the language by the same name, spelled as
    `overload`.
    """

    head: str
    kernel: str
    item: str
    group: str
    barrier: str
    group_space: str
    groups: str = ""
    fence: str = ""
    watched: str = ""
    shuffle: str = ""
    exchange: Mapping[str, str] = field(default_factory=dict)
    atomics: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    global_space: str = ""
    group_pointer: str = ""
    unroll: str = "#pragma unroll"
    unroll_by: str = "#pragma unroll {count}"
    place: str = "({memory} + {start})"
    overloaded: tuple[str, ...] = ()
    overload: str = "{name}"
