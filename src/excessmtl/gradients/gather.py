"""Per-task gradients of one batch, task by task: the plain way, for graphs of any kind."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from excessmtl.gradients.cut import Cut
from excessmtl.gradients.gathered import Gathered, all_finite, has_labels, loss_values
from excessmtl.gradients.graph import Reach, entries
from excessmtl.gradients.hooks import asleep
from excessmtl.gradients.rows import ParameterRows, is_finite


def gather(
    losses: Sequence[Tensor | None],
    reaches: Sequence[Reach],
    *,
    parameters: Sequence[Tensor] = (),
    masks: Sequence[Tensor | None],
    scale: Tensor | None = None,
    overlap: bool = False,
    keep: bool = False,
    final: bool = False,
) -> Gathered:
    """Walk back from each loss in turn to its own leaves, its cuts and `parameters`.

    `overlap`: the losses share graph nodes on that way, so only the last walk may free them. `keep`: the graph
    is needed again afterwards.
    """
    values = loss_values(losses)
    last = next(loss for loss in reversed(losses) if loss is not None)
    own, cuts, finite = [], [], []
    probed = ParameterRows(parameters, len(losses))
    for task, (loss, reach) in enumerate(zip(losses, reaches, strict=True)):
        leaves, edges = list(reach.leaves.values()), list(reach.cuts.values())
        targets = [*(cut.edge for cut in edges), *leaves, *parameters]
        gradients: Sequence[Tensor | None] = [None] * len(targets)
        if loss is not None and targets:
            nested = len(edges) > 1
            walk = partial(
                torch.autograd.grad,
                loss,
                grad_outputs=None if scale is None else scale.to(loss.dtype).reshape(loss.shape),
                retain_graph=keep or nested or (overlap and loss is not last),
                allow_unused=True,
            )
            at_cuts = [cut.tensor() for cut in edges]
            unheld = edges if None in at_cuts else []
            with asleep([*at_cuts, *leaves, *parameters]):
                with _stopped_at(edges if nested else []), _before_hooks(loss, unheld) as arrived:
                    gradients = walk(targets)
                if nested and parameters:  # they lie below the cuts, where nothing has arrived
                    gradients = [*gradients[: -len(parameters)], *walk(parameters)]
            if unheld:
                gradients = [*(arrived.get(id(cut)) for cut in edges), *gradients[len(edges) :]]
        pairs = zip([*edges, *leaves], gradients, strict=False)
        reached = [(target, gradient) for target, gradient in pairs if gradient is not None]
        cuts.append([(target, g) for target, g in reached if isinstance(target, Cut)])
        own.append([(target, g) for target, g in reached if isinstance(target, Tensor)])
        probed.take([task], gradients[len(edges) + len(leaves) :])
        finite.append(all_finite([gradient for _, gradient in reached], values))
    labelled = has_labels([loss is not None for loss in losses], masks, values.device)
    ok = torch.stack(finite) & probed.finite(values)
    return Gathered(values, labelled, ok & is_finite(values), scale, masks, own, cuts, probed.flat, parameters, final)


@contextmanager
def _before_hooks(loss: Tensor, cuts: Sequence[Cut]) -> Iterator[dict[int, Tensor]]:
    """What arrives at these cuts inside, by their ids, before a hook there changes it.

    The hooks of a tensor that nobody holds cannot be put to sleep; they are going to act on what is delivered.
    """
    arrived: dict[int, Tensor] = {}

    def taking(inputs: Sequence[tuple[int, Cut]]) -> Callable[..., None]:
        def take(gradients: tuple[Tensor | None, ...], outputs: object) -> None:
            for place, cut in inputs:
                if (gradient := gradients[place]) is not None:
                    arrived[id(cut)] = arrived[id(cut)] + gradient if id(cut) in arrived else gradient

        return take

    hooks = [node.register_hook(taking(inputs)) for node, inputs in entries(loss, cuts)] if cuts else []
    try:
        yield arrived
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _stopped_at(cuts: Sequence[Cut]) -> Iterator[None]:
    """Gradients that arrive at a cut go no further.

    Of two cuts, one may lie below the other (a pyramid, a recurrent trunk). What the lower one gets through the upper
    one is sent down later with the upper one's share; without this it would be counted twice.
    """
    hooks = [cut.edge.node.register_prehook(_nothing) for cut in cuts if cut.edge is not None]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _nothing(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    return tuple(None if gradient is None else torch.zeros_like(gradient) for gradient in gradients)
