"""Telling the user, once, that the processes of a data-parallel run train models that differ.

Gradients are averaged by `DistributedDataParallel`, not by us. Where it is forgotten, or where a trainer switches it
off (Lightning does in manual optimisation, until `manual_backward` is called), every process trains a model of its own
and nobody says so. Parameters are compared, not gradients: these may differ for good reasons, as between micro-batches.

Comparing takes part in a collective operation, so all processes have to do it in the same step. It is done right after
steps in which the balancer has already summed its statistics over the processes, and at the same counts of those: who
does not take part in these waits already. What is exchanged has one size whatever the model.
"""

from collections.abc import Sequence
from itertools import islice

import torch
import torch.distributed as dist
from torch import Tensor

from excessmtl.warn import warn

_AFTER = (2, 20)
"""The joint decisions after which parameters are compared: an optimiser's step after the start, and once warmed up."""
_SIZE = 256
"""How many entries of the parameters are compared."""
_TOLERANCE = 1e-5
"""Of the largest entry. Replicas on one kind of device are equal to the bit; on several kinds, to rounding."""


class ReplicaCheck:
    """Counts the joint decisions of a balancer, and compares the shared parameters of all processes after two."""

    def __init__(self) -> None:
        self.decisions = 0
        self._told = False

    def after_decision(self, parameters: Sequence[Tensor], device: torch.device) -> None:
        """To be called by all processes after each decision that they have taken together."""
        self.decisions += 1
        if self.decisions in _AFTER and _differ(parameters, device) and not self._told:
            self._told = True
            if dist.get_rank() == 0:
                warn(
                    f"the shared parameters differ between the processes (found in step {self.decisions}): gradients "
                    "are not averaged, so every process trains a model of its own. Wrap the model in "
                    "DistributedDataParallel and call the wrapper, not its .module; in Lightning with manual "
                    "optimisation, call self.manual_backward(balancer(losses)), or inherit from "
                    "excessmtl.integrations.lightning.BalancedModule and call self.balanced_backward(losses). Where "
                    "the processes are meant to train different models, make the balancer with pool=False"
                )


def _differ(parameters: Sequence[Tensor], device: torch.device) -> bool:
    """Whether a sample of the parameters differs between processes. Waits for the device."""
    mine = _sample(parameters).to(device)
    ends = torch.stack([mine, -mine])
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    largest, smallest = ends[0], -ends[1]
    return bool((largest - smallest).abs().max() > _TOLERANCE * ends.abs().max())


def _sample(parameters: Sequence[Tensor]) -> Tensor:
    """[_SIZE] entries of parameters, spread over all of them; zeros where there are fewer."""
    sample = torch.zeros(_SIZE)
    # Of a DTensor each process holds another part, or the same: whoever made it takes care of its gradient.
    unsharded = [parameter for parameter in parameters if parameter.numel() and not hasattr(parameter, "to_local")]
    if not unsharded:
        return sample
    chosen = list(islice(unsharded, 0, None, -(-len(unsharded) // _SIZE)))
    each = _SIZE // len(chosen)
    pieces = []
    for parameter in chosen:
        flat = parameter.detach().flatten()
        flat = flat.abs() if flat.is_complex() else flat
        pieces.append(flat[:: -(-flat.numel() // each)].float().cpu())
    entries = torch.cat(pieces)
    sample[: entries.numel()] = entries
    return sample
