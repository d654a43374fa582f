"""What a candidate for a weighting rule is: a product of powers of the statistics, and distrust of what is left of r0.

A candidate's name is its formula, made from its numbers, in the vocabulary of `statistics`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from research.weighting.statistics import CAPS, Seen

SYMBOLS = ("E", "E0", "T", "n", *CAPS, "r", "r_fast", "r0", "n0", "A", "F")
_OFFSET = 0.3
"""Of the soft threshold: a task with less than about this share of its first loss left counts as learned."""


@dataclass(frozen=True)
class Candidate:
    """Weights on the simplex, proportional to a formula."""

    powers: dict[str, float] = field(default_factory=dict)
    """Statistic -> exponent."""
    trust: float = 0.0
    """A factor exp(-trust r/r0)."""
    trusts: str = "r"
    """The statistic in place of r."""
    threshold: float = 0.0
    """A factor (r/r0 + 0.3)^-threshold."""
    mix: float = 0.0
    """Share of weights equal in units of the first loss (proportional to 1/r0) that is mixed in."""
    equal_projections: bool = False
    """Instead of all that: IMTL-G, on the gradients at the representation."""

    @property
    def name(self) -> str:
        """The formula."""
        if self.equal_projections:
            return "imtl"
        rate = "" if self.trust == 1 else f"{self.trust:g} "
        above = [f"exp(-{rate}{self.trusts}/r0)"] if self.trust else []
        above += _factors({symbol: power for symbol, power in self.powers.items() if power > 0})
        below = _factors({symbol: -power for symbol, power in self.powers.items() if power < 0})
        below += [f"(r/r0 + {_OFFSET:g})^{self.threshold:g}"] if self.threshold else []
        if not above and not below:
            return "uniform"
        formula = " ".join(above) or "1"
        if below:
            formula += f" / {below[0]}" if len(below) == 1 else f" / ({' '.join(below)})"
        return f"{1 - self.mix:g} ({formula}) + {self.mix:g} (1 / r0)" if self.mix else formula


def _factors(powers: dict[str, float]) -> list[str]:
    """Symbols of equal power stand together: sqrt(n r0), n^0.75."""
    factors = []
    for power in dict.fromkeys(powers.values()):
        symbols = [symbol for symbol, own in powers.items() if own == power]
        together = " ".join(symbols)
        if power == 1:
            factors += symbols
        elif power == 0.5:
            factors.append(f"sqrt({together})")
        else:
            factors.append(f"{together if len(symbols) == 1 else f'({together})'}^{power:g}")
    return factors


class Weighing:
    """The weights of all runs at once, `cases` runs for each candidate in turn."""

    def __init__(self, candidates: Sequence[Candidate], cases: int, device: str) -> None:
        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32).repeat_interleave(cases)[:, None].to(device)

        self._powers = [
            (symbol, column([candidate.powers.get(symbol, 0.0) for candidate in candidates]))
            for symbol in SYMBOLS
            if any(symbol in candidate.powers for candidate in candidates)
        ]
        self._trusts = [
            (symbol, column([candidate.trust * (candidate.trusts == symbol) for candidate in candidates]))
            for symbol in dict.fromkeys(candidate.trusts for candidate in candidates)
        ]
        self._threshold = column([candidate.threshold for candidate in candidates])
        self._mix = column([candidate.mix for candidate in candidates])
        # As indices: a mask would have to be read from the device in every step.
        balanced = torch.tensor([candidate.equal_projections for candidate in candidates]).repeat_interleave(cases)
        self._balanced = balanced.nonzero()[:, 0].to(device)

    def __call__(self, known: dict[str, Tensor], seen: Seen) -> Tensor:
        """[runs, tasks], each row with the sum one."""
        first = known["r0"].clamp(min=1e-6)
        logs = -self._threshold * (known["r"] / first + _OFFSET).log()
        for symbol, trusts in self._trusts:
            logs = logs - trusts * known[symbol] / first
        for symbol, powers in self._powers:
            logs = logs + powers * known[symbol].clamp(min=1e-30).log()
        weights = (1 - self._mix) * logs.softmax(1) + self._mix * (-first.log()).softmax(1)
        weights[self._balanced] = equal_projections(seen.gram[self._balanced])
        return weights


def equal_projections(gram: Tensor) -> Tensor:
    """IMTL-G: weights with which the step has the same projection on every task's gradient."""
    lengths = gram.diagonal(dim1=1, dim2=2).clamp(min=1e-30).sqrt()
    cosines = gram / (lengths[:, :, None] * lengths[:, None, :])
    ridge = 1e-4 * torch.eye(gram.shape[1], device=gram.device)
    raw = torch.linalg.solve(cosines + ridge, torch.ones_like(lengths)[..., None]).squeeze(-1) / lengths
    weights: Tensor = raw / raw.sum(1, keepdim=True)
    return weights
