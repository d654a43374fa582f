"""A benchmark's network: one trunk and a head per task, or for the single-task baseline a trunk per task."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from excessmtl.lab.data.base import Benchmark, Targets
from excessmtl.lab.data.kinds import LABELS
from excessmtl.lab.data.tasks import PLAIN
from excessmtl.lab.runs.config import SINGLE, Resolved, RunConfig
from excessmtl.lab.training.batches import ByTask, Inputs
from excessmtl.methods import registry


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


Network = MultiTaskModel | SingleTaskModels


def make_network(config: RunConfig, benchmark: Benchmark) -> Network:
    """The network that a run trains."""
    return SingleTaskModels(benchmark) if config.method == SINGLE else MultiTaskModel(benchmark)


def last_layers(config: Resolved, benchmark: Benchmark, network: Network) -> dict[str, Any]:
    """The options `layers` and `kinds` of a method that has them; a ValueError where the network has no such layers."""
    if not hasattr(registry().get(config.method), "layers"):
        return {}
    assert isinstance(network, MultiTaskModel)  # no method is called as the single-task baseline is
    heads = dict(network.heads.items())
    kinds = {task.name: LABELS.get(task.kind.loss) for task in benchmark.tasks}
    deep = [task for task, head in heads.items() if not isinstance(head, nn.Linear)]
    others = [task for task, kind in kinds.items() if kind is None]
    obstacles = {
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
        task: target.nan_to_num(-1).long() if kinds[task] == "classification" else target.float()
        for task, target in targets.items()
    }
