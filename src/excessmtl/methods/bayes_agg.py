"""BayesAgg-MTL: the gradient of every sample by z, weighted by how sure a Bayesian last layer is of it.

Achituve et al., ICML 2024, https://arxiv.org/abs/2402.04005. The last layer of every task has a Gaussian posterior
(`last_layer.py`), from the samples of the epoch before and those of the batch. It makes the gradient g_k of a sample's
loss by z a random vector, whose mean and variance are known for regression and sampled for classification. The trunk
gets, per sample and per feature,
    sum_k a_k E[g_k],   a_k in proportion to Var(g_k)^-power,   sum_k a_k = 1
and the heads get the gradients of their own losses. `step.weights` are the means of a_k over samples and features.

Give the last layers and their kinds as options, and the labels with every step:
    create("bayes_agg", tasks, shared, layers=model.heads, kinds={"price": "regression", "churn": "binary"})
    backward(losses, targets={"price": price, "churn": churn})
Losses are means over the labelled samples of the squared error or the cross-entropy; a factor on them is read off
their gradients. Without `layers` there is no posterior, and all tasks count alike; a warning says so.

Call `end_epoch()` after every epoch; if it is never called, `window` steps count as one. During the first
`warmup_epochs` all tasks count alike, as with the authors. Ours: what an epoch says of the last layers is summed up
step by step, where the authors keep all representations and expand the losses of classifications around the weights at
the end of the epoch; a last layer for regression has a bias if the head has one; and samples may lack labels.

The memory and the time of a "classification" grow with the square and the cube of classes times features. Several
processes that train together share one posterior; layers whose parameters are sharded (FSDP) are not supported.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Generator, Tensor, nn

from excessmtl.gradients.task_gradients import Sample
from excessmtl.graph.places import Probe
from excessmtl.methods import last_layer
from excessmtl.methods.base import Decision, Heads, Rule, State, method
from excessmtl.methods.last_layer import KINDS, Evidence, Kind, Moments
from excessmtl.methods.observation import Observation, labelled_samples
from excessmtl.warn import warn

_POWER = {"regression": 0.3, "binary": 0.1, "classification": 0.1}
_MOST = 2**26
"""Numbers in the precision of one last layer; a step holds about ten tensors of this size."""


class _Batch(NamedTuple):
    """The samples of one task on this process."""

    x: Tensor
    """[samples, inputs of the last layer]: z, and a column of ones where the layer has a bias."""
    dz: Tensor
    target: Tensor
    labelled: Tensor
    """[samples]: which have a label; none where the task takes no part."""
    weight: Tensor
    """[outputs, inputs]: the last layer as it is."""


@method("bayes_agg")
@dataclass(frozen=True)
class BayesAgg(Rule):
    """Gradients weighted per sample and per feature by the certainty of a Bayesian last layer."""

    uses_host: ClassVar[bool] = True
    probe: ClassVar[Probe] = Probe.REPRESENTATION
    per_sample: ClassVar[bool] = True
    gated: ClassVar[bool] = True
    heads: ClassVar[Heads] = "unweighted"
    uses: ClassVar[frozenset[str]] = frozenset({"targets"})

    layers: Mapping[str, nn.Linear] | None = None
    """Task -> its last layer, an nn.Linear on z. Without them all tasks count alike."""
    kinds: Kind | Mapping[str, Kind] | Sequence[Kind] = "regression"
    """"regression", "binary" (outputs that are yes or no) or "classification", for all tasks, by name or in order."""
    prior_variance: float = 0.005
    """Of the weights of a last layer, before any data."""
    power: float | None = None
    """How much the variance counts: 0 is equal weights, 1 Bayes' rule. None: 0.3 for regression, 0.1 for the others."""
    samples: int = 512
    """Draws of a last layer for the kinds that are sampled."""
    warmup_epochs: int = 1
    """After how many epochs the posteriors count."""
    window: int = 10_000
    """Steps that count as an epoch where `end_epoch` is never called."""
    seed: int = 0
    """Of the balancer's own random stream."""

    def __post_init__(self) -> None:
        if not 0 < self.prior_variance < float("inf"):
            raise ValueError(f"prior_variance must be positive and finite, found {self.prior_variance}")
        if self.power is not None and not 0 <= self.power < float("inf"):
            raise ValueError(f"power must be at least 0 and finite, found {self.power}")
        for name, least in (("samples", 2), ("warmup_epochs", 0), ("window", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number, at least {least}, found {value!r}")

    def bind(self, tasks: Sequence[str]) -> Self:
        """Layers and kinds in task order."""
        if self.layers is None:
            warn(
                "bayes_agg has no layers, so all tasks count alike; give layers={task: its last nn.Linear}, kinds=, "
                "and targets={task: labels} with every step"
            )
            return self
        kinds = _kinds(self.kinds, tasks)
        if not isinstance(self.layers, Mapping | nn.ModuleDict) or set(self.layers.keys()) != set(tasks):
            names = list(self.layers) if isinstance(self.layers, Mapping | nn.ModuleDict) else self.layers
            raise ValueError(f"layers must be a dict with the last layer of each of {list(tasks)}, found {names!r}")
        for task, kind in zip(tasks, kinds, strict=True):
            _check_layer(task, kind, self.layers[task], self.layers[tasks[0]])
        return replace(self, layers={task: self.layers[task] for task in tasks}, kinds=kinds)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """What the samples of the last epoch, and ("new") of this one, say of the last layers; counters."""
        state: State = {
            "epochs": torch.zeros(()),
            "steps": torch.zeros(()),
            "told": torch.zeros((), dtype=torch.bool),
        }
        for place, layer in enumerate((self.layers or {}).values()):
            blocks, rows, n = last_layer.sizes(self._kind(place), layer)
            for name in _names(place) + _names(place, "new_"):
                state[name] = torch.zeros((blocks, n, n) if "precision" in name else (rows, n))
        return state

    def update(self, state: State, seen: Observation) -> Decision:
        """What enters at z, and the state with the samples of this batch."""
        targets = seen.extras.get("targets")
        samples = {place: list(seen.samples(place)) for place in range(seen.tasks)}
        for sample in itertools.chain.from_iterable(samples.values()):
            labelled_samples(sample.labelled, len(sample.z))
        if self.layers is None:
            if targets is not None:
                raise ValueError("targets is used with layers only; give layers={task: its last nn.Linear} to create")
            return Decision(torch.full_like(seen.losses, 1 / seen.tasks), state)
        if not isinstance(targets, Mapping):
            raise ValueError(
                f"bayes_agg needs the labels of the batch, found targets of type {type(targets).__name__}; pass "
                "targets={task: labels} to backward"
            )
        if unknown := [task for task in targets if task not in self.layers]:
            raise ValueError(f"targets names unknown task {unknown[0]!r}; the tasks are {list(self.layers)}")
        state = self._rolled(state)
        shown = _one_representation(samples)
        draws = _generator(seen, next(iter(shown.values())).z.device)
        batches = {place: self._batch(place, sample, targets, seen) for place, sample in shown.items()}
        # Of all tasks on all processes: what one of them has no loss for, another may have.
        news = [self._evidence(place, batches.get(place), state, seen) for place in range(seen.tasks)]
        gradients = {place: self._gradient(place, batch, news[place], state, draws) for place, batch in batches.items()}
        bad = torch.stack([~torch.stack([part.isfinite().all() for part in new]).all() for new in news])
        for place, gradient in gradients.items():
            bad[place] |= ~(gradient.mean.isfinite().all() & gradient.variance.isfinite().all())
        good = seen.reduction(bad.float()) == 0
        places = list(gradients)
        labelled = torch.stack([batches[place].labelled & good[place] for place in places])
        powers = [_POWER[self._kind(place)] if self.power is None else self.power for place in places]
        shares = _shares([gradient.variance for gradient in gradients.values()], powers, labelled) / seen.tasks
        means = [torch.where(good[place], gradient.mean, 0) for place, gradient in gradients.items()]
        totals = shares.new_zeros(2, seen.tasks)
        totals[:, places] = torch.stack([shares.mean(2).sum(1), labelled.sum(1).to(shares)])
        sums, counts = seen.reduction(totals)
        for place, new in enumerate(news):
            for name, more in zip(_names(place, "new_"), new, strict=True):
                state[name] = state[name] + torch.where(good[place], more, 0).to(state[name])
        weights = (sums / counts.clamp(min=1)).to(seen.losses)
        direction = (shares * torch.stack(means)).sum(0)
        return Decision(weights, {**state, "steps": state["steps"] + 1}, direction=direction)

    def end_epoch(self, state: State) -> State:
        """What the samples of this epoch say is what the next one starts from."""
        return {**self._next_epoch(state), "told": torch.ones_like(state["told"])}

    def _kind(self, place: int) -> Kind:
        assert isinstance(self.kinds, tuple)  # since `bind`
        kind: Kind = self.kinds[place]
        return kind

    def _next_epoch(self, state: State) -> State:
        moved = {"epochs": state["epochs"] + 1, "steps": torch.zeros_like(state["steps"])}
        for place in range(len(self.layers or ())):
            old, new = _names(place), _names(place, "new_")
            # A task without a label in the whole epoch keeps what is known.
            some = state[new[0]].any()
            moved |= {name: torch.where(some, state[fresh], state[name]) for name, fresh in zip(old, new, strict=True)}
            moved |= {name: torch.zeros_like(state[name]) for name in new}
        return {**state, **moved}

    def _rolled(self, state: State) -> State:
        """The next epoch, where nobody ends one and a window is over."""
        over = ~state["told"] & (state["steps"] >= self.window)
        return {name: torch.where(over, new, state[name]) for name, new in self._next_epoch(state).items()}

    def _batch(self, place: int, sample: Sample, targets: Mapping[str, Any], seen: Observation) -> _Batch:
        assert self.layers is not None
        (name, layer), x = list(self.layers.items())[place], sample.z
        if x.ndim != 2 or x.shape[1] != layer.in_features:
            raise ValueError(
                f"the representation must be [samples, {layer.in_features}], the input of layers[{name!r}], found "
                f"{tuple(x.shape)}; pass it as at=z"
            )
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        target, labelled = _filled(name, self._kind(place), targets.get(name), x, layer.out_features)
        labelled = labelled & seen.ok[place] & (True if sample.labelled is None else sample.labelled.to(x.device))
        weight = layer.weight.detach().to(x.dtype)
        if layer.bias is not None:
            x = torch.cat((x, torch.ones_like(x[:, :1])), 1)
            weight = torch.cat((weight, layer.bias.detach().to(x.dtype)[:, None]), 1)
        return _Batch(x, sample.dz, target, labelled, weight)

    def _evidence(self, place: int, batch: _Batch | None, state: State, seen: Observation) -> Evidence:
        """What the batches of all processes say of a last layer."""
        if batch is None:
            new = Evidence(*(torch.zeros_like(state[name]) for name in _names(place)))
        else:
            own = torch.where(batch.labelled[:, None], batch.x, 0)
            new = last_layer.evidence(self._kind(place), own, batch.weight, batch.target)
        return Evidence(*(seen.reduction(part.to(state[name])) for part, name in zip(new, _names(place), strict=True)))

    def _gradient(self, place: int, batch: _Batch, new: Evidence, state: State, draws: Generator) -> Moments:
        """Mean and variance of the gradient of the user's loss by z; zero for samples without a label."""
        kind, (x, dz, target, labelled, weight) = self._kind(place), batch
        features = dz.shape[1]
        known = Evidence(*(state[name] + more for name, more in zip(_names(place), new, strict=True)))
        posterior = last_layer.posterior(known, self.prior_variance)
        if kind == "regression":
            moments = last_layer.exact_moments(posterior, x, target, features)
        else:
            moments = last_layer.sampled_moments(kind, posterior, x, target, features, self.samples, draws)
        plain = last_layer.slopes(kind, x @ weight.T, target) @ weight[:, :features]
        plain = torch.where(labelled[:, None], plain, 0)
        # dz is the plain gradient times 1 / samples, and times whatever the user has multiplied the loss by.
        size = plain.square().sum()
        factor = torch.where(size > 0, (dz * plain).sum() / torch.where(size > 0, size, 1), 0)
        warming_up = state["epochs"] < self.warmup_epochs
        mean = torch.where(warming_up, dz, factor * moments.mean)
        variance = torch.where(warming_up, 1, moments.variance)
        return Moments(*(torch.where(labelled[:, None], moment, 0) for moment in (mean, variance)))


def _names(place: int, which: str = "") -> tuple[str, str]:
    """Of the state of a task: its `Evidence`."""
    return f"{which}precision_{place}", f"{which}information_{place}"


def _kinds(kinds: Any, tasks: Sequence[str]) -> tuple[Kind, ...]:
    """In task order."""
    by_task: Any = dict.fromkeys(tasks, kinds) if isinstance(kinds, str) else kinds
    if not isinstance(by_task, Mapping):
        by_task = dict(zip(tasks, by_task, strict=False)) if len(by_task) == len(tasks) else dict.fromkeys(by_task)
    if set(by_task) != set(tasks):
        raise ValueError(f"kinds must name each task once; the tasks are {list(tasks)}, found {list(by_task)}")
    for task, kind in by_task.items():
        if kind not in KINDS:
            raise ValueError(f"kinds[{task!r}] must be one of {list(KINDS)}, found {kind!r}")
    return tuple(by_task[task] for task in tasks)


def _check_layer(task: str, kind: Kind, layer: Any, first: Any) -> None:
    if not isinstance(layer, nn.Linear):
        raise ValueError(f"layers[{task!r}] must be an nn.Linear on z, found {type(layer).__name__}")
    if layer.in_features != first.in_features:
        raise ValueError(f"layers[{task!r}] has {layer.in_features} inputs; all layers must take the same z")
    if kind == "classification" and layer.out_features < 2:
        raise ValueError(f'layers[{task!r}] has one output; its kind is "binary", or it needs one per class')
    blocks, _, n = last_layer.sizes(kind, layer)
    if blocks * n**2 > _MOST:
        raise ValueError(
            f"layers[{task!r}] has {layer.out_features} outputs on {layer.in_features} features, and for kind {kind!r} "
            f"a step would work with several tensors of {blocks} x {n} x {n} numbers, at most {_MOST:,} are allowed; "
            "put a narrower layer before the heads, or take another method"
        )


def _one_representation(samples: Mapping[int, list[Sample]]) -> dict[int, Sample]:
    """Place of a task with a loss -> its samples; a ValueError where tasks do not see the same tensor."""
    shown = {place: own for place, own in samples.items() if own}
    if any(len(own) > 1 for own in shown.values()) or len({own[0].z.data_ptr() for own in shown.values()}) > 1:
        raise ValueError(
            "bayes_agg weights the tasks of each sample, and they do not all see one tensor; let all layers take the "
            "same z, or take another method"
        )
    return {place: own[0] for place, own in shown.items()}


def _filled(task: str, kind: Kind, target: Any, z: Tensor, outputs: int) -> tuple[Tensor, Tensor]:
    """The labels with holes filled, and which samples have one."""
    shape = (len(z),) if kind == "classification" else (len(z), outputs)
    allowed = (shape, (len(z),)) if outputs == 1 else (shape,)
    fits = isinstance(target, Tensor) and target.shape in allowed
    if not fits or target.is_floating_point() == (kind == "classification"):
        form = f"{target.dtype} {tuple(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
        what = "whole numbers" if kind == "classification" else "floats"
        raise ValueError(f"targets[{task!r}] must be {what} of shape {shape} for kind {kind!r}, found {form}")
    target = target.to(z.device, non_blocking=True).reshape(shape)
    if kind == "classification":
        return target.clamp(min=0).long(), target >= 0
    known = target.isfinite()
    return torch.where(known, target, 0).to(z.dtype), known.all(1)


def _generator(seen: Observation, device: torch.device) -> Generator:
    """A random stream on the device, the same after a resume."""
    seed = torch.randint(2**62, (1,), generator=seen.generator, device="cpu").numpy()[0]  # of the host: nothing waits
    return torch.Generator(device).manual_seed(int(seed))


def _shares(variances: Sequence[Tensor], powers: Sequence[float], labelled: Tensor) -> Tensor:
    """[tasks, samples, features] in proportion to variance^-power, sum: the number of tasks the sample has labels for.

    Samples without a label have zeros.
    """
    smallest = torch.finfo(torch.float32).tiny
    pairs = zip(variances, powers, strict=True)
    scores = torch.stack([-power * variance.clamp(min=smallest).log() for variance, power in pairs])
    known = labelled[..., None]
    shares = torch.where(known, scores, -torch.inf).softmax(0)
    return torch.where(known, shares, 0) * known.sum(0)
