"""GradDrop: where tasks disagree about the sign of a feature's gradient, one sign is dropped at random.

Chen et al., NeurIPS 2020, https://arxiv.org/abs/2010.06808, Algorithm 1, at the shared representation z:
    A_i = sum over the batch of sign(z) dl_i/dz,  P = (1 + sum_i A_i / sum_i |A_i|) / 2,  U ~ Uniform(0, 1) per feature
    keep_i = [P > U][A_i > 0] + [P < U][A_i < 0],   dl_i/dz is multiplied by leak + (1 - leak) keep_i
A feature is every entry of z but the batch. There is no weight per task: `step.weights` shows the mean multiplier.
`scale="sum"` and `"mean"` leave the multipliers as they are; `protect` is refused.
"""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Heads, Rule, State, method
from excessmtl.methods.observation import Observation, labelled_samples


@method("graddrop")
@dataclass(frozen=True)
class GradDrop(Rule):
    """Gradient signs that tasks disagree on dropped at random, feature by feature."""

    uses_host: ClassVar[bool] = True
    probe: ClassVar[Probe] = Probe.REPRESENTATION
    heads: ClassVar[Heads] = "unweighted"
    simplex: ClassVar[bool] = False
    per_sample: ClassVar[bool] = True
    gated: ClassVar[bool] = True

    leak: float = 0.0
    """Share of every gradient that is let through regardless."""
    seed: int = 0
    """Of the balancer's own random stream."""

    def __post_init__(self) -> None:
        if not 0 <= self.leak <= 1:
            raise ValueError(f"leak must be between 0 and 1, found {self.leak}")

    def update(self, state: State, seen: Observation) -> Decision:
        """A multiplier per task and feature; the weights shown are their means."""
        samples = [list(seen.samples(task)) for task in range(seen.tasks)]
        for sample in itertools.chain.from_iterable(samples):
            z = sample.z  # masks that do not fit are refused
            positions = z.shape[2:] if z.ndim >= 4 else z.shape[1:-1]
            labelled_samples(sample.labelled, len(z), positions.numel())
        signed = [[(sample.z.sign() * sample.dz).sum(0) for sample in own] for own in samples]  # A_i
        positive = _kept_signs(signed, seen)
        gates = tuple(
            tuple(self._gate(value, positive[place, value.shape]) for place, value in enumerate(own)) for own in signed
        )
        zero = torch.zeros_like(seen.losses[0])
        means = [torch.stack([gate.mean() for gate in own]).mean() if own else zero for own in gates]
        return Decision(torch.stack(means), state, gates=gates)

    def _gate(self, signed: Tensor, positive: Tensor) -> Tensor:
        keep = torch.where(positive, signed > 0, signed < 0)
        return self.leak + (1 - self.leak) * keep.float()


def _kept_signs(signed: list[list[Tensor]], seen: Observation) -> dict[tuple[int, torch.Size], Tensor]:
    """Whether the positive gradients of a feature are kept: P > U.

    Purity and draws are shared by all tensors with the same features, whichever tasks they belong to.
    """
    groups: dict[tuple[int, torch.Size], list[Tensor]] = {}
    for own in signed:
        for place, value in enumerate(own):
            groups.setdefault((place, value.shape), []).append(value)
    positive = {}
    for key, values in sorted(groups.items()):
        stacked = torch.stack(values)
        total = stacked.abs().sum(0)
        purity = 0.5 * (1 + stacked.sum(0) / torch.where(total > 0, total, 1))
        draws = torch.rand(key[1], dtype=torch.float32, generator=seen.generator, device="cpu")
        positive[key] = purity > draws.to(total.device, non_blocking=True)
    return positive
