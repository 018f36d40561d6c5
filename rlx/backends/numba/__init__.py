"""Numba backend."""
