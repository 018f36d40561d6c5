"""Benchmarks: rlx beside JAX, PyTorch and NumPy. `benchmarks.run` measures, `benchmarks.readme` writes it up."""
