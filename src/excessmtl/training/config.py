"""What defines a training run: everything that is needed to run it again, checked before anything is written."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from excessmtl.benchmarks import registry as benchmarks
from excessmtl.create import list_methods

SINGLE = "single"
"""The baseline that trains every task alone, with a trunk of its own."""
_SEEDS = 2**32
_DEVICES = ("auto", "cpu", "cuda", "mps")
_PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")


@dataclass(frozen=True)
class RunConfig:
    """One training run. None stands for the benchmark's own choice until the run has resolved it."""

    benchmark: str
    method: str
    seed: int = 0
    noise: float = 0.0
    noisy_tasks: tuple[str, ...] | None = None
    noise_seed: int | None = None
    """None: the run's seed."""
    exclude_true: bool = False
    redraw_each_epoch: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    limit_batches: int | None = None
    """At most so many steps per epoch, for trying things out."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the method."""
    label: str | None = None
    """What tables call the method as it is configured here; None: its name and options."""
    benchmark_options: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    device: str = "auto"
    precision: str = "32-true"
    replay: bool = True
    """On CUDA, record a step once and replay it, where the method and the benchmark allow."""

    def __post_init__(self) -> None:
        if self.benchmark not in benchmarks():
            raise ValueError(f"unknown benchmark {self.benchmark!r}; the benchmarks are {sorted(benchmarks())}")
        known = [*list_methods(), SINGLE]
        if self.method not in known:
            raise ValueError(f"unknown method {self.method!r}; the methods are {known}")
        if not 0 <= self.noise <= 1:
            raise ValueError(f"noise must be between 0 and 1, found {self.noise}; it is a share of the labels")
        for name in ("seed", "noise_seed"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < _SEEDS:
                raise ValueError(f"{name} must be from 0 to {_SEEDS - 1}, found {value}")
        if self.device not in _DEVICES:
            raise ValueError(f"device must be one of {list(_DEVICES)}, found {self.device!r}")
        if self.precision not in _PRECISIONS:
            raise ValueError(f"precision must be one of {list(_PRECISIONS)}, found {self.precision!r}")
        for name in ("epochs", "batch_size", "limit_batches"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be positive and finite, found {self.learning_rate}")
        if self.weight_decay is not None and not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be at least 0 and finite, found {self.weight_decay}")
        if self.method == SINGLE and self.options:
            raise ValueError(f"method 'single' has no options, found {dict(self.options)}")

    @property
    def name(self) -> str:
        """What tables call the method: `label`, or its name followed by the options that were set."""
        return self.label or " ".join([self.method, *(f"{key}={value}" for key, value in sorted(self.options.items()))])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for YAML."""
        plain = asdict(self)
        plain["noisy_tasks"] = None if self.noisy_tasks is None else list(self.noisy_tasks)
        return {**plain, "options": dict(self.options), "benchmark_options": dict(self.benchmark_options)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "RunConfig":
        """The inverse of `to_dict`; entries that are not fields (versions) are left aside."""
        names = {option.name for option in fields(cls)}
        values = {name: value for name, value in plain.items() if name in names}
        if values.get("noisy_tasks") is not None:
            values["noisy_tasks"] = tuple(values["noisy_tasks"])
        return cls(**values)


def read_config(path: Path) -> dict[str, Any]:
    """What the config.yaml of an existing run says, as plain values."""
    try:
        plain = yaml.safe_load(path.read_text())
        RunConfig.from_dict(plain)
    except (yaml.YAMLError, TypeError, AttributeError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path} is not the config.yaml of a run ({reason}); delete the folder or choose another"
        ) from error
    found: dict[str, Any] = plain
    return found
