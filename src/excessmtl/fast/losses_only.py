"""One backward pass for all tasks together.

Applies to steps that need nothing but the weights where no representation is known, so that tasks cannot be told apart
on the way. Where the result is not finite, one host read tells, and the reference finds out whose fault it is.
"""

from typing import Any

import torch
from torch import Tensor

from excessmtl.engine.graph import nodes_of, one_head_for_all
from excessmtl.engine.plan import Plan
from excessmtl.engine.private_torch import hooks_disabled, repeatable
from excessmtl.engine.task_gradients import Contribution, Gates, PerTask
from excessmtl.engine.tensors import magnitude, usable


class OneBackward(PerTask):
    """Gradients that are only computed when their weights are known: until then there are none.

    The graph is kept until the caller drops the losses: the tasks may have to be passed one by one afterwards.
    """

    def __init__(self, plan: Plan) -> None:
        losses = plan.call.losses
        nothing: list[list[Any]] = [[] for _ in losses]
        super().__init__(next(loss.device for loss in losses if loss is not None), nothing, nothing)
        self.plan = plan
        self._ok = torch.ones(())

    def zero_unless(self, ok: Tensor) -> None:
        """Leave out the tasks that are not `ok` [m]."""
        self._ok = ok

    def weighted_sum(  # type: ignore[override]  # None is an answer of every HeadGradients
        self, weights: Tensor, own: Tensor | None, gates: Gates | None
    ) -> list[Contribution] | None:
        """The combined gradient; None where it is not finite, or where it is hidden which leaf is whose."""
        if own is None and (self.plan.heads_compiled or one_head_for_all(self.plan.leaves)):
            return None
        common: dict[int, Tensor] = {id(parameter): parameter for parameter in self.plan.call.parameters}
        owned: dict[int, Tensor] = {}
        for reach in self.plan.reaches:
            for key, leaf in reach.leaves.items():
                if own is not None or key in owned:  # weighted like the shared ones, or shared in all but name
                    common[key] = leaf
                    owned.pop(key, None)
                elif key not in common:
                    owned[key] = leaf
        parts = self._backward(list(common.values()), weights * self._ok)
        if owned:
            parts += self._backward(list(owned.values()), self._ok.to(weights.dtype))
        sizes = [magnitude(gradient.coalesce().values() if gradient.is_sparse else gradient) for _, gradient in parts]
        unusable = (~usable(torch.stack(sizes).sum())).float() if sizes else torch.zeros(())
        # All processes go on task by task, or none: what follows are sums over all of them.
        return None if bool(self.plan.call.reduction(unusable) > 0) else parts

    def _backward(self, leaves: list[Tensor], multipliers: Tensor) -> list[Contribution]:
        roots, outputs, scale = [], [], self.plan.call.scale
        for loss, multiplier in zip(self.plan.call.losses, multipliers, strict=True):
            if loss is not None:
                output = multiplier if scale is None else multiplier * scale
                roots.append(loss)
                outputs.append(output.to(loss.dtype).reshape(loss.shape))
        with hooks_disabled(leaves), repeatable(nodes_of(roots)):
            gradients = torch.autograd.grad(roots, leaves, outputs, retain_graph=True, allow_unused=True)
        # Copies: two leaves may have been given one and the same tensor.
        return [(leaf, g.clone()) for leaf, g in zip(leaves, gradients, strict=True) if g is not None]
