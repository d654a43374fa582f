"""Benchmarks: data, label noise, networks and metrics. Importing this package registers them all."""

from excessmtl.benchmarks import (  # noqa: F401
    digit_domains,
    multimnist,
    nyuv2,
    office_home,
    sarcos,
    school,
    simulated_arm,
    synthetic_rooms,
    teacher,
)
from excessmtl.benchmarks.base import registry

__all__ = ["registry"]
