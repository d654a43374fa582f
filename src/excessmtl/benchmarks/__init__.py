"""Benchmarks: data, label noise, networks and metrics."""
