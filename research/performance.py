"""The tables of docs/performance.md, from the measurements in docs/data/speed.

`bench_*` and `growth_*` are by `excessmtl bench`; `ablation_*` and `methods_cpu` by
`python -m excessmtl.lab.speed`. `rewrite_*` has two runs of `excessmtl bench` before the engine was made simpler and
two after, in alternation on one host: the latter are those of the present engine.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.table import Table, written
from excessmtl.lab.speed.ablation import ALL, STEPS
from excessmtl.lab.speed.networks import NETWORKS

DOCS = Path(__file__).parent.parent / "docs"
_RENAMED = {"reference": "one backward pass per task"}
"""Ways whose name in the files is another."""
Result = Mapping[str, Any]


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


def value(result: Result, method: str, quantity: str) -> float | None:
    """Of a method on a network, the median where there are quartiles."""
    shown = next((row[quantity] for row in result["rows"] if row["method"] == method), None)
    return shown[1] if isinstance(shown, list) else shown


def of_networks(
    results: Sequence[Result], columns: Sequence[str], cell: Callable[[Result, str], str], described: bool = False
) -> str:
    """A row per network."""
    rows = []
    for result in results:
        about = NETWORKS[result["network"]]
        name = f"`{about.name}`: {about.summary}, {about.tasks} tasks, batch {about.batch}"
        shown = name if described else f"`{about.name}`"
        rows.append([shown, *(cell(result, column) for column in columns)])
    return Table.of_texts("", ["network", *columns], rows, words=()).as_markdown()


def now(device: str) -> str:
    """The ratios of two runs of the present engine."""
    name = f"rewrite_{device}"
    first, second = read(name)["after"]
    other = {result["network"]: result for result in second}

    def cell(result: Result, method: str) -> str:
        runs = (result, other[result["network"]])
        return ", ".join(f"x{value(run, method, 'ratio'):.2f}" for run in runs)

    table = of_networks(first, ("uniform", "excess", "paper"), cell, described=True)
    return f"{table}\n{origin(name)} Two runs of each."


def peers(*names: str) -> str:
    """Ratios to plain PyTorch beside other implementations; a network that is in two files is taken from the first."""
    results = {result["network"]: result for name in reversed(names) for result in reversed(read(name)["results"])}

    def cell(result: Result, method: str) -> str:
        return written(value(result, method, "ratio"), lambda ratio: f"x{ratio:.2f}")

    table = of_networks(list(results.values())[::-1], ("excess", "paper", "torchjd", "official"), cell)
    return "\n".join([table, *(origin(name) for name in names)])


def memory() -> str:
    """Peaks of the present engine."""
    results = read("rewrite_cuda")["after"][0]
    return of_networks(
        results, ("plain", "excess", "paper"), lambda own, method: f"{value(own, method, 'peak_mb'):,.0f}"
    )


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


PAGE = Page(
    DOCS / "performance.md",
    {
        "now_cpu": partial(now, "cpu"),
        "now_cuda": partial(now, "cuda"),
        "peers_cpu": partial(peers, "bench_cpu"),
        "peers_cuda": partial(peers, "bench_cuda", "bench_cuda_resnet64", "bench_cuda_bert"),
        "memory": memory,
        "ways": ways,
    },
)
