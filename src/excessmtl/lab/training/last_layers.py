"""What a method that takes the labels needs: the last layers of the network, their kinds, and the labels of a batch."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from excessmtl.lab.data import losses
from excessmtl.lab.data.base import Benchmark, Targets
from excessmtl.lab.data.losses import PLAIN
from excessmtl.lab.data.tasks import Loss
from excessmtl.lab.runs.config import Resolved
from excessmtl.lab.training.model import MultiTaskModel, Network
from excessmtl.methods import registry

_KINDS: dict[Loss, str] = {
    losses.squared_error: "regression",
    losses.binary_cross_entropy: "binary",
    losses.cross_entropy: "classification",
}


def last_layers(config: Resolved, benchmark: Benchmark, network: Network) -> dict[str, Any]:
    """The options `layers` and `kinds` of a method that has them; a ValueError where the network has no such layers."""
    if not hasattr(registry().get(config.method), "layers"):
        return {}
    heads = dict(network.heads.items()) if isinstance(network, MultiTaskModel) else {}
    kinds = {task.name: _KINDS.get(task.kind.loss) for task in benchmark.tasks}
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
