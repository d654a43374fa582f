"""What a measurement was made on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch


def machine() -> dict[str, str | int | None]:
    """Processor, cores and versions, for the JSON beside the numbers."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = models[0] if models else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "lightning": version("lightning"),
    }
