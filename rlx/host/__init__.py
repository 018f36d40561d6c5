"""Calls of Python, and of Numba functions, from compiled programs: callbacks, printing, debugging."""
