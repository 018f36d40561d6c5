"""StableHLO, the text that XLA's compilers read: programs written (`Exported.stablehlo()`) and read."""
