"""Which runs a figure needs, as configurations: pure lists, so that figures can share them.

`quick` is for two cores and bundled or made-up data; SARCOS alone may be real there, since its network is tiny. `paper`
takes the benchmarks' own recipes, the paper's noise levels, and real data wherever it is found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from excessmtl.lab.data.base import cache_folder
from excessmtl.lab.paper.subjects import DATA, METHODS, PAPER
from excessmtl.lab.runs.config import RunConfig

if TYPE_CHECKING:
    from excessmtl.lab.paper.registry import Figure

Scale = Literal["quick", "paper"]
SCALES: tuple[Scale, ...] = ("quick", "paper")
Data = Mapping[str, str] | None
"""Benchmark -> file or folder with its data; None: take stand-ins, and do not look for data."""


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
    stand_in = DATA[wanted].stand_in
    if stand_in is None:
        return wanted
    if data is None:
        return stand_in
    planned, given = wanted in PLANS[scale], wanted in data
    if given and not planned:
        raise ValueError(f"--data {wanted}: its network is too large for --scale {scale}; use --scale paper")
    return wanted if planned and (given or (cache_folder() / wanted).exists()) else stand_in


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
            loss=METHODS[shown].loss,
            options={**METHODS[shown].options, **plan.options.get(shown, {})},
            label=shown,
            noise=level,
            seed=seed,
            data=(data or {}).get(benchmark),
            **plan.settings,
        )
        for shown in methods
        for level in (plan.noise if noise is None else noise)
        for seed in range(plan.seeds)
    ]


def needed_runs(figures: "Sequence[Figure]", scale: Scale, data: Data) -> list[RunConfig]:
    """What the figures need together, each run once."""
    return list({repr(run): run for entry in figures for run in entry.runs(scale, data)}.values())
