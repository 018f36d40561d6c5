"""Python, and functions compiled by Numba, called from compiled programs: callbacks, printing, debugging."""
