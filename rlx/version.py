"""The version of rlx."""

__version__ = "0.1.0"
