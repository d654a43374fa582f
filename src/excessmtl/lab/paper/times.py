"""How long the figures take, from measured times of the processor: `research/figure_times.py` says how."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from excessmtl.lab.paper.plans import Scale
from excessmtl.lab.paper.registry import Figure
from excessmtl.lab.paper.reproduction import needed_runs

FILE = Path(__file__).with_name("times.csv")
CORES = 2


def time_of(figures: Sequence[Figure], scale: Scale) -> str:
    """About how long figures take together on two free cores, in words; "not measured" where a part has not been.

    With the data that lies in the cache folder, and with stand-ins for other data.
    """
    table = pd.read_csv(FILE, comment="#", keep_default_na=False)
    seconds = table.start + table.steps * table.seconds_per_step
    known = dict(zip(zip(table["scale"], table["name"], table["method"], strict=True), seconds, strict=True))
    parts = [(scale, run.benchmark, run.name) for run in needed_runs(figures, scale, {})]
    parts += [(scale, entry.name, "") for entry in figures if entry.compute is not None]
    if not set(parts) <= set(known):
        return "not measured"
    return in_words(sum(known[part] for part in parts) / CORES)


def in_words(seconds: float) -> str:
    """With two digits at most: "40 s", "7 min", "1.5 h", "12 h"."""
    for unit, size, least in (("h", 3600, 5400), ("min", 60, 90)):
        if seconds >= least:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"
