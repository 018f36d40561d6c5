"""How many bands a run of kernels is cut in, and how many workers take them."""

from __future__ import annotations

from typing import NamedTuple

from rlx.ir.kernels import Bands, Contract

__all__ = ["BandForm", "band_form"]

# what a band writes should stay in the cache of one core; products of fewer rows spend their time copying
_CACHE_BYTES = 1 << 19
_LEAST_ROWS = 96


class BandForm(NamedTuple):
    """bands: runs of parts that a worker takes at a time, of at most `longest` parts."""

    bands: int
    workers: int
    longest: int


def band_form(kernel: Bands, threads: int) -> BandForm:
    """The form for a machine of so many threads."""
    written = sum(b.nbytes for b in {b for k in kernel.kernels for b in k.writes})
    most = min((_most_bands(k) for k in kernel.kernels if isinstance(k, Contract)), default=kernel.count)
    bands = min(max(2 * threads, written // _CACHE_BYTES), max(most, threads), kernel.count)
    return BandForm(bands, min(threads, bands), -(-kernel.count // bands))


def _most_bands(kernel: Contract) -> int:
    """More bands would leave a product too few rows."""
    return kernel.batches * max(kernel.rows // _LEAST_ROWS, 1)
