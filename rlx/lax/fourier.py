"""The discrete Fourier transform over the last axes."""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence
from typing import Any

from rlx.array import Array
from rlx.errors import UnsupportedError
from rlx.lax.operands import as_array
from rlx.ops import fourier

__all__ = ["FftType", "fft"]


class FftType(enum.Enum):
    """The kind of transform.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.fft(jnp.array([1, 0, 0, 0], jnp.complex64), lax.FftType.FFT, (4,)).real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    FFT = "fft"
    IFFT = "ifft"
    RFFT = "rfft"
    IRFFT = "irfft"


def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int] | int) -> Array:
    """The transform of the last axes.

    Args: x: array; fft_type: an FftType or its name; fft_lengths: of the signal, one for each of the last axes
    (at most three). Returns: an array. Raises: ShapeError if the lengths do not fit.

    >>> import numpy as np
    >>> from rlx import lax
    >>> lax.fft(np.ones(2, np.complex64), "FFT", (2,))
    Array([2.+0.j, 0.+0.j], dtype=complex64)
    """
    lengths = (fft_lengths,) if isinstance(fft_lengths, int) else tuple(map(operator.index, fft_lengths))
    if not isinstance(fft_type, FftType):
        names = {str(name).upper() for name in FftType.__members__}
        wanted = str(fft_type).upper().removeprefix("FFTTYPE.")
        if wanted not in names:
            raise UnsupportedError(f"fft has no type {fft_type!r}.", f"There are {', '.join(sorted(names))}.")
        fft_type = FftType[wanted]
    return fourier.fft(as_array(x), kind=fft_type.value, lengths=lengths)
