"""Weights before gradients: one backward pass for all tasks together.

Applies to steps that need nothing but the weights where no representation is known, so that tasks cannot be told apart
on the way. Where the result is not finite, one host read tells, and a backward pass per task finds whose fault it is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from excessmtl.gradients.task_gradients import Contribution, Gates, TaskGradients
from excessmtl.graph.nodes import nodes_of, one_head_for_all
from excessmtl.graph.plan import Plan
from excessmtl.tensors import magnitude, stored_entries, usable
from excessmtl.torch_private import hooks_disabled, repeatable


class NotFinite(Exception):
    """The gradient of all tasks together cannot be used: it must be computed task by task."""


@dataclass
class WeightsFirst(TaskGradients):
    """Gradients that are only computed when their weights are known: until then there are none.

    The graph is kept until the caller drops the losses: the tasks may have to be passed one by one afterwards.
    """

    plan: Plan | None = None

    def _combined(self, weights: Tensor, own: Tensor | None, gates: Gates | None) -> list[Contribution]:
        # `NotFinite` where the sum is not, or where it is hidden which leaf is whose.
        plan = self.plan
        assert plan is not None
        if own is None and (plan.heads_compiled or one_head_for_all(plan.leaves)):
            raise NotFinite
        common: dict[int, Tensor] = {id(parameter): parameter for parameter in plan.inputs.parameters}
        owned: dict[int, Tensor] = {}
        for reach in plan.reaches:
            for key, leaf in reach.leaves.items():
                if own is not None or key in owned:  # weighted like the shared ones, or shared in all but name
                    common[key] = leaf
                    owned.pop(key, None)
                elif key not in common:
                    owned[key] = leaf
        parts = self._backward(list(common.values()), weights * self.ok)
        if owned:
            parts += self._backward(list(owned.values()), self.ok.to(weights.dtype))
        sizes = [magnitude(stored_entries(gradient)) for _, gradient in parts]
        unusable = (~usable(torch.stack(sizes).sum())).float() if sizes else torch.zeros(())
        # All processes go on task by task, or none: what follows are sums over all of them.
        if bool(plan.inputs.reduction(unusable) > 0):
            raise NotFinite
        return parts

    def _backward(self, leaves: list[Tensor], multipliers: Tensor) -> list[Contribution]:
        roots, outputs = [], []
        for loss, multiplier in zip(self.losses, multipliers, strict=True):
            if loss is not None:
                output = multiplier if self.scale is None else multiplier * self.scale
                roots.append(loss)
                outputs.append(output.to(loss.dtype).reshape(loss.shape))
        with hooks_disabled(leaves), repeatable(nodes_of(roots)):
            gradients = torch.autograd.grad(roots, leaves, outputs, retain_graph=True, allow_unused=True)
        # Copies: two leaves may have been given one and the same tensor.
        return [(leaf, g.clone()) for leaf, g in zip(leaves, gradients, strict=True) if g is not None]
