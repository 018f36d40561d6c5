"""Trees: containers of arrays, their structures, and the paths of their leaves."""
