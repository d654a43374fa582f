"""Where the run of a configuration lies in the folder of a sweep."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from excessmtl.lab.runs.config import RunConfig

_LONGEST = 60
_OF_THE_PATH = ("benchmark", "method", "options", "label", "noise", "seed")
_OF_THE_MACHINE = ("device", "devices", "replay")


def folder_of(config: RunConfig) -> Path:
    """`benchmark/method/noise-0.4/seed-0`; two configurations share it only if they compute the same.

    What these words do not say (the options of the method, a recipe that is not the benchmark's own) is in a short
    hash behind them, so that a changed study makes new runs next to the old ones.
    """
    noise = repr(float(config.noise)).removesuffix(".0")  # all digits, no more: 0.4, 0, 0.1234567
    return Path(_benchmark(config), _method(config), f"noise-{noise}", f"seed-{config.seed}")


def _benchmark(config: RunConfig) -> str:
    plain = config.to_dict()
    # Compared with a bare configuration, so that a field added to RunConfig later moves no existing run.
    bare = RunConfig(config.benchmark, config.method).to_dict()
    names = [field.name for field in fields(config) if field.name not in (*_OF_THE_PATH, *_OF_THE_MACHINE)]
    chosen = {name: plain[name] for name in names if plain[name] != bare[name]}
    # A file or an import path has characters that do not belong into the name of a folder.
    words = re.sub(r"[^A-Za-z0-9_.=-]+", "-", config.benchmark)[-_LONGEST:].strip("-.")
    hashed = chosen if words == config.benchmark else {**chosen, "benchmark": config.benchmark}
    return f"{words}-{_digest(hashed)}" if hashed else words


def _method(config: RunConfig) -> str:
    if config.name == config.method and not config.options:
        return config.method
    words = re.sub(r"[^A-Za-z0-9_.=]+", "-", config.name)[:_LONGEST].strip("-.")
    hashed = {"method": config.method, "options": dict(config.options), "label": config.name}
    return f"{words}-{_digest(hashed)}".lstrip("-")


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=repr).encode()).hexdigest()[:8]
