"""Per-task gradients of one batch where the heads can be walked together: the fast way, for the usual model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from excessmtl.gradients.capture import Cut
from excessmtl.gradients.gathered import Gathered, all_finite, has_labels, loss_values
from excessmtl.gradients.heads import Heads, walk
from excessmtl.gradients.rows import ParameterRows
from excessmtl.gradients.stacked import stacked
from excessmtl.gradients.trunk import TrunkWalk


def gather_heads(
    losses: Sequence[Tensor | None],
    heads: Heads,
    masks: Sequence[Tensor | None],
    *,
    parameters: Sequence[Tensor] = (),
    trunk: TrunkWalk,
    kinds: frozenset[str] = frozenset(),
) -> Gathered:
    """What `gather` says, by one walk for all heads and with the results in one tensor.

    Down to `parameters`, all there is below the tensor where the heads meet, it is what `trunk` makes of it; `kinds`
    are those of the nodes on that way.
    """
    values = loss_values(losses)
    there = tuple(loss is not None for loss in losses)
    at_cut, own = walk(losses, heads)
    cut = heads.cut.forgotten() if parameters else heads.cut
    together = stacked(cut, at_cut, there, own)
    one_by_one: list[list[tuple[Cut, Tensor]]] = [[] for _ in losses]
    if together is not None:
        finite = together.finite()
    else:
        one_by_one = [[(cut, dz)] if given else [] for dz, given in zip(at_cut.tensors.unbind(), there, strict=True)]
        reached = [[*at_z, *leaves] for at_z, leaves in zip(one_by_one, own, strict=True)]
        finite = torch.stack([all_finite([gradient for _, gradient in task], values) for task in reached])
    probed = ParameterRows(parameters, len(losses))
    if parameters:
        trunk.fill(probed, heads.cut, kinds, at_cut.tensors, there, parameters)
        finite = finite & probed.finite(values)
        one_by_one = [[] for _ in losses]  # what has been walked to the end is not sent down again
    found = Gathered(
        values,
        has_labels(losses, masks, values.device),
        finite,
        None,
        masks,
        own,
        one_by_one,
        probed.flat,
        parameters,
        final=bool(parameters),
        stacked=together,
    )
    if together is not None:
        together.zero_unless(found.ok)
    return found
