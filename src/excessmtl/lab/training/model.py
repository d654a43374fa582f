"""A benchmark's network, made of its trunk and heads.

One trunk and a head per task, a trunk per task for the single-task baseline, or an architecture of the library.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from excessmtl import architectures
from excessmtl.architectures import MultiTask
from excessmtl.architectures.base import Make
from excessmtl.lab.data.base import Benchmark, Targets
from excessmtl.lab.data.kinds import LABELS, binary, classification, regression
from excessmtl.lab.data.tasks import PLAIN
from excessmtl.lab.runs.config import HARD, SINGLE, Resolved, RunConfig
from excessmtl.lab.training.batches import ByTask, Inputs
from excessmtl.methods import registry

Heads = Mapping[str, nn.Module]
_TAKEN = (regression.loss, binary.loss, classification.loss)
"""The losses of tasks that a method can take labels of."""


class MultiTaskModel(nn.Module):
    """trunk -> heads. Takes the inputs of all tasks, or `ByTask`."""

    def __init__(self, benchmark: Benchmark) -> None:
        super().__init__()
        self.trunk = benchmark.build_trunk()
        self.heads = nn.ModuleDict({task.name: benchmark.build_head(task) for task in benchmark.tasks})

    @property
    def shared(self) -> nn.Module:
        """The trunk."""
        return self.trunk

    def forward(self, inputs: Inputs) -> dict[str, Tensor]:
        """The outputs by task."""
        if isinstance(inputs, ByTask):
            return {name: self.heads[name](self.trunk(own)) for name, own in inputs.items()}
        z = self.trunk(inputs)
        return {name: head(z) for name, head in self.heads.items()}


class SingleTaskModels(nn.Module):
    """A network of its own for every task: what each task can do alone."""

    def __init__(self, benchmark: Benchmark) -> None:
        super().__init__()
        self.models = nn.ModuleDict(
            {task.name: nn.Sequential(benchmark.build_trunk(), benchmark.build_head(task)) for task in benchmark.tasks}
        )

    def forward(self, inputs: Inputs) -> dict[str, Tensor]:
        """The outputs by task."""
        if isinstance(inputs, ByTask):
            return {name: self.models[name](own) for name, own in inputs.items()}
        return {name: model(inputs) for name, model in self.models.items()}


Network = MultiTaskModel | SingleTaskModels | MultiTask


def make_network(config: RunConfig, benchmark: Benchmark) -> Network:
    """The network that a run trains."""
    if config.method == SINGLE:
        return SingleTaskModels(benchmark)
    if config.architecture == HARD:
        return MultiTaskModel(benchmark)
    heads = {task.name: benchmark.build_head(task) for task in benchmark.tasks}
    return _BUILDERS[config.architecture](benchmark, heads)


def _sample(benchmark: Benchmark) -> Tensor:
    """Two training inputs, as the network takes them."""
    inputs = benchmark.train.inputs
    stored = next(iter(inputs.values())) if isinstance(inputs, Mapping) else inputs
    if not isinstance(stored, Tensor):
        raise ValueError(
            f"architecture other than {HARD!r} needs inputs that are tensors, found {type(stored).__name__} in "
            f"benchmark {benchmark.name!r}; take {HARD!r}"
        )
    return benchmark.prepare(stored[:2])


def _features(benchmark: Benchmark) -> int:
    return _sample(benchmark)[0].numel()


def _stages(trunk: nn.Module) -> list[nn.Module]:
    """A sequence from one layer with parameters to the next; any other trunk is one stage."""
    if type(trunk).forward is not nn.Sequential.forward or not isinstance(trunk, nn.Sequential):
        return [trunk]
    groups: list[list[nn.Module]] = []
    for layer in trunk:
        if groups and not any(True for _ in layer.parameters()):
            groups[-1].append(layer)
        else:
            groups.append([layer])
    return [nn.Sequential(*group) for group in groups]


def _makers(benchmark: Benchmark) -> list[Make]:
    """What makes each stage of the trunk, fresh at every call."""

    def maker(place: int) -> Make:
        return lambda: _stages(benchmark.build_trunk())[place]

    return [maker(place) for place in range(len(_stages(benchmark.build_trunk())))]


def _mtan(benchmark: Benchmark, heads: Heads) -> MultiTask:
    stages, channels = _stages(benchmark.build_trunk()), []
    features = _sample(benchmark)
    with torch.no_grad():
        for stage in stages:
            features = stage.eval()(features)
            stage.train()
            channels.append(features.shape[1])
    return architectures.MTAN(stages, heads, channels, features.ndim - 2)


def _ple(benchmark: Benchmark, heads: Heads) -> MultiTask:
    with torch.no_grad():
        features = benchmark.build_trunk().eval()(_sample(benchmark))
    if features.ndim != 2:
        raise ValueError(
            f"architecture 'ple' needs a trunk that puts out vectors, found features of shape {tuple(features.shape)} "
            f"in benchmark {benchmark.name!r}; take 'cgc'"
        )
    width = features.shape[1]
    levels: list[Make] = [benchmark.build_trunk, lambda: nn.Sequential(nn.Linear(width, width), nn.ReLU())]
    return architectures.PLE(levels, heads, [_features(benchmark), width])


_BUILDERS: dict[str, Callable[[Benchmark, Heads], MultiTask]] = {
    "cross_stitch": lambda benchmark, heads: architectures.CrossStitch(_makers(benchmark), heads),
    "mtan": _mtan,
    "mmoe": lambda benchmark, heads: architectures.MMoE(benchmark.build_trunk, heads, _features(benchmark)),
    "cgc": lambda benchmark, heads: architectures.CGC(benchmark.build_trunk, heads, _features(benchmark)),
    "ple": _ple,
    "dselect_k": lambda benchmark, heads: architectures.DSelectK(benchmark.build_trunk, heads),
    "ltb": lambda benchmark, heads: architectures.LTB(_makers(benchmark), heads),
}


def last_layers(config: Resolved, benchmark: Benchmark, network: Network) -> dict[str, Any]:
    """The options `layers` and `kinds` of a method that has them; a ValueError where the network has no such layers."""
    if not hasattr(registry().get(config.method), "layers"):
        return {}
    heads = dict(network.heads.items()) if isinstance(network, MultiTaskModel) else {}
    kinds = {task.name: LABELS.get(task.kind.loss) if task.kind.loss in _TAKEN else None for task in benchmark.tasks}
    deep = [task for task, head in heads.items() if not isinstance(head, nn.Linear)]
    others = [task for task, kind in kinds.items() if kind is None]
    obstacles = {
        f"architecture is {config.architecture!r}": not heads,
        f"strategy is {config.strategy!r}": config.strategy == "fsdp",
        f"the tasks of {benchmark.name!r} have inputs of their own": isinstance(benchmark.train.inputs, Mapping),
        f"the heads of {deep} are not linear": bool(deep),
        f"the losses of {others} are others": bool(others),
        f"loss is {config.loss!r}": config.loss != PLAIN,
    }
    for obstacle, present in obstacles.items():
        if present:
            raise ValueError(
                f"method {config.method!r} needs linear heads on one representation, with squared error or "
                f"cross-entropy as losses; {obstacle}: take another method"
            )
    return {"layers": heads, "kinds": kinds}


def labels(targets: Targets, kinds: Mapping[str, str]) -> dict[str, Tensor]:
    """The targets of a batch: whole numbers for classes, -1 where there is no label, and floats for the others."""
    return {
        task: _classes(target) if kinds[task] == "classification" else target.float()
        for task, target in targets.items()
    }


def _classes(target: Tensor) -> Tensor:
    return torch.where(target.isnan(), -1, target).long() if target.is_floating_point() else target.long()
