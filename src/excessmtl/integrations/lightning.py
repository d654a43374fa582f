"""Lightning: `BalancedModule` for automatic and manual optimisation, and a callback that logs every task."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from excessmtl.balancer import At, Balancer
from excessmtl.graph.inputs import Losses
from excessmtl.integrations.scalar import balancer_of, divided, step_taken
from excessmtl.step.result import Step
from excessmtl.step.run import weighted_losses


class BalancedModule(LightningModule):
    """A LightningModule whose backward pass is that of `self.balancer`, which its `__init__` makes.

    Automatic optimisation: `return self.balanced_loss(losses)` in `training_step`. Manual optimisation:
    `self.balanced_backward(losses)` in place of `self.manual_backward(sum(losses.values()))`. Both go with every
    precision, with several processes, and with micro-batches. The balancer is a submodule, so checkpoints hold its
    state. As a mixin: `class Mine(BalancedModule, YourModule)`.
    """

    balancer: Balancer
    _waiting: tuple[Losses | Tensor, dict[str, Any]] | None = None
    """What the next backward pass is about."""

    def balanced_loss(self, losses: Losses | Tensor, at: At | None = None, **inputs: Any) -> Tensor:
        """What `training_step` returns: the sum of the losses with the weights last decided.

        Arguments as for `balancer.backward`. Trainer's `accumulate_grad_batches` is taken care of. In `validation_step`
        it is the plain sum: checkpoints are chosen by it, and weights move.
        """
        training = torch.is_grad_enabled() and self.training
        if training:
            self._waiting = losses, {"at": at, **inputs}
        return weighted_losses(balancer_of(self.balancer), losses, inputs.get("mask"), equal=not training)

    def balanced_backward(
        self, losses: Losses | Tensor, at: At | None = None, *, accumulate: bool = False, **inputs: Any
    ) -> Step:
        """The balancer's step, under manual optimisation. `accumulate`: True for all micro-batches but the last.

        Divide the losses by the number of micro-batches as usual.
        """
        self.manual_backward(self.balanced_loss(losses, at, accumulate=accumulate, **inputs))
        return step_taken(self.balancer)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Lightning's hook in place of `loss.backward()`."""
        if self._waiting is None:
            super().backward(loss, *args, **kwargs)
            return
        (losses, inputs), self._waiting = self._waiting, None
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if self.automatic_optimization and (count := self.trainer.accumulate_grad_batches) > 1:
            inputs["accumulate"] = (
                bool((self.trainer.fit_loop.batch_idx + 1) % count) and not self.trainer.is_last_batch
            )
            losses = divided(losses, count)
        balancer_of(self.balancer).backward(losses, scaler=scaler, **inputs)


class BalancerLog(Callback):
    """Logs weights, losses and excess risks of every task, every `log_every_n_steps` of the trainer.

    It also tells the balancer when an epoch is over, for methods that count epochs.
    """

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After every batch."""
        for prefix, balancer in _balancers(pl_module):
            step = balancer.last_step
            if step is not None and trainer.global_step % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
                pl_module.log_dict({prefix + name: value for name, value in step.to_dict().items()})

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """After every epoch."""
        for _, balancer in _balancers(pl_module):
            balancer.end_epoch()


def _balancers(module: LightningModule) -> list[tuple[str, Balancer]]:
    """The balancers of a module, with a prefix for their numbers where there are several."""
    balancers = [(name, balancer) for name, balancer in module.named_modules() if isinstance(balancer, Balancer)]
    return [("", balancers[0][1])] if len(balancers) == 1 else [(f"{name}/", balancer) for name, balancer in balancers]
