"""The code of a kernel as a typed tree: nodes, index algebra, checks, an interpreter, costs, and printers' input.

A plan says which kernels run on which buffers. A tree says what each thread or work-item executes. Every text that a
backend compiles is printed from a tree, and every question about the text is asked of the tree instead.
"""
