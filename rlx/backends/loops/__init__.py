"""Shared by backends that generate source code for loop nests: staging, the walk over a nest, dialects."""
