"""Write the measured tables into docs/performance.md, from the JSON in perf/results."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from excessmtl.files import atomic_write
from excessmtl.lab.speed.tables import TO_REPLAYED, as_markdown, cells, title, to_replayed

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "performance.md", ROOT / "perf" / "results"
HEADER = ("method", "ms", "quartiles", "ratio to plain", "quartiles", "peak MB", "goal")
_REPLAYED = "to_replayed"
GOALS: dict[tuple[str, str, str], tuple[str, float]] = {
    ("cpu", "mlp512-40", "excess"): ("ratio", 1.5),
    ("cpu", "conv-5", "excess"): ("ratio", 1.15),
    ("cuda", "mlp-7", "excess"): ("ratio", 1.3),
    ("cuda", "lenet-2", "excess"): ("ratio", 1.2),
    ("cuda", "resnet18-4", "excess"): ("ratio", 1.03),
    ("cuda", "resnet18-40", "excess"): ("ratio", 1.15),
    ("cuda", "segnet-3", "excess"): ("ratio", 1.05),
    ("cuda", "mlp-7", "excess-replayed"): (_REPLAYED, 1.3),
    ("cuda", "lenet-2", "excess-replayed"): (_REPLAYED, 1.2),
    ("cuda", "resnet18-4", "excess-replayed"): (_REPLAYED, 1.03),
    ("cuda", "resnet18-40", "excess-replayed"): (_REPLAYED, 1.15),
    ("cuda", "segnet-3", "excess-replayed"): (_REPLAYED, 1.05),
    ("cuda", "mlp-7", "paper-replayed"): ("ms", 5.2),
    ("cuda", "lenet-2", "paper-replayed"): ("ms", 3.6),
    ("cuda", "mlp-7", "paper"): ("ms", 5.2),
    ("cuda", "lenet-2", "paper"): ("ms", 3.6),
    ("cuda", "resnet18-4", "paper"): ("ms", 70.0),
    ("cuda", "resnet18-40", "paper"): ("ms", 340.0),
    ("cuda", "segnet-3", "paper"): ("ms", 82.0),
    ("cuda", "bert-3", "uniform"): ("ratio", 1.02),
    ("cuda", "bert-3", "excess"): ("ratio", 1.05),
    ("cuda", "bert-3-compiled", "excess"): ("ratio", 1.08),
    ("cuda", "bert-3-checkpointed", "excess"): ("ratio", 1.05),
    ("cuda", "resnet64-4", "paper"): ("ms", 72.0),
    ("cuda", "resnet64-40", "paper"): ("ms", 340.0),
}


def goal(device: str, network: str, row: Mapping[str, Any]) -> str:
    """What was to be reached, and whether it was."""
    if (device, network, row["method"]) not in GOALS:
        return ""
    quantity, limit = GOALS[device, network, row["method"]]
    shown = f"{limit:g} ms" if quantity == "ms" else f"x{limit:g}"
    where = " of plain-replayed" if quantity == _REPLAYED else ""
    return f"{shown}{where}, {'met' if row[quantity][1] <= limit else 'missed'}"


def origin(content: Mapping[str, Any]) -> str:
    """The command and the machine."""
    machine = content["machine"]
    where = machine.get("gpu") or f"{machine['cpu']}, {machine['threads']} thread"
    others = [f"{name} {machine[name]}" for name in ("cuda", "torchjd") if name in machine]
    versions = ", ".join([f"Python {machine['python']}", f"torch {machine['torch']}", *others])
    return " ".join([f"`{content['command']}` on {where}; {versions}.", content.get("note", "")]).strip()


def bench(content: Mapping[str, Any]) -> str:
    """One table per network."""
    parts = [origin(content)]
    for result in content["results"]:
        more = to_replayed(result)
        header = (*HEADER[:-1], *([TO_REPLAYED] if any(more) else []), HEADER[-1])
        rows = [
            [*cells(row), *cell, goal(content["device"], result["network"], row)]
            for row, cell in zip(result["rows"], more, strict=True)
        ]
        parts += [f"**{title(result)}**", as_markdown(header, rows)]
    return "\n\n".join(parts)


def growth(content: Mapping[str, Any]) -> str:
    """One table per quantity that grows: medians of the ratio to plain."""
    parts = [origin(content), f"![growth](../perf/results/growth_{content['device']}.svg)"]
    for curve in content["growth"]:
        methods = [row["method"] for row in curve["results"][0]["rows"]]
        fixed = ", ".join(f"{name} {value:,}" for name, value in curve["fixed"].items())
        rows = []
        for value, result in zip(curve["values"], curve["results"], strict=True):
            ratios = [f"x{row['ratio'][1]:.2f}" for row in result["rows"][1:]]
            rows.append([f"{value:,}", f"{result['rows'][0]['ms'][1]:.2f}", *ratios])
        parts.append(as_markdown((f"{curve['axis']} ({fixed})", f"{methods[0]}, ms", *methods[1:]), rows))
    return "\n\n".join(parts)


def rewrite(content: Mapping[str, Any]) -> str:
    """The engine before and after it was rewritten, on one host in alternation: medians of each run's ratios."""
    methods = [row["method"] for row in content["before"][0][0]["rows"][1:]]
    header = ["network", *(f"{method}, {when}" for method in methods for when in ("before", "after"))]
    rows = []
    for place, network in enumerate(content["before"][0]):
        cells = [network["network"]]
        for method in methods:
            for when in ("before", "after"):
                found = [_ratio(run[place], method) for run in content[when]]
                cells.append(", ".join(f"x{ratio:.2f}" for ratio in found))
        rows.append(cells)
    return f"{origin(content)}\n\n{as_markdown(header, rows)}"


def _ratio(result: Mapping[str, Any], method: str) -> float:
    return next(float(row["ratio"][1]) for row in result["rows"] if row["method"] == method)


def ablation(content: Mapping[str, Any]) -> str:
    """What a step costs without a way, over one with all of them."""
    networks = list(dict.fromkeys(row["network"] for row in content["rows"]))
    parts = {(row["method"], row["way"]): {} for row in content["rows"]}
    for row in content["rows"]:
        parts[row["method"], row["way"]][row["network"]] = f"x{row['ratio'][1]:.2f}"
    rows = [
        [method, way, *(found.get(network, "") for network in networks)]
        for (method, way), found in parts.items()
        if way != "all ways"
    ]
    return f"{origin(content)}\n\n{as_markdown(('method', 'step', *networks), rows)}"


PARTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "bench_cpu": bench,
    "bench_cuda": bench,
    "bench_cuda_bert": bench,
    "bench_cuda_resnet64": bench,
    "rewrite_cpu": rewrite,
    "rewrite_cuda": rewrite,
    "ablation_cpu": ablation,
    "ablation_cuda": ablation,
    "growth_cpu": growth,
    "growth_cuda": growth,
}


def render(page: str) -> str:
    """The page with every generated part replaced by what its file says now."""
    for name, shown in PARTS.items():
        start, end = f"<!-- {name}.json -->", f"<!-- /{name}.json -->"
        before, rest = page.split(start)
        _, after = rest.split(end)
        path = RESULTS / f"{name}.json"
        text = "Not measured yet."
        if path.exists():
            text = shown(json.loads(path.read_text()))
        page = f"{before}{start}\n\n{text}\n\n{end}{after}"
    return page


def main() -> None:
    """Rewrite the page."""
    fresh = render(PAGE.read_text())
    with atomic_write(PAGE) as file:
        file.write(fresh.encode())


if __name__ == "__main__":
    main()
