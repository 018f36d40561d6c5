"""Backends: each compiles LIR plans for one kind of device."""
