"""Planning: nests are fused, scheduled and placed in memory; what comes out is a Plan."""
