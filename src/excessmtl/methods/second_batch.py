"""Products of gradients of two batches, for the rules that take `validation_losses`."""

import torch
from torch import Tensor

from excessmtl.methods.observation import Observation


def products(seen: Observation) -> Tensor:
    """[m, m] of the gradients of the second batch (rows) with those of the first, zero where a task took no part.

    Without a second batch it is the Gram matrix of the first, whose diagonal is too large by the noise of the batch.
    """
    gram = seen.gram if seen.cross is None else seen.cross
    return torch.where(seen.ok[:, None] & seen.ok, gram, 0)
