"""Putting the combined gradient where training expects it: into `.grad`, or behind a scalar."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from excessmtl.distributed.processes import processes
from excessmtl.gradients.second_backward import deferred_second_backward, second_backward
from excessmtl.gradients.task_gradients import Contribution
from excessmtl.graph.nodes import leaves_among, nodes_below
from excessmtl.graph.plan import Plan
from excessmtl.graph.representation import Representation
from excessmtl.torch_private import accumulate, hooks_disabled

_gradient = attrgetter("grad")


def deliver(parts: list[Contribution], plan: Plan) -> None:
    """Add all contributions to `.grad` in one backward pass, which passes the trunk below the representations once.

    `parts` is emptied: a gradient that nobody else holds becomes `.grad` without a copy. Where a hook raises, or memory
    runs out, in the middle of it, gradients that were None are None again.
    """
    touched = [target for target, _ in parts if isinstance(target, Tensor)]
    without_gradient = _reached_without_gradient(touched, plan)
    touched += plan.inputs.all_parameters
    before = list(map(_gradient, touched))
    try:
        if plan.second_backward:
            second_backward(parts, plan)
        else:
            _add_to_grad(parts, without_gradient)
    except BaseException as error:
        without = [leaf for leaf, gradient in zip(touched, before, strict=True) if gradient is None]
        for leaf in without:
            leaf.grad = None
        # Leaves below z that are not in `shared` are looked for now: what they held before is not known.
        known = set(map(id, touched))
        others = [leaf for leaf in leaves_among(nodes_below(plan.representations)) if id(leaf) not in known]
        if len(without) < len(touched) or any(leaf.grad is not None for leaf in others):
            error.add_note(
                "The balancer's state is as it was before this step, but part of the step may have been added to "
                "gradients that were there already, or that are not of shared parameters or heads: zero the gradients "
                "before going on."
            )
        raise


def _reached_without_gradient(served: Sequence[Tensor], plan: Plan) -> list[Tensor]:
    """Leaves that the losses reach and that get no gradient in this step.

    Autograd passes them all the same, and `DistributedDataParallel(find_unused_parameters=True)` waits for that.
    """
    if not plan.inputs.distributed or processes() == 1:
        return []
    known = set(map(id, served))
    return [leaf for leaf in plan.own_leaves if id(leaf) not in known]


def _add_to_grad(parts: list[Contribution], without_gradient: Sequence[Tensor]) -> None:
    """Leaves go through autograd as well, not by hand.

    Whatever hooks a trainer has put on them, to average gradients over processes for instance, run as they would under
    `loss.backward()`.
    """
    roots: list[Any] = [target.edge for target, _ in parts if isinstance(target, Representation)]
    at_roots = [gradient for target, gradient in parts if isinstance(target, Representation)]
    leaves = [target for target, _ in parts if isinstance(target, Tensor)]
    at_leaves = [gradient for target, gradient in parts if isinstance(target, Tensor)]
    parts.clear()
    leaves += without_gradient
    if leaves:
        nothing = torch.empty((), device=leaves[0].device)  # neither its value nor its gradient matters
        apply: Callable[..., Tensor] = _Delivery.apply
        with torch.enable_grad():
            roots.append(apply(nothing, None, at_leaves, *leaves))
        del at_leaves
        at_roots.append(nothing)
    if roots:
        accumulate(tuple(roots), tuple(at_roots))


def deferred(value: Tensor, parts: Sequence[Contribution], plan: Plan) -> Tensor:
    """A scalar worth `value`; its backward adds the contributions, times the gradient it is given."""
    scale = plan.inputs.scale
    unscale = 1.0 if scale is None else 1.0 / scale
    if plan.second_backward:
        return deferred_second_backward(value, unscale, parts, plan)
    if not parts:  # everything waits for the last micro-batch
        first = plan.inputs.parameters[0]
        parts = [(first, torch.zeros_like(first))]
    targets = [target.tensor() if isinstance(target, Representation) else target for target, _ in parts]
    if any(target is None for target in targets):  # a representation that nobody holds any more
        parts = _at_leaves(parts)
        targets = [target for target, _ in parts if isinstance(target, Tensor)]
    apply: Callable[..., Tensor] = _Delivery.apply
    without_gradient = _reached_without_gradient([target for target, _ in parts if isinstance(target, Tensor)], plan)
    with torch.enable_grad():
        return apply(value, unscale, [gradient for _, gradient in parts], *targets, *without_gradient)


class _Delivery(torch.autograd.Function):
    """A scalar whose backward delivers gradients computed beforehand, times what it is given.

    Where `unscale` is None they are delivered as they are, once.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, unscale: Tensor | float | None, gradients: Any, *targets: Tensor) -> Tensor:
        ctx.unscale, ctx.gradients, ctx.targets = unscale, gradients, len(targets)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        if ctx.unscale is None:
            gradients, ctx.gradients = ctx.gradients, None
        else:
            factor = outputs[0] * ctx.unscale
            gradients = [(gradient * factor).to(gradient.dtype) for gradient in ctx.gradients]
        return None, None, None, *gradients, *(None for _ in range(ctx.targets - len(gradients)))


def _at_leaves(parts: Sequence[Contribution]) -> list[Contribution]:
    """The same contributions after a backward pass through the trunk."""
    above = [(target, gradient) for target, gradient in parts if isinstance(target, Representation)]
    leaves = leaves_among(nodes_below([z for z, _ in above]))
    edges: list[Any] = [z.edge for z, _ in above]
    with hooks_disabled(leaves):
        gradients = torch.autograd.grad(edges, leaves, [gradient for _, gradient in above], allow_unused=True)
    below = [(leaf, gradient) for leaf, gradient in zip(leaves, gradients, strict=True) if gradient is not None]
    return [*below, *(part for part in parts if isinstance(part[0], Tensor))]
