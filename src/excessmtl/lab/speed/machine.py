"""What a measurement was made on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

_PACKAGES = ("numpy", "lightning", "torchjd")


def machine(device: str = "cpu") -> dict[str, str | int]:
    """Processor, cores, accelerator and versions, for the JSON beside the numbers."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    found: dict[str, str | int] = {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device == "cuda":
        found["gpu"], found["cuda"] = torch.cuda.get_device_name(), str(torch.version.cuda)
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
