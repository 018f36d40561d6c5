"""Native code kept and run: the store, the executor, the threads, the table of a plan."""
