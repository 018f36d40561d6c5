"""StableHLO, the input format of XLA's compilers: writing (`Exported.stablehlo()`) and reading programs."""
