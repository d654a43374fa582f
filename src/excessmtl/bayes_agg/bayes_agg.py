"""BayesAgg-MTL: each task's gradient by the representation, weighted by how sure its last layer is of it."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear, mse_loss

from excessmtl.bayes_agg import inputs, last_layer
from excessmtl.bayes_agg.last_layer import Evidence, Kind, Moments
from excessmtl.losses.missing_labels import masked_mean
from excessmtl.step.host_state import check_keys, decoded, encoded
from excessmtl.step.result import Step
from excessmtl.tensors import autocast_disabled, magnitude, usable
from excessmtl.torch_private import buffers_of
from excessmtl.warn import warn

_POWER = {"regression": 0.3, "binary": 0.1, "classification": 0.1}
_LOSS: dict[str, Callable[..., Tensor]] = {
    "regression": mse_loss,
    "binary": binary_cross_entropy_with_logits,
    "classification": cross_entropy,
}
_STATISTICS = ("precision", "information", "new_precision", "new_information")
_VERSION = 1
_MANY_STEPS = 10_000
"""Without an `end_epoch`: somebody has forgotten it."""


class _Seen(NamedTuple):
    """One task in one step."""

    loss: Tensor
    """With a graph to the head; zero where the task is left out."""
    value: Tensor
    """Of the loss, as it came."""
    labelled: Tensor
    """[samples]: which have a label; none where the task is left out."""
    left_out: Tensor
    """Whether it has labels, and something about it is not finite."""
    new: Evidence
    gradient: Moments


class BayesAgg(nn.Module):
    """BayesAgg-MTL of Achituve et al., ICML 2024, https://arxiv.org/abs/2402.04005, for linear heads on one vector z.

    The last layer of every task has a Gaussian posterior: from the samples of the epoch before and those of the batch.
    It makes the gradient of each sample's loss by z a random vector, whose mean and variance are known for regression
    and sampled for classification. The trunk gets, per sample and per feature,
        sum_k a_k E[g_k],   a_k in proportion to Var(g_k)^-power
    and the heads the gradients of their own mean losses (squared error, or cross-entropy). As the rule needs the labels
    of every sample, it is no method of `excessmtl.create`: `backward` takes z and the targets in place of losses.

    Until `end_epoch` has been called `warmup_epochs` times all tasks count alike, and the step is that of the sum of
    the losses: the authors start in this way, too. Ours: what an epoch says of the last layers is summed up step by
    step, where the authors keep all representations and expand the losses of classifications around the weights at the
    end of the epoch; a last layer for regression has a bias if the head has one; and tasks may lack labels. A task
    whose loss or gradient is not finite is left out of the step, as a balancer does: see `step.skipped`.

    Args:
        heads: Task -> its last layer, an `nn.Linear` on z.
        kinds: "regression", "binary" (one or more outputs that are yes or no) or "classification", for all tasks or as
            a dict from task to kind.
        prior_variance: Of the weights, before any data.
        power: s, how much the variance counts: 0 is equal weights, 1 the weights of Bayes' rule. Default: 0.3 for
            regression and 0.1 for the others. The authors have 0.1 for one multi-class data set and 0.0005, next to
            equal weights, for their binary tasks.
        samples: How many draws of a last layer for the kinds that are sampled.
        warmup_epochs: After how many epochs the posteriors count.
        scale: What the weights of a sample sum to: the number of its tasks ("sum"), or 1 ("mean").

    The memory and the time of a "classification" grow with the square and the cube of classes times features; more than
    8,192 of them are refused. Under DDP every process keeps statistics of its own samples.

    Example:
        >>> bayes = BayesAgg(model.heads, {"price": "regression", "churn": "binary"})
        >>> step = bayes.backward(model.encoder(x), {"price": price, "churn": churn})
        >>> bayes.end_epoch()
    """

    weights: Tensor

    def __init__(
        self,
        heads: Mapping[str, nn.Module] | nn.ModuleDict,
        kinds: Kind | Mapping[str, Kind],
        *,
        prior_variance: float = 0.005,
        power: float | None = None,
        samples: int = 512,
        warmup_epochs: int = 1,
        scale: Literal["sum", "mean"] = "sum",
    ) -> None:
        super().__init__()
        # A dict: the heads belong to the model, and neither move nor are saved with this module.
        self._heads: dict[str, Any] = dict(heads.items())
        self.tasks = tuple(self._heads)
        self.kinds = inputs.kinds_of(self._heads, kinds)
        if not 0 < prior_variance < float("inf"):
            raise ValueError(f"prior_variance must be positive and finite, found {prior_variance}")
        if power is not None and not 0 <= power < float("inf"):
            raise ValueError(f"power must be at least 0 and finite, found {power}")
        for name, value, least in (("samples", samples, 2), ("warmup_epochs", warmup_epochs, 0)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number, at least {least}, found {value!r}")
        if scale not in ("sum", "mean"):
            raise ValueError(f'scale must be "sum" or "mean", found {scale!r}')
        self.prior_variance, self.samples, self.warmup_epochs = prior_variance, samples, warmup_epochs
        self.scale, self.steps, self.epochs = scale, 0, 0
        self._powers = [_POWER[kind] if power is None else power for kind in self.kinds]
        for task, (head, kind) in enumerate(zip(self._heads.values(), self.kinds, strict=True)):
            blocks, rows, n = last_layer.sizes(kind, head.out_features, head.in_features + (head.bias is not None))
            for name in _STATISTICS:
                shape = (blocks, n, n) if "precision" in name else (rows, n)
                self.register_buffer(f"{name}_{task}", torch.zeros(shape))
        self.register_buffer("weights", torch.full((len(self.tasks),), 1.0 if scale == "sum" else 1 / len(self.tasks)))
        self.to(next(iter(self._heads.values())).weight.device)

    def backward(self, z: Tensor, targets: Mapping[str, Tensor | None], *, scaler: Any = None) -> Step:
        """Add to `.grad` of the heads and of all that z was computed from.

        Args:
            z: [samples, features], the input of the heads.
            targets: Task -> labels. Regression and binary: [samples] or [samples, outputs]; a sample with NaN in any of
                its outputs has no label. Classification: [samples] whole numbers, negative where there is no label. A
                task that is missing or None has no label in this batch.
            scaler: A `torch.amp.GradScaler`; gradients are scaled by it, statistics are not.

        `step.weights` are the means of the weights over samples and features.
        """
        ready = inputs.labels(z, targets, self._heads, self.kinds)
        if self.weights.device != z.device:
            self.to(z.device)
        x = z.detach().to(torch.promote_types(z.dtype, torch.float32))
        with autocast_disabled(x), torch.enable_grad():  # z has its graph, also where gradients are off by now
            generator = torch.Generator(x.device).manual_seed(self.steps)  # as good after a resume
            seen = {task: self._seen(task, x, *ready[task], generator) for task in sorted(ready)}
            labelled = torch.stack([one.labelled for one in seen.values()])
            shares = _shares([(one.gradient.variance, self._powers[task]) for task, one in seen.items()], labelled)
            shares = shares if self.scale == "sum" else shares / len(self.tasks)
            counts = labelled.sum(1).clamp(min=1)
            gradients = torch.stack([one.gradient.mean for one in seen.values()])
            gradients = torch.where(labelled[..., None], gradients, 0)
            dz = (shares * gradients / counts[:, None, None]).sum(0).detach()
            losses = [one.loss for one in seen.values() if one.loss.requires_grad]
            if scaler is not None:
                dz, losses = scaler.scale(dz), [scaler.scale(loss) for loss in losses]
        torch.autograd.backward([*losses, z], [*(None for _ in losses), dz.to(z.dtype)])
        return self._commit(seen, shares.mean(2).sum(1) / counts)

    def end_epoch(self) -> None:
        """Call it after every epoch: what its samples say of the last layers is what the next epoch starts from."""
        for task in range(len(self.tasks)):
            old, new = self._statistics(task), self._statistics(task, "new_")
            there = new.precision.any()  # a task without a label in the whole epoch keeps what is known
            for kept, found in zip(old, new, strict=True):
                kept.copy_(torch.where(there, found, kept))
                found.zero_()
        self.epochs += 1

    def _seen(self, place: int, z: Tensor, target: Tensor, labelled: Tensor, generator: torch.Generator) -> _Seen:
        head, kind = self._heads[self.tasks[place]], self.kinds[place]
        # A sample of z that is not finite shows in the evidence; here it would make the gradient of the head NaN.
        clean = z.nan_to_num(0, 0, 0)
        outputs = linear(clean, head.weight.to(z.dtype), None if head.bias is None else head.bias.to(z.dtype))
        x, weight = z, head.weight.detach().to(z.dtype)
        if head.bias is not None:
            x = torch.cat((z, torch.ones_like(z[:, :1])), 1)
            weight = torch.cat((weight, head.bias.detach().to(z.dtype)[:, None]), 1)
        own = torch.where(labelled[:, None], x, 0)
        new = last_layer.evidence(kind, own, weight, target)
        slopes = last_layer.slopes(kind, outputs.detach(), target)
        gradient = self._moments(place, x, weight, target, new, slopes, generator)
        value = _mean_loss(kind, outputs.detach(), target, labelled)
        mean, variance = (torch.where(labelled[:, None], moment, 0) for moment in gradient)
        ok = usable(value.abs() + magnitude(mean) + magnitude(slopes.T @ own))
        for numbers in (variance, *new):
            ok = ok & numbers.isfinite().all()
        # Not the loss times zero: that of a task that is left out may be NaN, and so would be its gradient.
        loss = _mean_loss(kind, torch.where(ok, outputs, 0), torch.where(ok, target, 0), labelled & ok)
        return _Seen(loss, value, labelled & ok, labelled.any() & ~ok, new, gradient)

    def _moments(
        self,
        place: int,
        x: Tensor,
        weight: Tensor,
        target: Tensor,
        new: Evidence,
        slopes: Tensor,
        generator: torch.Generator,
    ) -> Moments:
        """Of the gradient of each sample's loss by z."""
        kind, features = self.kinds[place], next(iter(self._heads.values())).in_features
        if self.epochs < self.warmup_epochs:
            mean = slopes @ weight[:, :features]
            return Moments(mean, torch.ones_like(mean))
        known = Evidence(*(old + more for old, more in zip(self._statistics(place), new, strict=True)))
        found = last_layer.posterior(known, self.prior_variance)
        if kind == "regression":
            return last_layer.exact_moments(found, x, target, features)
        return last_layer.sampled_moments(kind, found, x, target, features, self.samples, generator)

    def _commit(self, seen: Mapping[int, _Seen], weights: Tensor) -> Step:
        """Make the step count, now that it can no longer fail."""
        losses = self.weights.new_full((len(self.tasks),), torch.nan)
        left_out = torch.zeros_like(losses)
        with torch.no_grad():
            for place, (task, one) in enumerate(seen.items()):
                any_label = one.labelled.any()
                for total, more in zip(self._statistics(task, "new_"), one.new, strict=True):
                    total.add_(torch.where(one.left_out, 0, more))
                self.weights[task] = torch.where(any_label, weights[place], self.weights[task])
                losses[task] = torch.where(any_label | one.left_out, one.value, torch.nan)
                left_out[task] = one.left_out
        self.steps += 1
        if self.steps == _MANY_STEPS and self.epochs == 0 and self.warmup_epochs:
            warn(
                f"end_epoch has not been called in {_MANY_STEPS} steps, and all tasks still count alike; call it after "
                "every epoch"
            )
        nothing = torch.full_like(losses, torch.nan)
        return Step.of(self.tasks, torch.where(left_out > 0, 0, self.weights), losses, nothing, left_out)

    def _statistics(self, task: int, which: str = "") -> Evidence:
        """Of the epoch before, or ("new_") of this one."""
        return Evidence(getattr(self, f"{which}precision_{task}"), getattr(self, f"{which}information_{task}"))

    def get_extra_state(self) -> Tensor:
        """What is not a buffer, as a tensor of bytes."""
        plain = {"version": _VERSION, "tasks": list(self.tasks), "kinds": list(self.kinds), "options": self._options()}
        epochs = f"{self.epochs:019d}"  # the length must not change: some formats load into the tensors that are there
        return encoded({**plain, "epochs": epochs}, self.steps, torch.zeros(1, dtype=torch.uint8))

    def set_extra_state(self, state: Tensor) -> None:
        """Takes the counters from a state."""
        found = decoded(state)
        self.steps, self.epochs = found["steps"], int(found["epochs"])

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """A state of something else is refused, and nothing changes."""
        if strict:
            check_keys(self, state_dict)
        return super().load_state_dict(state_dict, strict, assign)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """The same as part of a model's state; what has never been there is reported as missing keys."""
        if prefix:
            check_keys(self, state_dict, prefix)
        if not prefix or any(key.startswith(prefix) for key in state_dict):
            self._check(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)
        for name, buffer in list(buffers_of(self).items()):
            if buffer is state_dict.get(prefix + name):  # `assign=True`, and the next step would change it
                setattr(self, name, buffer.clone())

    def _options(self) -> dict[str, Any]:
        names = ("prior_variance", "samples", "warmup_epochs", "scale")
        return {**{name: getattr(self, name) for name in names}, "power": self._powers}

    def _check(self, state_dict: Mapping[str, Any], prefix: str) -> None:
        found = decoded(state_dict.get(prefix + "_extra_state"))
        expected = {"tasks": list(self.tasks), "kinds": list(self.kinds), "version": _VERSION}
        saved = {name: found.get(name) for name in expected}
        if "options" in found:  # states of older releases do not have them
            expected, saved = {**expected, **self._options()}, {**saved, **dict(found["options"])}
        for name, mine in expected.items():
            if saved.get(name) != mine:
                raise ValueError(f"state has {name} {saved.get(name)!r}, this BayesAgg has {mine!r}; make one like it")
        steps, epochs = found.get("steps"), found.get("epochs")
        if type(steps) is not int or steps < 0 or not (isinstance(epochs, str) and epochs.isdecimal()):
            raise ValueError(f"state has steps={steps!r} and epochs={epochs!r}, which are no counts; it is damaged")
        for name, buffer in self.named_buffers():
            value = state_dict.get(prefix + name)
            if (
                not isinstance(value, Tensor)
                or value.is_meta
                or (value.shape, value.dtype) != (buffer.shape, buffer.dtype)
            ):
                raise ValueError(
                    f"state does not fit: {name} must have shape {tuple(buffer.shape)} and type {buffer.dtype}; use "
                    "the same heads"
                )
            if not value.isfinite().all():
                raise ValueError(f"state has NaN or inf in {name}, which no training leaves there; it is damaged")

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in buffers_of(self):  # the buffers change in place; what was saved must not
            destination[prefix + name] = destination[prefix + name].clone()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # `.half()` on a model that owns this module must move its state, not round it.
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return self


def _mean_loss(kind: Kind, outputs: Tensor, target: Tensor, labelled: Tensor) -> Tensor:
    """Over the samples with a label; 0 where there is none."""
    entries = _LOSS[kind](outputs, target, reduction="none")
    mask = labelled if entries.ndim == 1 else labelled[:, None].expand_as(entries)
    return masked_mean(entries, mask, tuple(range(entries.ndim)))


def _shares(variances: list[tuple[Tensor, float]], labelled: Tensor) -> Tensor:
    """[tasks, samples, features] in proportion to variance^-power, sum: the number of tasks the sample has labels for.

    The variances come with the power of their task. Samples without a label have zeros.
    """
    smallest = torch.finfo(torch.float32).tiny
    scores = torch.stack([-power * variance.clamp(min=smallest).log() for variance, power in variances])
    known = labelled[..., None]
    shares = torch.where(known, scores, -torch.inf).softmax(0)
    return torch.where(known, shares, 0) * known.sum(0)
