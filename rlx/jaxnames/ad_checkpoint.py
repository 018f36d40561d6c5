"""rlx.ad_checkpoint: recomputing intermediate values for derivatives, and names of values to keep."""

from __future__ import annotations

from typing import NamedTuple

from rlx.offered_names import offer_names
from rlx.transforms.checkpoint import checkpoint, checkpoint_name, checkpoint_policies
from rlx.transforms.saved_residuals import print_saved_residuals

__all__ = [
    "Offloadable",
    "Recompute",
    "Saveable",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "print_saved_residuals",
    "remat",
]

offer_names(globals())

remat = checkpoint
# possible results of a user-defined policy besides True and False
Saveable, Recompute = True, False


class Offloadable(NamedTuple):
    """A policy's result for values to offload to another memory. rlx keeps them where they are.

    >>> import rlx
    >>> from rlx.ad_checkpoint import Offloadable
    >>> f = rlx.checkpoint(lambda x: rlx.numpy.sin(x), policy=lambda *_, **__: Offloadable("device", "pinned_host"))
    >>> float(rlx.grad(f)(0.0))
    1.0
    """

    src: str
    dst: str
