"""Transforms: one Program -> Program function each, and the user's wrappers over them."""
