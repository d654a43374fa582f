"""What one network is trained with: a weighting rule and a variant of the losses."""

import json
from dataclasses import dataclass
from pathlib import Path

RULES = ("excess", "uniform", "uw", "famo", "imtl")


@dataclass(frozen=True)
class Config:
    """One entry of a configuration file."""

    name: str
    rule: str = "excess"
    weighted_heads: bool = False
    """Whether heads receive weighted gradients; rivals do."""
    robust: bool = False
    """Whether the losses are the library's robust ones; else the plain ones."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule {self.rule!r} of {self.name!r} is unknown: choose from {', '.join(RULES)}")


def read_configs(path: Path) -> list[Config]:
    """The configurations of a JSON file: a list of objects, each with a name."""
    try:
        configs = [Config(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"--configs {path} cannot be used ({error}); name a file like configs.json") from error
    if not configs or len({config.name for config in configs}) < len(configs):
        raise ValueError(f"--configs {path} is empty or has a name twice: give each configuration a name of its own")
    return configs
