"""Matrix products and library routines in native code."""
