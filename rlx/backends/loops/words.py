"""LanguageWords: the words in which target languages differ; those of C by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LanguageWords"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageWords:
    """The words of a language. Texts with names in braces are formats.

    comment: the mark of a comment on a separate line. block_end: the line after a block, if there is one. empty: the
    line of a block without statements. constant, variable, assign: of a register with a {type}, a {name} and a {value}.
    give, leave: end a function with its result, and the innermost loop. condition, otherwise, while_loop, endless_loop:
    the heads of blocks. first, increase, decrease: of a loop's index. both, either: of two conditions; the second one
    is computed only if the first one does not decide. all_of, any_of: operators of bools that are both computed.
    select: one of two values. divided, remainder: of a non-negative index by a positive number. converted: a value of
    a {type}.

    call: of a function of arrays. ignore: marks an unused array, if the language needs it. copy: the elements of an
    array, which may be the same one. swap: two names of arrays, by a {pointer} type. end_if_set: the lines that end a
    function if the first element of {flag}, which another thread may set, is true.

    Of languages with work-items:

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

    comment: str = "//"
    block_end: str = "}"
    empty: str = "// nothing"
    constant: str = "const {type} {name} = {value};"
    variable: str = "{type} {name} = {value};"
    assign: str = "{name} = {value};"
    give: str = "return {value};"
    leave: str = "break;"
    condition: str = "if ({condition}) {{"
    otherwise: str = "else {"
    while_loop: str = "while ({condition}) {{"
    endless_loop: str = "for (;;) {"
    first: str = "{type} {name} = {start}"
    increase: str = "++{name}"
    decrease: str = "--{name}"
    both: str = "({left} && {right})"
    either: str = "({left} || {right})"
    all_of: str = "&"
    any_of: str = "|"
    select: str = "({condition} ? {yes} : {no})"
    divided: str = "{dividend} / {divisor}"
    remainder: str = "{dividend} % {divisor}"
    converted: str = "({type}){value}"
    call: str = "{function}({arguments});"
    ignore: str = "(void){name};"
    copy: str = "memmove({target}, {source}, {nbytes});"
    swap: str = "{{ {pointer}const held = {left}; {left} = {right}; {right} = held; }}"
    end_if_set: tuple[str, ...] = ("if (*(const volatile uint8_t *){flag}) {{", "    return;", "}}")
    head: str = ""
    kernel: str = ""
    item: str = ""
    group: str = ""
    barrier: str = ""
    group_space: str = ""
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
