"""Random programs as rich as users', each computed in several ways that have to agree.

* `program`: a program is data: inputs, and records of operations over value numbers. It prints as Python.
* `table`, `operations_*`: what a program may consist of, and how each operation rounds.
* `generate`: a program for every seed.
* `interpret`: runs a program on any namespace, and follows which values are exact.
* `checks`: the ways to compute a program, and how near to each other their results have to be.
* `shrink`: the few lines of a program that still fail, printed as a program that runs alone.
* `runner`, `worker`: many seeds in processes of their own: `python -m tests.fuzz --seconds 300`.
"""
