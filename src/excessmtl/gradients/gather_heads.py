"""Per-task gradients of one batch where the heads can be walked together: the fast way, for the usual model."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from excessmtl.gradients.gathered import Gathered, loss_vector
from excessmtl.gradients.heads import Heads, walk
from excessmtl.gradients.linear import Layers
from excessmtl.gradients.products import Products
from excessmtl.gradients.reduced import Reduce, ReducedRows
from excessmtl.gradients.rows import ParameterRows, Rows
from excessmtl.gradients.trunk import TrunkWalk
from excessmtl.gradients.walked import Walked, multiplied_out


def walk_heads(
    losses: Sequence[Tensor | None], heads: Heads, masks: Sequence[Tensor | None], keep: bool = False
) -> Walked:
    """Down to the tensor where the heads meet. `keep`: the graph above it is needed again afterwards."""
    with torch.enable_grad():
        vector = loss_vector(losses)
    at_cut, own = walk(vector, heads, keep)
    return Walked(vector.detach(), tuple(loss is not None for loss in losses), masks, heads.cut, at_cut, own)


def walk_trunk(walked: Walked, trunk: TrunkWalk, kinds: frozenset[str], parameters: Sequence[Tensor]) -> Walked:
    """And on to `parameters`, all there is below: what `trunk` makes of it; `kinds` are those of the nodes there."""
    at_cut: Rows | Products
    at_cut, own = walked.at_cut, walked.own
    if isinstance(at_cut, Layers):  # these may wait for the last micro-batch, z may not
        at_cut, own = multiplied_out(at_cut, own, walked.values)
    probed = ParameterRows(parameters, len(walked.there))
    for task, there in enumerate(walked.there):
        if not there:
            probed.nothing_of(task)
    trunk.walk(walked.cut, kinds, at_cut.tensors, _given(walked), parameters, probed.take, keep=False)
    return replace(walked, at_cut=at_cut, own=own, probed=probed.flat, parameters=parameters)


def reduce_trunk(
    walked: Walked, trunk: TrunkWalk, kinds: frozenset[str], parameters: Sequence[Tensor], reduce: Reduce
) -> Gathered:
    """The same with the gradients reduced and let go; the trunk has to be walked once more."""
    at_cut: Rows | Products
    at_cut, own = walked.at_cut, walked.own
    if isinstance(at_cut, Layers):
        at_cut, own = multiplied_out(at_cut, own, walked.values)
    batch = replace(walked, at_cut=at_cut, own=own).gathered()
    reduced = ReducedRows(parameters, reduce, batch.ok)
    trunk.walk(walked.cut, kinds, at_cut.tensors, _given(walked), parameters, reduced.take, keep=True)
    batch = replace(batch, finite=reduced.ok, parameters=parameters, reduced=reduced.numbers)
    if batch.stacked is not None:
        batch.stacked.zero_unless(batch.ok)
    return batch


def _given(walked: Walked) -> list[int]:
    return [task for task, there in enumerate(walked.there) if there]
