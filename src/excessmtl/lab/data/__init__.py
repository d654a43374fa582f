"""Benchmarks: data, label noise, networks and metrics. Importing this package registers them all."""

from excessmtl.lab.data import (  # noqa: F401
    celeba,
    cityscapes,
    digit_domains,
    lidc,
    multimnist,
    nyuv2,
    office_home,
    qm9,
    sarcos,
    school,
    simulated_arm,
    synthetic_rooms,
    teacher,
    tox21,
    vader,
)
from excessmtl.lab.data.base import registry

__all__ = ["registry"]
