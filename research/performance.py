"""The tables of docs/performance.md, from the measurements in docs/data/speed.

`bench_*` is by `excessmtl bench`, `ablation_*` and `methods_cpu` by `python -m excessmtl.lab.speed`. `rewrite_*` has
two runs of `excessmtl bench` before the engine was made simpler and two after, in alternation on one host.
"""

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.table import Table
from excessmtl.lab.speed.ablation import ALL, STEPS
from excessmtl.lab.speed.networks import NETWORKS

DOCS = Path(__file__).parent.parent / "docs"
_RENAMED = {"reference": "one backward pass per task"}
"""Ways whose name in the files is another."""


def read(name: str) -> dict[str, Any]:
    """A file of measurements."""
    content: dict[str, Any] = json.loads((DOCS / "data" / "speed" / f"{name}.json").read_text(encoding="utf-8"))
    return content


def origin(name: str) -> str:
    """The command, the machine and the file."""
    content = read(name)
    machine, command = content["machine"], re.sub(r" --json \S+", "", content["command"])
    where = machine.get("gpu") or f"{machine['cpu']}, {machine['threads']} thread"
    return f"`{command}` on {where}, torch {machine['torch']} ([{name}.json](data/speed/{name}.json))."


def medians(quantity: str, *names: str) -> dict[str, dict[str, list[float]]]:
    """Network -> method -> the median of each run of these files."""
    networks: dict[str, dict[str, list[float]]] = {}
    runs = [run for name in names for run in read(name).get("after") or [read(name)["results"]]]
    for result in (result for run in runs for result in run):
        for row in result["rows"]:
            number = row[quantity][1] if isinstance(row[quantity], list) else row[quantity]
            networks.setdefault(result["network"], {}).setdefault(row["method"], []).append(number)
    return networks


def measured(quantity: str, form: str, columns: Sequence[str], *names: str) -> str:
    """A row per network of these files, a column per method: the medians of all runs, once where they agree."""
    rows = []
    for network, own in medians(quantity, *names).items():
        cells = [", ".join(dict.fromkeys(map(form.format, own.get(column, [])))) or "–" for column in columns]
        rows.append([f"`{network}`: {NETWORKS[network].summary}", *cells])
    return Table.of_texts("", ["network", *columns], rows, words=()).as_markdown()


def ratios(columns: Sequence[str], *names: str) -> str:
    """To plain PyTorch, and where the files come from."""
    return "\n".join([measured("ratio", "x{:.2f}", columns, *names), *(origin(name) for name in names)])


def ways() -> str:
    """What a step costs without a way, over one with all of them, where that is most."""
    rows: dict[tuple[str, str], list[str]] = {}
    for device in ("cpu", "cuda"):
        most: dict[tuple[str, str], tuple[float, str]] = {}
        for row in read(f"ablation_{device}")["rows"]:
            key, own = (row["method"], row["way"]), (row["ratio"][1], row["network"])
            most[key] = max(most.get(key, own), own)
        for key, (ratio, network) in most.items():
            rows.setdefault(key, []).append(f"x{ratio:.2f} ({network})")
    # A way that has been given up since it was measured is not shown.
    named = [(method, _RENAMED.get(way, way), cells) for (method, way), cells in rows.items() if way != ALL]
    lines = [[method, way, *cells] for method, way, cells in named if way in STEPS[method]]
    table = Table.of_texts("", ["method", "step", "CPU, at most", "GPU, at most"], lines, words=("step",))
    return f"{table.as_markdown()}\n{origin('ablation_cpu')}\n\n{origin('ablation_cuda')}"


_OURS, _PEERS = ("uniform", "excess", "paper"), ("excess", "paper", "torchjd", "official")
PAGE = Page(
    DOCS / "performance.md",
    {
        "now_cpu": partial(ratios, _OURS, "rewrite_cpu"),
        "now_cuda": partial(ratios, _OURS, "rewrite_cuda"),
        "peers_cpu": partial(ratios, _PEERS, "bench_cpu"),
        "peers_cuda": partial(ratios, _PEERS, "bench_cuda", "bench_cuda_resnet64", "bench_cuda_bert"),
        "memory": partial(measured, "peak_mb", "{:,.0f}", ("plain", "excess", "paper"), "rewrite_cuda"),
        "ways": ways,
    },
)
