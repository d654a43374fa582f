"""The walks of autograd for the usual model: over all heads together, and on through the trunk.

`gather.py` walks any graph, task by task.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from excessmtl.gradients.gathered import Gathered
from excessmtl.gradients.heads import Heads, Losses, walk
from excessmtl.gradients.reduced import Reduce, ReducedRows
from excessmtl.gradients.rows import ParameterRows
from excessmtl.gradients.trunk import TrunkWalk
from excessmtl.gradients.walked import Walked


def walk_heads(
    losses: Losses, heads: Heads, masks: Sequence[Tensor | None], keep: bool = False, apart: bool = False
) -> Walked:
    """Down to the tensor where the heads meet.

    `keep`: the graph above it is needed again afterwards. `apart`: large gradients there need not be in one tensor.
    """
    at_cut, own = walk(losses, heads, keep, apart)
    return Walked(losses, masks, heads.cut, at_cut, own)


def walk_trunk(walked: Walked, trunk: TrunkWalk, kinds: frozenset[str], parameters: Sequence[Tensor]) -> Walked:
    """And on to `parameters`, all there is below: what `trunk` makes of it; `kinds` are those of the nodes there."""
    probed = ParameterRows(parameters, len(walked.losses))
    for task, loss in enumerate(walked.losses):
        if loss is None:
            probed.nothing_of(task)
    dz = walked.at_cut.joined().tensors
    trunk.walk(walked.cut, kinds, dz, _given(walked), parameters, probed.take, keep=False)
    return replace(walked, probed=probed.flat, parameters=parameters)


def reduce_trunk(
    walked: Walked, trunk: TrunkWalk, kinds: frozenset[str], parameters: Sequence[Tensor], reduce: Reduce
) -> Gathered:
    """The same with the gradients reduced and let go; the trunk has to be walked once more."""
    dz, batch = walked.at_cut.joined().tensors, walked.gathered()
    reduced = ReducedRows(parameters, reduce, batch.ok)
    trunk.walk(walked.cut, kinds, dz, _given(walked), parameters, reduced.take, keep=True)
    batch = replace(batch, finite=reduced.ok, parameters=parameters, reduced=reduced.numbers)
    if batch.stacked is not None:
        batch.stacked.zero_unless(batch.ok)
    return batch


def _given(walked: Walked) -> list[int]:
    return [task for task, loss in enumerate(walked.losses) if loss is not None]
