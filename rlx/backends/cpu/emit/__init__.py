"""Loops kernels and small loops as LLVM IR."""
