"""What one network is trained with: a weighting rule and the variants of the losses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from research.kit.problems import Case


@dataclass(frozen=True)
class Config:
    """The rule is log-linear: its weights are the softmax of a sum of features (`research.kit.rules`), times m.

    r is the running loss of a task, r0 that of its first 20 steps, e the part of r that training can still remove, n0
    the norm of the gradient at the representation in the first 20 steps.
    """

    name: str
    left_irr: float = 0
    """Coefficient of (r - e) / r0."""
    log_left_irr: float = 0
    """Of log(left_half + (r - e) / r0)."""
    left_half: float = 0.1
    log_n0: float = 0
    log_r0: float = 0
    log_r: float = 0
    log_need: float = 0
    """Of log(e / r)."""
    free: float = 0
    """1: half the exponential in place of the softmax. With log_r = -1 this is uncertainty weighting at its optimum."""
    imtl: float = 0
    """1: the weights of IMTL-G in place of the features."""
    robust: float = 0
    """1: forward correction in classification tasks, mixture weights in regression tasks."""
    frequency: float = 0
    """The probability of a wrong label is 1/C (0), its frequency in the batch (1), its running frequency (2), or its
    frequency among the other labels of the batch (3)."""
    precision: float = 0
    """Regression: the gradient is multiplied by (c / (c + r/V))^precision, with V the variance of the targets."""
    half: float = 0.1
    """The c of `precision`: a task whose loss is this share of its variance has half the gradient."""


def read_configs(path: Path) -> list[Config]:
    """The configurations of a JSON file: a list of objects, each with a name."""
    known = [field.name for field in fields(Config)]
    configs = []
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"--configs {path} cannot be read as JSON ({error}); name a file like configs.json") from error
    for entry in entries:
        unknown = sorted(set(entry) - set(known))
        if unknown or "name" not in entry:
            found = f"holds {unknown[0]!r}" if unknown else "holds an entry without a name"
            raise ValueError(f"--configs {path} {found}: entries are made of {', '.join(known)}")
        configs.append(Config(**entry))
    if not configs or len({config.name for config in configs}) < len(configs):
        raise ValueError(f"--configs {path} is empty or has a name twice: give each configuration a name of its own")
    return configs


@dataclass(frozen=True)
class Runs:
    """Every configuration at every learning rate in every case, in this order."""

    configs: Sequence[Config]
    rates: Sequence[float]
    cases: Sequence[Case]
    device: str

    @property
    def combinations(self) -> list[tuple[Config, float]]:
        """Configurations and learning rates; each is trained once for every case."""
        return [(config, rate) for config in self.configs for rate in self.rates]

    @property
    def count(self) -> int:
        """Of all networks."""
        return len(self.combinations) * len(self.cases)

    def column(self, name: str) -> Tensor:
        """[runs] an option of every run."""
        return self._spread([getattr(config, name) for config, _ in self.combinations])

    def learning_rates(self) -> Tensor:
        """[runs]."""
        return self._spread([rate for _, rate in self.combinations])

    def _spread(self, values: Sequence[float]) -> Tensor:
        return torch.tensor([float(value) for value in values], device=self.device).repeat_interleave(len(self.cases))
