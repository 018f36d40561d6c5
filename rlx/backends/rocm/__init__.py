"""The ROCm backend: kernels as HIP, for AMD's GPUs."""
