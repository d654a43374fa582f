"""What a measurement was made on, and the file that keeps both."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from excessmtl.files import write_whole

_PACKAGES = ("numpy", "lightning", "torchjd")


def write_record(path: Path, device: str, content: Mapping[str, Any]) -> None:
    """What was measured, beside the command and the machine that it was measured with."""
    name, *arguments = sys.argv
    program = ["python", "-m", "excessmtl.lab.speed"] if Path(name).parent.name == "speed" else ["excessmtl"]
    record = {"command": shlex.join([*program, *arguments]), "device": device, "machine": machine(device), **content}
    write_whole(path, (json.dumps(record, indent=1) + "\n").encode())


def machine(device: str = "cpu") -> dict[str, str | int]:
    """Processor, cores, accelerator and versions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    facts: dict[str, str | int] = {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device == "cuda":
        facts["gpu"], facts["cuda"] = torch.cuda.get_device_name(), str(torch.version.cuda)
    for package in _PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts
