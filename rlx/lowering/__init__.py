"""Lowering: a MIR program to loop nests and other kernels, as expressions of the closed scalar alphabet."""
