"""Passes: MIR program to MIR program, and MIR program to LIR plan."""
