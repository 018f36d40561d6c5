"""Planning: nests are fused, scheduled and placed in memory. The result is a Plan."""
