"""Hugging Face: `BalancedTrainer`, a `Trainer` for models that return a dict of losses."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from excessmtl.balancer import Balancer
from excessmtl.integrations.scalar import as_loss, balancer_of
from excessmtl.step.run import weighted_losses
from excessmtl.warn import warn

FILE = "balancer.pt"
"""The balancer's state, in every checkpoint folder."""


class BalancedTrainer(Trainer):
    """A `Trainer` whose backward pass is that of a balancer.

    The model returns a dict (or `ModelOutput`) whose entry "losses" is a dict from task to scalar loss, None for a task
    without labels in the batch; an entry "mask" may say which samples carry a label. Every log of the training loss has
    the weights and losses of all tasks, every checkpoint the balancer's state, which `resume_from_checkpoint` restores.

    In evaluation `eval_loss` is the plain sum of the losses: `load_best_model_at_end` compares it between checkpoints,
    and weights move. `eval_weighted_loss` is the sum with the weights last decided.

    Args:
        balancer: made with the part of `model` that all tasks share.
        args, kwargs: those of `Trainer`.
    """

    def __init__(self, *args: Any, balancer: Balancer, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.balancer, self._saved = balancer_of(balancer), balancer
        self._weighted: list[Tensor] | None = None
        """During an evaluation: the weighted losses so far, one for each sample."""
        # Losses are means over a micro-batch: the Trainer divides their sum by the number of micro-batches.
        self.model_accepts_loss_kwargs = False
        self.loss_is_scaled_for_ga = False
        self.add_callback(_Checkpoints(self.balancer, balancer))

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The scalar whose backward is the balancer's step; without gradients, the plain sum of the losses."""
        outputs = model(**inputs)
        if not isinstance(outputs, Mapping) or not isinstance(outputs.get("losses"), Mapping):
            raise ValueError(
                'the model must return a dict with an entry "losses", a dict from task to scalar loss, found '
                f"{list(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__}"
            )
        losses, mask = outputs["losses"], outputs.get("mask")
        if torch.is_grad_enabled():
            loss = as_loss(
                self.balancer,
                losses,
                mask=mask,
                accumulate=not self.accelerator.sync_gradients,
                micro_batches=getattr(self, "current_gradient_accumulation_steps", 1),
                multiplied=self.accelerator.scaler is not None,
            )
        else:
            loss = weighted_losses(self.balancer, losses, mask, equal=True)
            if self._weighted is not None:  # as the Trainer collects `loss`
                weighted = weighted_losses(self.balancer, losses, mask)
                self._weighted.append(self.gather_function(weighted.repeat(self.args.eval_batch_size)))
        others = {name: value for name, value in outputs.items() if name not in ("losses", "mask")}
        return (loss, others) if return_outputs else loss

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> Any:
        """As that of `Trainer`, with the weighted loss beside the plain one."""
        self._weighted = []
        try:
            output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
            if self._weighted:
                output.metrics[f"{metric_key_prefix}_weighted_loss"] = torch.cat(self._weighted).mean().item()
        finally:
            self._weighted = None
        return output

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Weights, losses and excess risks of the last step beside the training loss."""
        if "loss" in logs and self.balancer.last_step is not None:
            logs |= self.balancer.last_step.to_dict()
        super().log(logs, *args, **kwargs)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As `Trainer.train`; the balancer resumes too."""
        chosen = resume_from_checkpoint or self.args.resume_from_checkpoint
        folder = get_last_checkpoint(self.args.output_dir) if chosen is True else chosen  # type: ignore[no-untyped-call]
        if folder:
            self._load_balancer(Path(folder) / FILE)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _load_balancer(self, file: Path) -> None:
        if not file.exists():
            warn(f"{file} is missing, so the balancer starts anew; was it written without one?")
            return
        self._saved.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))


class _Checkpoints(TrainerCallback):
    """Writes the balancer's state into every checkpoint, and tells the balancer when an epoch is over."""

    def __init__(self, balancer: Balancer, saved: nn.Module) -> None:
        self.balancer, self.saved = balancer, saved

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if args.should_save:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            torch.save(self.saved.state_dict(), folder / FILE)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.balancer.end_epoch()
