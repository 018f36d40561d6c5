"""Advice on calls with wrong arguments, of rlx's functions and by them, which Python refuses before rlx sees them.

Calls cost nothing more: Python's TypeError gets the user's line and the advice where it passes through rlx, and where
it is printed at the end of a program, of a thread or of a notebook's cell.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from types import FrameType, ModuleType, TracebackType
from typing import Any

from rlx.advice.refused_uses import called_function, explain_use
from rlx.errors import did_you_mean, entered, is_ours, source_line, user_line

__all__ = ["advise"]

_REFUSED = re.compile(r"([\w.<>]+)\(\) (?:got|missing|takes) .*")
_FRACTION = re.compile(r"'float' object cannot be interpreted as an integer")
_KEYWORD = re.compile(r"unexpected keyword argument '(\w+)'")
_BY_POSITION = re.compile(r"positional-only arguments? passed as keyword arguments?: '([^']+)'")
_LONGEST = 300  # characters of a signature
_DEEP = 3  # attributes in a row: rlx.numpy.linalg.norm

# keyword of another library -> rlx's keywords for it: the first that the function has is suggested
_NAMES: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "axes", "dimension", "axis1"),
    "dims": ("axis", "axes", "shape", "dimensions"),
    "axis": ("axes", "dimension", "dimensions", "in_axes", "axis_name"),
    "axes": ("axis", "dimensions", "in_axes"),
    "dimension": ("axis", "axes"),
    "keepdim": ("keepdims",),
    "keep_dims": ("keepdims",),
    "lr": ("learning_rate", "init_value"),
    "alpha": ("negative_slope", "learning_rate", "decay"),
    "beta1": ("b1",),
    "beta2": ("b2",),
    "betas": ("b1",),
    "epsilon": ("eps",),
    "decay": ("weight_decay",),
    "size": ("shape", "length", "num"),
    "steps": ("num", "length", "transition_steps", "decay_steps"),
    "input": ("x", "a", "logits"),
    "inputs": ("x", "a", "arrays"),
    "tensor": ("x", "a", "object"),
    "tensors": ("arrays",),
    "other": ("y", "b", "x2"),
    "low": ("minval", "a_min", "min"),
    "high": ("maxval", "a_max", "max"),
    "seed": ("key",),
    "rng": ("key",),
    "rng_key": ("key",),
    "in_dims": ("in_axes",),
    "out_dims": ("out_axes",),
    "descending": ("reverse",),
    "reverse": ("descending",),
    "tolerance": ("tol", "rtol"),
    "rtol": ("tol",),
    "max_iter": ("maxiter",),
    "iterations": ("maxiter",),
    "keep": ("max_to_keep",),
    "batch_size": ("size",),
    "repeat": ("repeats",),
    "target": ("labels", "targets"),
    "n": ("num_classes", "N", "shape"),
    "k": ("num_classes",),
    "fun": ("f",),
    "func": ("fun", "f"),
    "fn": ("fun", "f"),
    "init": ("init_val", "initial", "carry"),
    "map_location": ("device",),
    "num_workers": ("workers",),
    "like": ("template",),
    "template": ("like",),
    "prefetch_factor": ("ahead",),
    "collate_fn": ("collate",),
}
# keywords for which rlx has no other keyword
_ADVICE = {
    "requires_grad": "Leave it out: rlx.grad(f) differentiates a function by its arguments.",
    "inplace": "Leave it out: arrays are immutable, and the result is a new array.",
    "out": "Leave it out: arrays are immutable, and the result is a new array.",
    "order": "Leave it out: the compiler chooses the layout in memory.",
    "seed": "Random numbers are functions of a key: key = rlx.random.key(seed).",
    "random_state": "Random numbers are functions of a key: key = rlx.random.key(seed).",
    "generator": "Random numbers are functions of a key: key = rlx.random.key(seed).",
    "params": "Optimisers hold no parameters: state = optimizer.init(params).",
    "create_graph": "Leave it out: derivatives can be differentiated again, as in rlx.grad(rlx.grad(f)).",
    "retain_graph": "Leave it out: a function can be differentiated any number of times.",
    "dtype": "Convert the result with .astype(dtype).",
    "device": "Move the result with rlx.device_put(x, device).",
    "pin_memory": "Leave it out: rlx.data.prefetch copies ahead.",
    "num_workers": "Leave it out: rlx.data.DataLoader(dataset, batch_size, workers=2) prepares batches in threads.",
    "shuffle": "Pass key=rlx.random.key(seed) to rlx.data.DataLoader, or seed= to rlx.data.batches.",
    "memory_format": "Leave it out: the compiler chooses the layout in memory.",
    "non_blocking": "Leave it out.",
}

# rlx's functions -> how they call the user's
_CALLS = {
    "fori_loop": "fori_loop(lower, upper, body_fun, init_val) calls body_fun(i, value).",
    "scan": "scan(f, init, xs) calls f(carry, x), where x is None without xs.",
    "while_loop": "while_loop calls cond_fun(value) and body_fun(value): several values are one tuple, value = (i, x).",
    "cond": "cond(predicate, true_fun, false_fun, *operands) calls the chosen function with all operands.",
    "switch": "switch(index, branches, *operands) calls the chosen branch with all operands.",
    "map": "map(f, xs) calls f(x), where x is one element of xs.",
    "associative_scan": "associative_scan(fn, elems) calls fn(a, b).",
}
_REVERSE_RULES = (
    "fwd takes the function's arguments and returns (result, residuals); bwd takes the arguments of nondiff_argnums,"
    " the residuals and the cotangent of the result."
)


def advise(error: BaseException) -> None:
    """Add the user's line and the remedy to an error of Python about a use of rlx. Other errors are left alone.

    A call with wrong arguments is one of rlx's functions by the user, or one of the user's functions by rlx.

    >>> import rlx, rlx.numpy as jnp
    >>> from rlx.advice.refused_calls import advise
    >>> try:
    ...     jnp.sum(jnp.ones(3), dim=0)
    ... except TypeError as error:
    ...     advise(error)
    ...     print(str(error).splitlines()[-1])
    Write axis= instead of dim=.
    """
    if type(error) in (AttributeError, ImportError, ModuleNotFoundError):
        explain_use(error)
        return
    said = str(error) if type(error) is TypeError else ""
    found, fraction = _REFUSED.fullmatch(said), _FRACTION.fullmatch(said)
    frames = list(_frames(error.__traceback__)) if found or fraction else []
    if not frames:
        if said:
            explain_use(error)
        return
    if found is None:
        if is_ours(frames[-1][0].f_code.co_filename):
            error.args = ("\n".join([said, _shown(frames), "Sizes and counts are integers: use // or int(...)."]),)
        return
    name = found[1].removesuffix(".__init__").removesuffix(".__new__")
    called = called_function(error.__traceback__)
    function = _function(frames[-1][0], name) if called is None else called if _is_ours(called) else None
    if function is not None:
        instead = _instead(function, name, found[0])
    elif _is_given(frames[-1][0], found[1]):
        instead = _as_called(frames)
    else:
        return
    error.args = ("\n".join([found[0], _shown(frames), instead]),)


def _shown(frames: list[tuple[FrameType, int]]) -> str:
    """The user's line."""
    places = [(f.f_code, line) for f, line in frames if not is_ours(f.f_code.co_filename)]
    shown = [source_line(code.co_filename, line, code.co_name) for code, line in places[-1:]]
    return shown[0] if shown else user_line()


def _is_given(caller: FrameType, name: str) -> bool:
    """Whether the caller is rlx and calls a user's function of this qualified name."""
    if not is_ours(caller.f_code.co_filename):
        return False
    owner = caller.f_locals.get("self")
    values = [*caller.f_locals.values(), getattr(owner, "function", None)]
    called = [value for value in values if callable(value) and _name(value) == name]
    return any(not is_ours(code.co_filename) for code in (getattr(value, "__code__", None) for value in called) if code)


def _as_called(frames: list[tuple[FrameType, int]]) -> str:
    """How rlx's function, the first after the user's last frame, calls the user's."""
    ours = list(takewhile(is_ours, (frame.f_code.co_filename for frame, _ in reversed(frames))))
    if any(frame.f_code.co_filename.endswith("custom_reverse.py") for frame, _ in frames[-2:]):
        return _REVERSE_RULES
    name = frames[-len(ours)][0].f_code.co_name if len(ours) < len(frames) else entered()
    return _CALLS.get(name, "The transformed function takes the arguments of the original one: pass all of them to it.")


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _function(caller: FrameType, name: str) -> Callable[..., Any] | None:
    """rlx's function of this qualified name among those that the caller's code refers to; None for a user's own."""
    code = caller.f_code
    names = (*code.co_varnames, *code.co_freevars, *code.co_cellvars, *code.co_names)
    level = [scope[n] for n in names for scope in (caller.f_locals, caller.f_globals) if n in scope]
    array = getattr(sys.modules.get("rlx.array"), "Array", None)  # methods of results that have no name
    level.append(array)
    for _ in range(_DEEP + 1):
        found = [value for value in level if name in (_name(value), f"{_name(type(value))}.__call__")]
        if found:
            return found[0] if all(map(_is_ours, found)) else None
        level = [part for value in level for part in _attributes(value, code.co_names)]
    return _method(name, caller)


def _method(name: str, caller: FrameType) -> Callable[..., Any] | None:
    """A method of a class of rlx by its qualified name, for a result that has no name in the caller's code."""
    owner, _, method = name.partition(".")
    if not method or owner in caller.f_globals:
        return None
    for place, module in list(sys.modules.items()):
        found = vars(module).get(owner) if place.startswith("rlx.") else None
        if isinstance(found, type) and _is_ours(found):
            return getattr(found, method, None)
    return None


def _name(value: Any) -> str:
    return getattr(value, "__qualname__", "")


def _is_ours(value: Any) -> bool:
    home = getattr(value, "__module__", None) if callable(value) else type(value).__module__
    return isinstance(home, str) and home.partition(".")[0] == "rlx"


def _attributes(value: Any, names: Iterable[str]) -> list[Any]:
    """Attributes of a module or of an object of rlx; a user's own objects may compute them."""
    if isinstance(value, ModuleType):
        return [vars(value)[n] for n in names if n in vars(value)]
    return [getattr(value, n) for n in names if hasattr(value, n)] if _is_ours(value) else []


def _instead(function: Callable[..., Any], name: str, message: str) -> str:
    """The remedy for a refused call."""
    signature = inspect.signature(function)
    has = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    by_position = _BY_POSITION.search(message)
    if by_position is not None:
        return f"Pass {by_position[1]} by position, without its name."
    given = _KEYWORD.search(message)
    if given is not None:
        keyword = given[1]
        for known in _NAMES.get(keyword, ()):
            if known in has:
                return f"Write {known}= instead of {keyword}=."
        near = did_you_mean(keyword, has, lambda n: f"{n}=")
        if near or keyword in _ADVICE:
            return near or _ADVICE[keyword]
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    plain = [p.replace(default=p.empty if repr(p.default).startswith("<") else p.default) for p in plain]
    shown = f"{name.rpartition('.')[2]}{signature.replace(parameters=plain, return_annotation=signature.empty)}"
    return f"Its arguments are {shown if len(shown) <= _LONGEST else ', '.join(has)}."
