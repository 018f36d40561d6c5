"""What RLX_EXPLAIN prints about a call: why a function is traced again."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rlx.array import parts_of
from rlx.call.key import Signature
from rlx.ir.collectives import communicator
from rlx.trees import tree

__all__ = ["say", "why_traced_again"]


def say(text: str) -> None:
    """Print an explanation at once; each of several processes puts its rank before every line."""
    own = communicator()
    lines = [f"[{own.rank}] {line}" if own.size > 1 else line for line in text.splitlines()]
    sys.stderr.write("\n".join([*lines, ""]))


def why_traced_again(name: str, count: int, last: Signature, now: Signature, leaf_names: Sequence[str]) -> str:
    """The differences from the latest of `count` - 1 earlier signatures; leaf_names: of the dynamic leaves."""
    lines = [f"rlx: {name} is traced again ({count} signatures)"]
    if last.in_tree != now.in_tree:
        lines.append(f"  structure of the arguments: {_readable(last.in_tree)} -> {_readable(now.in_tree)}")
    for leaf_name, a, b in zip(leaf_names, last.types, now.types, strict=False):
        if a != b:
            lines.append(f"  argument {leaf_name}: {a!r} -> {b!r}")
    before, after = ({k: v for k, _, v in key.static} for key in (last, now))
    for where in (*before, *(k for k in after if k not in before)):
        a, b = (repr(held[where]) if where in held else "absent" for held in (before, after))
        if a != b:
            lines.append(f"  static argument {where!r}: {a:.60} -> {b:.60}")
    if len(lines) == 1:
        lines.append("  a switch (default dtype, device), the mapped axes or how devices divide arguments changed")
    return "\n".join(lines)


def _readable(structure: tree.TreeDef) -> str:
    """A structure of arguments in which arrays that processes divide are called by their types and specs."""
    leaves = tree.leaves(tree.unflatten(structure, range(structure.num_leaves)))
    divided = [f"{x.type!r} as {x._sharding.spec!r}" for x in leaves if parts_of(x)]
    shape = tree.structure(tree.unflatten(structure, range(structure.num_leaves)))
    return f"{shape} with {', '.join(divided)}" if divided else str(structure)
