"""Benchmarks: data, label noise, networks and metrics. The module of a benchmark is imported when it is asked for."""

from excessmtl.lab.data.base import registry

__all__ = ["registry"]
