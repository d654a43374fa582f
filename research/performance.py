"""The tables of docs/performance.md, from docs/data/speed: by `excessmtl bench` and `python -m excessmtl.lab.speed`."""

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.table import Table
from excessmtl.lab.speed.ablation import ALL
from excessmtl.lab.speed.networks import NETWORKS
from research import DOCS


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


def medians(quantity: str, *names: str) -> dict[str, dict[str, float]]:
    """Network -> method -> the median in these files."""
    networks: dict[str, dict[str, float]] = {}
    for result in (result for name in names for result in read(name)["results"]):
        for row in result["rows"]:
            number = row[quantity][1] if isinstance(row[quantity], list) else row[quantity]
            networks.setdefault(result["network"], {})[row["method"]] = number
    return networks


def measured(quantity: str, form: str, columns: Sequence[str], *names: str) -> str:
    """A row per network of these files, a column per method."""
    rows = []
    for network, own in medians(quantity, *names).items():
        cells = [form.format(own[column]) if column in own else "–" for column in columns]
        rows.append([f"`{network}`: {NETWORKS[network].summary}", *cells])
    return Table.of_texts("", ["network", *columns], rows, words=()).as_markdown()


def ratios(columns: Sequence[str], *names: str) -> str:
    """To plain PyTorch, and where the files come from."""
    return "\n".join([measured("ratio", "x{:.2f}", columns, *names), *(origin(name) for name in names)])


def growth() -> str:
    """The ratio of a step to a plain one, by the number of tasks."""
    rows = []
    for name, device in (("growth_cpu", "CPU"), ("growth_cuda", "GPU")):
        results = read(name)["growth"]
        costs = [row["ratio"][1] for own in results for row in own["rows"] if row["method"] == "excess"]
        rows.append([device, *map("x{:.2f}".format, costs)])
    table = Table.of_texts("", ["tasks", *(str(own["tasks"]) for own in results)], rows, words=("tasks",))
    return "\n".join([table.as_markdown(), origin("growth_cpu"), origin("growth_cuda")])


def ways() -> str:
    """What a step costs without a way, over one with all of them, where that is most."""
    devices = ("cpu", "cuda")
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for device in devices:
        most: dict[tuple[str, str], tuple[float, str]] = {}
        for row in read(f"ablation_{device}")["rows"]:
            key, own = (row["method"], row["way"]), (row["ratio"][1], row["network"])
            most[key] = max(most.get(key, own), own)
        for key, (ratio, network) in most.items():
            rows.setdefault(key, dict.fromkeys(devices, "–"))[device] = f"x{ratio:.2f} ({network})"
    shown = [key for key in rows if key[1] != ALL]
    lines = [[*key, *rows[key].values()] for key in shown]
    table = Table.of_texts("", ["method", "step", "CPU, at most", "GPU, at most"], lines, words=("step",))
    return f"{table.as_markdown()}\n{origin('ablation_cpu')}\n\n{origin('ablation_cuda')}"


ON_GPU = ("bench_cuda", "bench_cuda_language")
_METHODS = ("uniform", "excess", "excess-robust", "paper", "torchjd", "official")
PAGE = Page(
    DOCS / "performance.md",
    {
        "cpu": partial(ratios, _METHODS, "bench_cpu"),
        "gpu": partial(ratios, _METHODS, *ON_GPU),
        "growth": growth,
        "memory": partial(measured, "peak_mb", "{:,.0f}", ("plain", "excess", "paper"), *ON_GPU),
        "ways": ways,
    },
)
