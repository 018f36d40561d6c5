"""The predicted cost of a program on a GPU as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.backends.gpu.cost import Prediction
    from rlx.code.cost import Rates

__all__ = ["show_prediction"]


def show_prediction(found: Prediction, card: Rates) -> str:
    """A prediction as a line.

    >>> from rlx.backends.gpu.cost import H100, Prediction
    >>> show_prediction(Prediction(2e-3, 3, 3_000_000_000, 4_000_000, 0.0), H100)
    'H100: 2.000 ms, 3 launches, 4.0 MB moved, 50% of the bandwidth or of the peak of products'
    """
    reached = f"{found.share(card):.0%} of the bandwidth or of the peak of products"
    moved = f"{found.moved_bytes / 1e6:.1f} MB moved"
    launches = f"{found.launches} launch{'es' * (found.launches != 1)}"
    return f"{card.name}: {found.seconds * 1e3:.3f} ms, {launches}, {moved}, {reached}"
