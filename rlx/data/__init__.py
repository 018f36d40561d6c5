"""rlx.data: batches of arrays and data sets, workers, prefetching, and metrics. Users write the training loop."""

from __future__ import annotations

from rlx.data.batches import batches
from rlx.data.loader import DataLoader, stack
from rlx.data.metrics import accuracy, confusion_matrix
from rlx.data.prefetch import prefetch
from rlx.offered_names import offer_names as _offer_names

__all__ = ["DataLoader", "accuracy", "batches", "confusion_matrix", "prefetch", "stack"]

_offer_names(globals())
