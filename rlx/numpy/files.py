"""Arrays in files, in NumPy's formats."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array import Array, asarray_numpy, wrap
from rlx.numpy.placement import placed
from rlx.numpy.promotion import to_dtype

__all__ = ["fromfile", "load", "save", "savez"]


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Write an array to an .npy file.

    Args: file: name or open file; arr: array. Returns: None.

    >>> import io, rlx.numpy as jnp
    >>> jnp.save(io.BytesIO(), jnp.ones(3))
    """
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Write several arrays to an .npz file.

    Args: file: name or open file; args, kwds: arrays, by position and by name. Returns: None.

    >>> import io, rlx.numpy as jnp
    >>> jnp.savez(io.BytesIO(), x=jnp.ones(3))
    """
    named: dict[str, Any] = {name: np.asarray(a) for name, a in kwds.items()}
    np.savez(file, *map(np.asarray, args), **named)


def load(file: Any, **kwargs: Any) -> Any:
    """Read an array from an .npy file, or several from an .npz file.

    Args: file: name or open file; kwargs: as NumPy's. Returns: an array, or a mapping of NumPy arrays.

    >>> import io, rlx.numpy as jnp
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.ones(2)); _ = file.seek(0)
    >>> jnp.load(file)
    Array([1., 1.], dtype=float32)
    """
    found = np.load(file, **kwargs)
    if not isinstance(found, np.ndarray):
        return found
    if found.dtype.kind == "V" and found.dtype.itemsize == 2:  # how NumPy stores bfloat16
        found = found.view(to_dtype("bfloat16"))
    return placed(wrap(asarray_numpy(found)))


def fromfile(file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0) -> Array:
    """Read raw numbers from a file.

    Args: file: name or open file; dtype; count: of elements; sep: for text; offset: in bytes.
    Returns: a 1-d array.

    >>> import tempfile, rlx.numpy as jnp
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"ab"); file.flush()
    ...     print(jnp.fromfile(file.name, dtype=jnp.uint8))
    [97 98]
    """
    return placed(wrap(np.fromfile(file, to_dtype(dtype), count, sep, offset=offset)))
