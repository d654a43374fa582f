"""What defines a training run: `RunConfig`, as it is asked for, and `Resolved`, as it is trained."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import yaml

from excessmtl.files import read_text
from excessmtl.lab.data.noise_kinds import NOISE_KINDS, UNIFORM
from excessmtl.lab.data.robust_losses import LOSSES, PLAIN
from excessmtl.methods import registry
from excessmtl.methods.names import our_name
from excessmtl.plain import FLAG, NAMES, NUMBER, OPTIONS, TEXT, WHOLE, Kind, mapping

SINGLE = "single"
"""The baseline that trains every task alone, with a trunk of its own."""
_CHOICES = {
    "device": ("auto", "cpu", "cuda", "mps"),
    "precision": ("32-true", "bf16-mixed", "16-mixed"),
    "optimiser": ("adam", "adamw", "sgd"),
    "schedule": ("constant", "cosine"),
    "strategy": ("ddp", "fsdp"),
    "noise_kind": NOISE_KINDS,
    "loss": LOSSES,
    "architecture": ("hard", "cross_stitch", "mtan", "mmoe", "cgc", "ple", "dselect_k", "ltb"),
}
_LEAST = {"epochs": 1, "batch_size": 1, "limit_batches": 1, "devices": 1, "warmup_steps": 0}
_SEEDS = 2**32
RECORDED = "a loop of its own"
"""The source of a run that a `Recorder` wrote."""


@dataclass(frozen=True)
class RunConfig:
    """One training run as it is asked for. None stands for the benchmark's own choice."""

    benchmark: str
    """A registered name, `package.module:function`, or a CSV file."""
    method: str
    """A method's name, `package.module:Rule`, or "single"."""
    architecture: str = "hard"
    """How tasks share the network; see `excessmtl.architectures`."""
    seed: int = 0
    noise: float = 0.0
    noisy_tasks: tuple[str, ...] | None = None
    noise_seed: int | None = None
    """None: the run's seed."""
    exclude_true: bool = False
    redraw_each_epoch: bool = False
    noise_kind: str = UNIFORM
    """What bad labels look like; "uniform": what the kind of each task says."""
    noisy_validation: bool = False
    """Whether validation labels are as noisy as those of training: a choice by them is one that could be made."""
    epochs: int | None = None
    batch_size: int | None = None
    """Of all processes together."""
    optimiser: str | None = None
    optimiser_options: Mapping[str, Any] | None = None
    """Further options of the optimiser, by torch's names: `momentum`, `betas`."""
    learning_rate: float | None = None
    weight_decay: float | None = None
    schedule: str | None = None
    """How the learning rate changes: "constant", or "cosine", down to zero at the end of the last epoch."""
    warmup_steps: int | None = None
    """The learning rate rises linearly over so many first steps."""
    limit_batches: int | None = None
    """At most so many steps per epoch, for trying things out; None: all."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the method."""
    loss: str = PLAIN
    """Of every task that has one of this name; the others keep their own."""
    label: str | None = None
    """What tables call the method as it is configured here; None: its name and options."""
    benchmark_options: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    device: str = "auto"
    devices: int = 1
    """How many processes share every batch."""
    strategy: str = "ddp"
    """With several: replicas ("ddp"), or parameters divided among them ("fsdp")."""
    precision: str = "32-true"
    replay: bool = True
    """On CUDA, record a step once and replay it, where the method and the benchmark allow."""

    def __post_init__(self) -> None:
        # Folders, tables and comparisons know a method by one name. One that is not known is refused by the training.
        own_name = our_name(self.method, [*registry(), SINGLE])
        object.__setattr__(self, "method", self.method if own_name is None else own_name)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ValueError(f"{name} must be one of {list(choices)}, found {value!r}")
        if not 0 <= self.noise <= 1:
            raise ValueError(f"noise must be between 0 and 1, found {self.noise}; it is a share of the labels")
        for name in ("seed", "noise_seed"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < _SEEDS:
                raise ValueError(f"{name} must be from 0 to {_SEEDS - 1}, found {value}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, found {value}")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be positive and finite, found {self.learning_rate}")
        if self.weight_decay is not None and not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be at least 0 and finite, found {self.weight_decay}")
        if self.strategy == "fsdp" and self.devices == 1:
            raise ValueError("strategy 'fsdp' divides parameters among several devices, found devices 1; raise devices")
        if self.strategy == "fsdp" and self.architecture != "hard":
            raise ValueError(f"strategy 'fsdp' needs architecture 'hard', found {self.architecture!r}; take 'ddp'")
        if self.method == SINGLE and self.architecture != "hard":
            raise ValueError(f"method 'single' shares nothing, found architecture {self.architecture!r}; leave it out")
        if self.method == SINGLE and self.options:
            raise ValueError(f"method 'single' has no options, found {dict(self.options)}")

    @property
    def name(self) -> str:
        """What tables call the method: `label`, or its name and what is not as usual: architecture, options, loss."""
        words = [self.method.rpartition(":")[2]]
        words += [] if self.architecture == "hard" else [self.architecture]
        words += [f"{key}={value}" for key, value in sorted(self.options.items())]
        words += [] if self.loss == PLAIN else [f"+ {self.loss} loss"]
        return self.label or " ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for YAML: lists and dicts, no tuples."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; entries that are not fields (versions) are left aside."""
        names = {option.name for option in fields(cls)}
        values = {name: value for name, value in plain.items() if name in names}
        if values.get("noisy_tasks") is not None:
            values["noisy_tasks"] = tuple(values["noisy_tasks"])
        return cls(**values)


_KINDS = {str: TEXT, int: WHOLE, float: NUMBER, bool: FLAG, Mapping[str, Any]: OPTIONS, tuple[str, ...]: NAMES}
FIELDS: Mapping[str, Kind] = {
    option.name: kind
    for option in fields(RunConfig)
    for type_, kind in _KINDS.items()
    if option.type in (type_, type_ | None)
}
"""The fields of `RunConfig` as a file may state them; it checks their ranges itself."""


@dataclass(frozen=True, kw_only=True)
class Resolved(RunConfig):
    """One training run as it is trained: every choice is made."""

    # `field()`: without it, a field would inherit the default of `RunConfig`.
    noisy_tasks: tuple[str, ...] = field()
    noise_seed: int = field()
    epochs: int = field()
    batch_size: int = field()
    optimiser: str = field()
    optimiser_options: Mapping[str, Any] = field()
    learning_rate: float = field()
    weight_decay: float = field()
    schedule: str = field()
    warmup_steps: int = field()
    label: str = field()


def read_config(path: Path) -> dict[str, Any]:
    """What the config.yaml of an existing run says, as plain values."""
    try:
        plain = yaml.safe_load(read_text(path))
        if mapping(plain, "it").get("source") == RECORDED:
            raise ValueError("a Recorder wrote it, so there is no network in the folder and nothing to go on with")
        for name, kind in FIELDS.items():
            if plain.get(name) is not None:
                kind.checked(plain[name], name)
        Resolved.from_dict(plain)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path} is not the config.yaml of a run ({reason}); choose another folder, or delete this one"
        ) from error
    found: dict[str, Any] = plain
    return found
