"""Benchmarks: each measures a baseline in the same run and prints a ratio. Not part of the tests."""
