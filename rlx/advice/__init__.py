"""Advice in errors: other libraries' names, and calls and expressions that Python refuses before rlx sees them."""
