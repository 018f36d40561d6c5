"""The CUDA backend: kernels as CUDA C++, for NVIDIA's GPUs."""
