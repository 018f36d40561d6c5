"""One class per primitive, a file per family."""
