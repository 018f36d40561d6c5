"""Scalar operations that neither Python's operators nor NumPy's functions say: Python source that Numba compiles.

The generated modules hold the functions that they use, word for word, so each is complete in itself or calls others
of this file.
"""

from __future__ import annotations


def maximum(x, y):
    return x if x > y or x != x else y if y == y else y


def minimum(x, y):
    return x if x < y or x != x else y
