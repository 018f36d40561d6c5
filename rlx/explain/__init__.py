"""Reports of the work of the compiler: `rlx.inspect`, its page, spilled values and the memory plan."""
