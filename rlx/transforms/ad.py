"""Destinations for the gradients of a pullback: rlx.ad."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.offered_names import offer_names
from rlx.trees import tree

__all__ = ["DidntWant", "DontWant", "GradRef", "GradValue"]

offer_names(globals())


@dataclass(frozen=True)
class GradValue:
    """In place of a Ref in `f_vjp.with_refs(...)`: return this argument's gradient as a value.

    >>> import rlx
    >>> _, f_vjp = rlx.vjp(lambda x: 3.0 * x, 1.0)
    >>> f_vjp.with_refs(rlx.ad.GradValue())(1.0)[0].item()
    3.0
    """


@dataclass(frozen=True)
class DontWant:
    """In place of a Ref in `f_vjp.with_refs(...)`: do not compute this argument's gradient.

    >>> import rlx
    >>> _, f_vjp = rlx.vjp(lambda x: 3.0 * x, 1.0)
    >>> f_vjp.with_refs(rlx.ad.DontWant())(1.0)
    (DidntWant(),)
    """


@dataclass(frozen=True)
class GradRef:
    """Returned in place of a gradient that was added to a Ref.

    >>> import rlx
    >>> total = rlx.new_ref(1.0)
    >>> _, f_vjp = rlx.vjp(lambda x: 3.0 * x, 1.0)
    >>> f_vjp.with_refs(total)(1.0), total[...].item()
    ((GradRef(),), 4.0)
    """


@dataclass(frozen=True)
class DidntWant:
    """Returned in place of a gradient that was not requested; see DontWant.

    >>> import rlx
    >>> rlx.tree.leaves(rlx.ad.DidntWant())
    []
    """


for kind in (GradRef, DidntWant):
    tree.register_node(kind, lambda _: ((), None), lambda _data, _leaves, kind=kind: kind())
