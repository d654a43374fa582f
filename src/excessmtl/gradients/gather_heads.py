"""Per-task gradients of one batch where the heads can be walked together: the fast way, for the usual model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from excessmtl.gradients.capture import Cut
from excessmtl.gradients.gathered import Gathered, all_finite, exact, has_labels, loss_vector
from excessmtl.gradients.heads import Heads, Pair, walk
from excessmtl.gradients.linear import Layers
from excessmtl.gradients.maps import Maps
from excessmtl.gradients.products import Products
from excessmtl.gradients.reduced import Reduce, ReducedRows
from excessmtl.gradients.rows import ParameterRows, Rows, is_finite
from excessmtl.gradients.stacked import by_task, stacked
from excessmtl.gradients.trunk import TrunkWalk


def gather_heads(
    losses: Sequence[Tensor | None],
    heads: Heads,
    masks: Sequence[Tensor | None],
    *,
    parameters: Sequence[Tensor] = (),
    trunk: TrunkWalk,
    kinds: frozenset[str] = frozenset(),
    reduce: Reduce | None = None,
    keep: bool = False,
) -> Gathered:
    """What `gather` says, by one walk for all heads and with the results in one tensor.

    Down to `parameters`, all there is below the tensor where the heads meet, it is what `trunk` makes of it; `kinds`
    are those of the nodes on that way. With `reduce` the gradients there are reduced and let go, and the trunk has to
    be walked once more. `keep`: the graph is needed again afterwards.
    """
    with torch.enable_grad():
        vector = loss_vector(losses)
    values = vector.detach().float()
    there = tuple(loss is not None for loss in losses)
    at_cut: Rows | Maps | Products
    at_cut, own = walk(vector, heads, keep, apart=not parameters)
    if parameters and isinstance(at_cut, Layers):  # these may wait for the last micro-batch, z may not
        at_cut, own = _multiplied_out(at_cut, own, values)
    final = bool(parameters) and reduce is None
    cut = heads.cut.forgotten() if final else heads.cut
    together = stacked(cut, at_cut, there, own)
    one_by_one: list[list[tuple[Cut, Tensor]]] = [[] for _ in losses]
    if together is not None:
        finite = is_finite(together.sums() + values)
    else:
        if isinstance(at_cut, Layers):
            at_cut, own = _multiplied_out(at_cut, own, values)
        one_by_one = [[(cut, dz)] if given else [] for dz, given in zip(at_cut.tensors.unbind(), there, strict=True)]
        reached = [[*at_z, *leaves] for at_z, leaves in zip(one_by_one, own, strict=True)]
        finite = torch.stack([all_finite([gradient for _, gradient in task], values) for task in reached])
        finite = finite & is_finite(values)
    labelled = has_labels(losses, masks, values.device)
    probed, numbers = ParameterRows(parameters if final else (), len(losses)), None
    given = [task for task, here in enumerate(there) if here]
    if final:
        for task in set(range(len(losses))) - set(given):
            probed.nothing_of(task)
        trunk.walk(heads.cut, kinds, at_cut.tensors, given, parameters, probed.take, keep=False)
        finite = finite & probed.finite(values)
        one_by_one = [[] for _ in losses]  # what has been walked to the end is not sent down again
    elif reduce is not None:
        reduced = ReducedRows(parameters, reduce, labelled & is_finite(values) & finite)
        trunk.walk(heads.cut, kinds, at_cut.tensors, given, parameters, reduced.take, keep=True)
        finite, numbers = reduced.ok, reduced.numbers
    found = Gathered(
        values,
        labelled,
        finite,
        None,
        masks,
        own,
        one_by_one,
        probed.flat,
        parameters,
        final=final,
        stacked=together,
        reduced=numbers,
    )
    if together is not None:
        together.zero_unless(found.ok)
    return found


def _multiplied_out(layers: Layers, own: list[list[Pair]], like: Tensor) -> tuple[Products, list[list[Pair]]]:
    """The same with the gradients of the layers' leaves among the tasks' `own`."""
    with exact(like):
        more = by_task(layers.owned(None, None), len(own))
    return layers.alone(), [[*first, *rest] for first, rest in zip(more, own, strict=True)]
