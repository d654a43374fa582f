"""Which runs a figure needs, as configurations: pure lists, so that figures can share them.

`quick` is for two cores and bundled or made-up data; SARCOS alone may be real there, since its network is tiny. `paper`
takes the benchmarks' own recipes, the paper's noise levels, and real data wherever it is found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from excessmtl.lab.data import sources
from excessmtl.lab.paper.methods import METHODS, PAPER
from excessmtl.lab.paper.subjects import stand_in
from excessmtl.lab.runs.config import RunConfig

Scale = Literal["quick", "paper"]
SCALES: tuple[Scale, ...] = ("quick", "paper")
Data = Mapping[str, str]
"""Benchmark -> file or folder with its data."""


@dataclass(frozen=True)
class Plan:
    """How one benchmark is run at one scale."""

    noise: tuple[float, ...]
    seeds: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every run."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Method -> options of it that go with the length of these runs."""


_LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_QUICK_LEVELS = (0.0, 0.4, 0.8)
PLANS: Mapping[Scale, Mapping[str, Plan]] = {
    # As many pairs and batches as the small data has, so that full MNIST or SARCOS in the cache takes no longer.
    "quick": {
        "multimnist": Plan(
            _QUICK_LEVELS,
            2,
            {"epochs": 7, "batch_size": 128, "limit_batches": 31, "benchmark_options": {"pairs": 4000}},
        ),
        "sarcos": Plan(_QUICK_LEVELS, 2, {"epochs": 12, "limit_batches": 47}),
        "simulated-arm": Plan(_QUICK_LEVELS, 2, {"epochs": 12}),
        "digit-domains": Plan(_QUICK_LEVELS, 1, {"epochs": 6}),
        # The paper's three warm-up epochs would leave one in which its weights move; here the first of four is it.
        "synthetic-rooms": Plan((0.0, 0.8), 1, {"epochs": 4}, {PAPER: {"normalize": "initial", "warmup_steps": 25}}),
    },
    "paper": {
        "multimnist": Plan(_LEVELS, 3),
        "sarcos": Plan(_LEVELS, 3),
        "simulated-arm": Plan(_LEVELS, 3, {"benchmark_options": {"size": "paper"}}),
        "office-home": Plan(_LEVELS, 3),
        "digit-domains": Plan(_LEVELS, 3),
        "nyuv2": Plan(_LEVELS, 3),
        # At NYUv2's resolution every run would render for minutes; the small rooms show the same.
        "synthetic-rooms": Plan(_LEVELS, 3),
    },
}


def benchmark_for(wanted: str, scale: Scale, data: Data) -> str:
    """The paper's data where it is found and the scale allows it, else its stand-in."""
    other = stand_in(wanted)
    if other is None:
        return wanted
    planned = wanted in PLANS[scale]
    if wanted in data and not planned:
        raise ValueError(f"--data {wanted}: its network is too large for --scale {scale}; use --scale paper")
    at_hand = wanted in data or sources.where(wanted) is not None
    return wanted if planned and at_hand else other


def grid(
    wanted: str, scale: Scale, data: Data, methods: Sequence[str], noise: Sequence[float] | None = None
) -> list[RunConfig]:
    """Methods x noise levels (the plan's, unless given) x seeds on one data set of the paper or its stand-in."""
    benchmark = benchmark_for(wanted, scale, data)
    plan = PLANS[scale][benchmark]
    return [
        RunConfig(
            benchmark,
            METHODS[shown].name,
            options={**METHODS[shown].options, **plan.options.get(shown, {})},
            label=shown,
            noise=level,
            seed=seed,
            data=data.get(benchmark),
            **plan.settings,
        )
        for shown in methods
        for level in (plan.noise if noise is None else noise)
        for seed in range(plan.seeds)
    ]
