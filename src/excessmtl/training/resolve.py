"""From a configuration with gaps to one without: the benchmark, its options, the device."""

import inspect
from collections.abc import Mapping
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import torch
from lightning.fabric import Fabric

from excessmtl.balancer import Balancer
from excessmtl.benchmarks import registry
from excessmtl.benchmarks.base import Benchmark
from excessmtl.training.config import RunConfig
from excessmtl.training.presets import method_options


def load_benchmark(config: RunConfig) -> Benchmark:
    """The benchmark of a configuration, with clean labels."""
    data = None if config.data is None else Path(config.data)
    return registry()[config.benchmark].load(data, config.seed, **benchmark_options(config))


def benchmark_options(config: RunConfig) -> dict[str, Any]:
    """The options of the benchmark, completed by its defaults; what does not fit is refused."""
    load = registry()[config.benchmark].load
    hints = get_type_hints(load)
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(load).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    for name, value in config.benchmark_options.items():
        if name not in defaults:
            raise ValueError(f"{name} is not an option of {config.benchmark!r}; its options are {[*defaults]}")
        if name in hints and not _fits(value, hints[name]):
            kinds = " or ".join(kind.__name__ for kind in _kinds(hints[name]) if kind is not NoneType)
            raise ValueError(f"{name} of {config.benchmark!r} must be of type {kinds}, found {value!r}")
    return {**defaults, **config.benchmark_options}


def _kinds(hint: Any) -> tuple[type, ...]:
    return get_args(hint) or (hint,)


def _fits(value: Any, hint: Any) -> bool:
    kinds = _kinds(hint)
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (isinstance(value, int) and float in kinds)


def make_fabric(config: RunConfig) -> Fabric:
    """Fabric on the configured device; a device or precision that is not to be had is refused."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(config.device, True):
        others = ["auto", "cpu", *(name for name, here in available.items() if here)]
        raise ValueError(f"device {config.device!r} is not available on this machine; choose one of {others}")
    half = config.precision == "16-mixed"
    if half and not (available["cuda"] and config.device in ("auto", "cuda")):
        raise ValueError("precision '16-mixed' needs a CUDA device; choose 'bf16-mixed' or '32-true'")
    accelerator = "cuda" if half else config.device
    return Fabric(accelerator=accelerator, devices=1, precision=config.precision)  # type: ignore[arg-type]


def resolve(config: RunConfig, benchmark: Benchmark, device: torch.device) -> RunConfig:
    """The configuration with every None replaced by what the benchmark says."""
    recipe = benchmark.recipe
    noisy = benchmark.noisy_tasks if config.noisy_tasks is None else config.noisy_tasks
    names = [task.name for task in benchmark.tasks]
    unknown = [name for name in noisy if name not in names]
    if unknown:
        raise ValueError(f"noisy_tasks names unknown task {unknown[0]!r}; the tasks are {names}")
    resolved = replace(
        config,
        noisy_tasks=tuple(noisy),
        noise_seed=config.seed if config.noise_seed is None else config.noise_seed,
        epochs=recipe.epochs if config.epochs is None else config.epochs,
        batch_size=recipe.batch_size if config.batch_size is None else config.batch_size,
        learning_rate=recipe.learning_rate if config.learning_rate is None else config.learning_rate,
        weight_decay=recipe.weight_decay if config.weight_decay is None else config.weight_decay,
        benchmark_options=benchmark_options(config),
        device=device.type,
        label=config.name,
    )
    return replace(resolved, options=method_options(resolved, benchmark))


def complete_options(balancer: Balancer) -> Mapping[str, Any]:
    """Every option of the method as it is used, defaults included, as plain values."""
    options = {option.name: _plain(getattr(balancer.rule, option.name)) for option in fields(balancer.rule)}
    return {**options, "heads": balancer.heads, "every": balancer.every, "scale": balancer.scale}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value
