"""A running estimate of the share of wrong labels of one classification task."""

import torch
from torch import Tensor, nn

_MEMORY = 0.02
"""How fast the estimate follows a batch."""
_WARM_UP = 100
"""Over so many first batches the strength of the loss rises to the estimate: a new network knows nothing of labels."""
_MOST = 0.8
"""The loss never reckons with a larger share, or a task that is learned late would stop learning."""
_LARGEST_SAMPLE = 4096
"""At most so many labels of a batch are looked at."""


def check_strength(strength: float | None) -> float | None:
    """The strength, or a ValueError."""
    if strength is not None and not 0 <= strength < 1:
        raise ValueError(f"strength must be at least 0 and below 1, or None to estimate it, found {strength!r}")
    return strength


class NoiseRate(nn.Module):
    """How often the most confident quarter of the predictions disagrees with the labels.

    Where a network is most confident it is nearly always right, so what disagrees there are wrong labels; a hard task
    is not taken for a noisy one. With C classes a label drawn at random agrees by chance once in C times.

    A network that memorises agrees with wrong labels too. Therefore the estimate rises at once and falls slowly: by a
    share 1/t at step t, so that it takes as long to forget as the network had to learn. Nothing here reads the host.

    Args:
        fixed: the share to reckon with, whatever is seen; None: the estimate.
    """

    steps: Tensor
    recent: Tensor
    noise: Tensor

    def __init__(self, fixed: float | None) -> None:
        super().__init__()
        self.fixed = fixed
        for name in ("steps", "recent", "noise"):
            self.register_buffer(name, torch.zeros(()))

    @property
    def effective(self) -> Tensor:
        """The share that the loss reckons with."""
        if self.fixed is not None:
            return torch.full_like(self.noise, self.fixed)
        return self.noise.clamp(max=_MOST) * (self.steps / _WARM_UP).clamp(max=1)

    @torch.no_grad()
    def observe(self, confidence: Tensor, wrong: Tensor, counts: Tensor, classes: int) -> None:
        """One batch: how sure each prediction is, whether it disagrees with its label, and whether the label counts."""
        every = max(1, confidence.numel() // _LARGEST_SAMPLE)
        confidence, wrong, counts = (one.flatten()[::every] for one in (confidence, wrong, counts))
        order = torch.where(counts, confidence, -torch.inf).argsort(descending=True)
        total = counts.sum()
        ranks = torch.arange(len(order), device=order.device)
        surest = counts[order] & (ranks < (total / 4).clamp(min=1))
        errors = (wrong[order] & surest).sum() / surest.sum().clamp(min=1)
        share = (errors * (classes / max(classes - 1, 1))).clamp(max=1).to(self.recent.dtype)
        new = (total > 0).to(self.recent.dtype)
        self.steps += new
        self.recent.lerp_(share, new * _MEMORY)
        # An average that starts at zero is short of the truth by this factor.
        present = self.recent / (1 - torch.pow(1 - _MEMORY, self.steps.clamp(min=1)))
        fallen = torch.lerp(self.noise, present, 1 / self.steps.clamp(min=1))
        self.noise.copy_(torch.where(self.steps > _WARM_UP, torch.maximum(fallen, present), present))
