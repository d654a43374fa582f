"""Per-task gradients of one batch where the heads can be walked together: the fast way, for the usual model."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from excessmtl.gradients.capture import Cut
from excessmtl.gradients.gathered import Gathered, all_finite, exact, has_labels, loss_vector
from excessmtl.gradients.heads import Heads, Pair, walk
from excessmtl.gradients.hooks import asleep
from excessmtl.gradients.linear import Layers
from excessmtl.gradients.products import Products
from excessmtl.gradients.rows import ParameterRows, Rows, is_finite
from excessmtl.gradients.stacked import by_task, stacked


def gather_heads(
    losses: Sequence[Tensor | None],
    heads: Heads,
    masks: Sequence[Tensor | None],
    *,
    parameters: Sequence[Tensor] = (),
    keep: bool = False,
) -> Gathered:
    """What `gather` says, by one walk for all heads and with the results in one tensor.

    Down to `parameters`, all there is below the tensor where the heads meet, it is still a walk per task. `keep`: the
    graph is needed again afterwards.
    """
    with torch.enable_grad():
        vector = loss_vector(losses)
    values = vector.detach().float()
    there = tuple(loss is not None for loss in losses)
    at_cut: Rows | Products
    at_cut, own = walk(vector, heads, keep)
    if parameters and isinstance(at_cut, Layers):  # these may wait for the last micro-batch, z may not
        at_cut, own = _multiplied_out(at_cut, own, values)
    cut = heads.cut.forgotten() if parameters else heads.cut
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
    probed = ParameterRows(parameters, len(losses))
    if parameters:
        _fill(probed, heads.cut, at_cut.tensors, there, parameters)
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
        probed.rows,
        parameters,
        final=bool(parameters),
        stacked=together,
    )
    if together is not None:
        together.zero_unless(found.ok)
    return found


def _multiplied_out(layers: Layers, own: list[list[Pair]], like: Tensor) -> tuple[Products, list[list[Pair]]]:
    """The same with the gradients of the layers' leaves among the tasks' `own`."""
    with exact(like):
        more = by_task(layers.owned(None, None), len(own))
    return layers.alone(), [[*first, *rest] for first, rest in zip(more, own, strict=True)]


def _fill(probed: ParameterRows, cut: Cut, dz: Tensor, there: Sequence[bool], parameters: Sequence[Tensor]) -> None:
    """From the cut down to the parameters, task by task; the last walk frees the graph."""
    edge: Any = cut.edge
    last = max(task for task, given in enumerate(there) if given)
    for task, given in enumerate(there):
        gradients: Sequence[Tensor | None] = [None] * len(parameters)
        if given:
            retain = task != last
            with asleep(parameters):
                gradients = torch.autograd.grad(edge, parameters, dz[task], retain_graph=retain, allow_unused=True)
        probed.fill(task, gradients)
