"""Reports of the work of the compiler: `rlx.inspect`, its page, dumps, spills, memory, predictions and progress."""
