"""What one network is trained with: a weighting rule and the variants of the losses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
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
    """1: forward correction in classification tasks; in regression tasks mixture weights, and a gradient multiplied by
    c / (c + r/V), with V the variance of the targets and c = 0.1."""
    frequency: float = 0
    """The probability of a wrong label is 1/C (0), its running frequency (1), or its frequency among the other labels
    of the batch (2)."""


def read_configs(path: Path) -> list[Config]:
    """The configurations of a JSON file: a list of objects, each with a name."""
    try:
        configs = [Config(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"--configs {path} cannot be used ({error}); name a file like configs.json") from error
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
