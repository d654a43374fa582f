"""A running estimate of the share of wrong labels of one classification task."""

import math
from typing import Any

import torch
from torch import Tensor

from excessmtl.losses.estimate import Estimate, State

_MEMORY = 0.02
"""How fast the estimate follows a batch."""
_WARM_UP = 100
"""Over so many first batches the strength of the loss rises to the estimate: a new network knows nothing of labels."""
_MOST = 0.8
"""The loss never reckons with a larger share, or a task that is learned late would stop learning."""
_LARGEST_SAMPLE = 4096
"""About so many labels of a batch are looked at."""
_BINS = 512
"""So many grades of confidence are told apart."""
_LEAST, _MOST_DOUBT = 1e-8, 20.0
"""The grades divide -log p between these evenly on a logarithmic scale, p being the probability of the prediction."""


def check_strength(strength: float | None) -> float | None:
    """The strength, or a ValueError."""
    if strength is not None and not 0 <= strength < 1:
        raise ValueError(f"strength must be at least 0 and below 1, or None to estimate it, found {strength!r}")
    return strength


class NoiseRate(Estimate):
    """How often the most confident quarter of the predictions disagrees with the labels.

    Where a network is most confident it is nearly always right, so what disagrees there are wrong labels; a hard task
    is not taken for a noisy one. With C classes a label drawn at random agrees by chance once in C times.

    A network that memorises agrees with wrong labels too. Therefore the estimate rises at once and falls slowly: by a
    share 1/t at step t, so that it takes as long to forget as the network had to learn. Nothing here reads the host.

    Args:
        fixed: the share to reckon with, whatever is seen; None: the estimate.
        pool: whether all processes of `torch.distributed` learn together.
    """

    steps: Tensor
    recent: Tensor
    noise: Tensor

    def __init__(self, fixed: float | None, pool: bool = True) -> None:
        super().__init__(pool, steps=(), recent=(), noise=())
        self.fixed = fixed

    def effective(self, state: State) -> Tensor:
        """[estimates] the share that the loss reckons with: the estimated one, at first less, or the fixed one."""
        if self.fixed is not None:
            return torch.full_like(state["noise"], self.fixed)
        return state["noise"].clamp(max=_MOST) * (state["steps"] / _WARM_UP).clamp(max=1)

    def learned(self, state: State, *batch: Any) -> State:
        """The states after a batch.

        It is: the log-probability of each prediction, whether its label is another, and whether that counts, all
        [estimates, ...]; the sum of all that counts, [estimates], where it is not finite, in any process, the batch
        does not count; and how many classes there are.
        """
        *entries, total, classes = batch
        size = entries[0][0].numel()
        every = max(1, size // _LARGEST_SAMPLE)
        while math.gcd(every, size) > 1:  # or some columns would never be looked at
            every += 1
        confidence, wrong, counts = (
            values.flatten(1)[:, ::every] if every > 1 else values.flatten(1) for values in entries
        )
        scale = _BINS / math.log(_MOST_DOUBT / _LEAST)
        grades = (confidence.neg().log() * scale - scale * math.log(_LEAST)).long().clamp(0, _BINS - 1) + _BINS * wrong
        # Whole numbers, which add up exactly in any order; or NaN.
        nothing = (0 * total).unsqueeze(1).expand(-1, 2 * _BINS)
        right_wrong = self.pooled(nothing.scatter_add(1, grades, counts.to(total.dtype)))
        share, new = _share_of_wrong(right_wrong.view(-1, 2, _BINS), classes)
        steps = state["steps"] + new
        recent = torch.lerp(state["recent"], share, new * _MEMORY)
        # An average that starts at zero is short of the truth by this factor.
        present = (recent / (1 - torch.pow(1 - _MEMORY, steps.clamp(min=1)))).clamp(max=1)  # rounding may exceed it
        fallen = torch.lerp(state["noise"], present, new / steps.clamp(min=1))
        noise = torch.where(steps > _WARM_UP, torch.maximum(fallen, present), present)
        return {"steps": steps, "recent": recent, "noise": noise}


def _share_of_wrong(right_wrong: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """[estimates] the share of labels drawn at random among the surest quarter, and 1 or 0: are there labels?

    From [estimates, 2, grades]: how many labels of each grade of confidence, the surest first, are right and wrong.
    """
    labels = right_wrong.sum(1)
    up_to = labels.cumsum(1)
    new = up_to[:, -1] > 0
    quarter = (up_to[:, -1:] / 4).clamp(min=1)
    # Of the grade in which the quarter ends, all labels count alike, by a share.
    surest = (quarter - up_to + labels).clamp(min=0).minimum(labels)
    errors = (surest * right_wrong[:, 1] / labels.clamp(min=1)).sum(1) / quarter[:, 0]
    share = torch.where(new, (errors * (classes / max(classes - 1, 1))).clamp(max=1), 0.0)
    return share, new.to(share.dtype)
