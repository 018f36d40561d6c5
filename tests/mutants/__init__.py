"""Mutations of the source, and the tests that have to fail with them: `make mutants` tries each."""
