"""Passes: MIR program to MIR program, and the pipeline that lists every step to a Plan."""
