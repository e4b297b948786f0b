"""Benchmarks: each row is a ratio against a peer or a floor of the same run."""
