"""A benchmark's network under `--architecture`: the architectures of the library, made of its trunk and heads."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from excessmtl import architectures
from excessmtl.architectures import MultiTask
from excessmtl.architectures.base import Make
from excessmtl.lab.data.base import Benchmark
from excessmtl.lab.runs.config import HARD

Heads = Mapping[str, nn.Module]


def names() -> tuple[str, ...]:
    """What `--architecture` knows; the first is the default."""
    return (HARD, *_BUILDERS)


def build(benchmark: Benchmark, architecture: str) -> MultiTask:
    """The benchmark's tasks on this architecture; not for hard sharing, which is `MultiTaskModel`."""
    heads = {task.name: benchmark.build_head(task) for task in benchmark.tasks}
    return _BUILDERS[architecture](benchmark, heads)


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
