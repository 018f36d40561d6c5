"""Calls of compiled functions: jit and its cache, the stages ahead of time, devices, and how to look inside."""
