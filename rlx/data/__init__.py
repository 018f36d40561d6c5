"""rlx.data: batches of arrays, read ahead in a thread, and what is counted of guesses. Loops stay the user's."""

from __future__ import annotations

from rlx.data.batches import batches
from rlx.data.metrics import accuracy, confusion_matrix
from rlx.data.prefetch import prefetch
from rlx.habits import refuse_unknown as _refuse_unknown

__all__ = ["accuracy", "batches", "confusion_matrix", "prefetch"]

_refuse_unknown(globals())
