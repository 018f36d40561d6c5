"""From a Python function to a Program."""
