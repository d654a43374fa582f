"""For trainers with one matrix of predictions and one of labels, both [batch, tasks], as recommenders have them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy

from excessmtl.balancer import Balancer
from excessmtl.integrations.scalar import as_loss
from excessmtl.losses.missing_labels import Loss, by_task
from excessmtl.multi_task_loss import MultiTaskLoss

_CERTAIN = 1e-7
"""Probabilities nearer to 0 or 1 count as this near: in single precision their logits would be infinite."""
LossesAndMasks = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Task -> loss, and task -> which samples carry a label."""


class MatrixLoss:
    """A loss `criterion(y_pred, y)` of two matrices [batch, tasks], whose `.backward()` is the balancer's step.

    It takes the place of the loss function of a trainer: `loss = criterion(model(x), y)` in a loop of your own,
    `model.compile(optimizer, loss=criterion)` in DeepCTR-Torch, `trainer.loss_fns = criterion.per_task()` in
    torch-rechub. NaN in `y` marks a missing label. `balancer.last_step` has the step; the trainer does not save the
    balancer, so keep the `state_dict()` of the first argument beside the model.

    Args:
        balancer: a `MultiTaskLoss`, which has a robust loss for each task; or a balancer, and `loss`. Its tasks are
            the columns, in order.
        loss: beside a balancer, of one column: a loss of `torch.nn.functional` or a function that does not reduce. Or
            one per task, as a list in order or a dict. The default takes probabilities.
        columns: the modules whose outputs the model concatenates to `y_pred`, in order. In autograd's graph every
            column of a concatenation leads to every head; with `columns` each task leads to its own head alone. Not
            needed where one layer computes all columns.
        probabilities: beside a `MultiTaskLoss`: whether the model returns probabilities for tasks of kind "binary", as
            such models do. False: logits.
    """

    def __init__(
        self,
        balancer: Balancer | MultiTaskLoss,
        loss: Loss | Sequence[Loss] | Mapping[str, Loss] = binary_cross_entropy,
        columns: Iterable[nn.Module] | None = None,
        probabilities: bool = True,
    ) -> None:
        tasks = balancer.tasks
        self._criterion = balancer if isinstance(balancer, MultiTaskLoss) else None
        if self._criterion is not None:
            _check_criterion(self._criterion, loss)
        modules = None if columns is None else list(columns)
        for argument, given in (("loss", loss), ("columns", modules)):
            if isinstance(given, Sequence) and len(given) != len(tasks):
                raise ValueError(f"{argument} must have one entry per task, {len(tasks)}, found {len(given)}")
        self.balancer = balancer.balancer if isinstance(balancer, MultiTaskLoss) else balancer
        self.probabilities = probabilities
        self.loss = dict(zip(tasks, loss, strict=True)) if isinstance(loss, Sequence) else loss
        self._columns: dict[str, Tensor] | None = None if modules is None else {}
        for task, module in zip(tasks, modules or [], strict=False):
            module.register_forward_hook(partial(self._keep, task))

    def __call__(self, outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        """The sum over the tasks of the mean loss of a sample; with `reduction="sum"`, times the samples."""
        if reduction not in ("mean", "sum"):
            raise ValueError(f'reduction must be "mean" or "sum", found {reduction!r}')
        shape = (len(targets), len(self.balancer.tasks))
        for argument, given in (("y_pred", outputs.shape), ("y", targets.shape)):
            if given != shape:
                raise ValueError(f"{argument} must be [batch, tasks], here {list(shape)}, found {list(given)}")
        losses, mask = self._losses(self.balancer.tasks, outputs.unbind(1), targets.unbind(1))
        scalar = as_loss(self.balancer, losses, mask=mask)
        return scalar * len(outputs) if reduction == "sum" else scalar

    def per_task(self) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """A loss function per task, for a trainer that calls one after the other and adds up what they return.

        Each returns the loss of its task. The backward of the last one is the step of all of them.
        """
        computed: LossesAndMasks = {}, {}
        return [partial(self._one, computed, position) for position in range(len(self.balancer.tasks))]

    def _one(self, computed: LossesAndMasks, position: int, output: Tensor, target: Tensor) -> Tensor:
        tasks, (losses, masks) = self.balancer.tasks, computed
        if position == 0:
            losses.clear()
            masks.clear()
        if len(losses) != position:
            raise ValueError(f"call the losses in the order of tasks {list(tasks)}, all of them for every batch")
        # Once for every batch: robust losses learn from what they are called with.
        for collected, new in zip(computed, self._losses([tasks[position]], [output], [target]), strict=True):
            collected.update(new)
        value = losses[tasks[position]].detach()
        if len(losses) < len(tasks):
            return value
        step = as_loss(self.balancer, dict(losses), mask=dict(masks))
        losses.clear()
        masks.clear()
        return value + (step - step.detach())  # the value of this task, the gradient of all

    def _losses(self, tasks: Sequence[str], outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> LossesAndMasks:
        """Task -> loss, and task -> which samples carry a label."""
        columns = dict(zip(tasks, outputs, strict=True))
        if self._columns is not None and torch.is_grad_enabled():
            columns = self._own_columns(columns)
        if self._criterion is not None:
            return self._criterion.by_task(self._logits(columns), dict(zip(tasks, targets, strict=True)), tasks=tasks)
        labels = {task: target.to(columns[task].dtype) for task, target in zip(tasks, targets, strict=True)}
        with nullcontext() if self.balancer.training and torch.is_grad_enabled() else self._evaluating():
            own = {task: self.loss[task] for task in tasks} if isinstance(self.loss, Mapping) else self.loss
            return by_task(columns, labels, tasks, own)

    def _logits(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the losses of a `MultiTaskLoss` take."""
        assert self._criterion is not None
        kinds = self._criterion.kinds if self.probabilities else {}
        return {
            task: output.float().logit(_CERTAIN) if kinds.get(task) == "binary" else output
            for task, output in columns.items()
        }

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Inside, losses that learn from what they are called with do not: the trainer does not know of their mode."""
        losses = self.loss.values() if isinstance(self.loss, Mapping) else [self.loss]
        learning = [loss for loss in losses if isinstance(loss, nn.Module) and loss.training]
        for loss in learning:
            loss.eval()
        try:
            yield
        finally:
            for loss in learning:
                loss.train()

    def _keep(self, task: str, module: nn.Module, inputs: Any, output: Tensor) -> None:
        """A forward hook: what a module of `columns` has returned."""
        assert self._columns is not None
        self._columns[task] = output

    def _own_columns(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What `columns` returned in the forward that these outputs come from."""
        assert self._columns is not None
        kept = {task: self._columns.pop(task) for task in outputs if task in self._columns}
        if len(kept) < len(outputs) or not _lead_to(outputs.values(), kept.values()):
            raise ValueError(
                "y_pred is not made of what the modules in columns returned last; pass the modules whose outputs are "
                "concatenated, and compute the loss before the next forward"
            )
        return {task: kept[task].reshape(output.shape) for task, output in outputs.items()}


def _check_criterion(criterion: MultiTaskLoss, loss: object) -> None:
    if loss is not binary_cross_entropy:
        raise ValueError("loss is not used beside a MultiTaskLoss, which has one for each task; leave it out")
    for task, kind in criterion.kinds.items():
        if kind == "classification":
            raise ValueError(
                f"task {task!r} is of kind 'classification', whose loss takes an output per class, and y_pred has "
                "one column per task; use criterion(outputs, targets) without MatrixLoss"
            )


def _lead_to(outputs: Iterable[Tensor], columns: Iterable[Tensor]) -> bool:
    """Whether the graph of the outputs leads to all columns. Nearest nodes first: few are visited."""
    missing = {column.grad_fn for column in columns}
    waiting = deque(output.grad_fn for output in outputs)
    seen = set(waiting)
    while waiting and missing:
        node = waiting.popleft()
        missing.discard(node)
        children = {child for child, _ in node.next_functions} - seen if node is not None else set()
        seen |= children
        waiting += children
    return not missing
