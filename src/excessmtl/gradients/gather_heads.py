"""Per-task gradients of one batch where the heads can be walked together: the fast way, for the usual model."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from excessmtl.gradients.gathered import Gathered
from excessmtl.gradients.heads import Heads, Losses, Pair, walk
from excessmtl.gradients.linear import Layers
from excessmtl.gradients.maps import Maps
from excessmtl.gradients.products import Products
from excessmtl.gradients.reduced import Reduce, ReducedRows
from excessmtl.gradients.rows import ParameterRows, Rows
from excessmtl.gradients.trunk import TrunkWalk
from excessmtl.gradients.walked import Walked, multiplied_out


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
    at_cut, own = _at_cut(walked)
    probed = ParameterRows(parameters, len(own))
    for task, loss in enumerate(walked.losses):
        if loss is None:
            probed.nothing_of(task)
    trunk.walk(walked.cut, kinds, at_cut.tensors, _given(walked), parameters, probed.take, keep=False)
    return replace(walked, at_cut=at_cut, own=own, probed=probed.flat, parameters=parameters)


def reduce_trunk(
    walked: Walked, trunk: TrunkWalk, kinds: frozenset[str], parameters: Sequence[Tensor], reduce: Reduce
) -> Gathered:
    """The same with the gradients reduced and let go; the trunk has to be walked once more."""
    at_cut, own = _at_cut(walked)
    batch = replace(walked, at_cut=at_cut, own=own).gathered()
    reduced = ReducedRows(parameters, reduce, batch.ok)
    trunk.walk(walked.cut, kinds, at_cut.tensors, _given(walked), parameters, reduced.take, keep=True)
    batch = replace(batch, finite=reduced.ok, parameters=parameters, reduced=reduced.numbers)
    if batch.stacked is not None:
        batch.stacked.zero_unless(batch.ok)
    return batch


def _at_cut(walked: Walked) -> tuple[Rows | Maps | Products, list[list[Pair]]]:
    """Gradients at z, and all others above it: these may wait for the last micro-batch, values of z may not."""
    at_cut = walked.at_cut.joined()
    return multiplied_out(at_cut, walked.own) if isinstance(at_cut, Layers) else (at_cut, walked.own)


def _given(walked: Walked) -> list[int]:
    return [task for task, loss in enumerate(walked.losses) if loss is not None]
