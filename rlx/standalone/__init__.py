"""Programs as source code that runs without rlx."""
