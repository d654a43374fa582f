"""The numbers of README.md and docs/how-sure.md, from the files of docs/robustness.md and docs/performance.md."""

from excessmtl.lab.compare.page import Page
from excessmtl.lab.compare.regret import counted
from research import DOCS
from research.performance import ON_GPU, medians
from research.robustness import TITLES, TOLERANCES, regrets

_RIVALS = {"uniform": "plain training", "uniform + robust loss": "the same robust losses without weights"}
_NETWORKS = {
    "resnet18-4": "a ResNet-18 with 4 tasks",
    "resnet18-40": "one with 40",
    "bert-3": "a BERT with 3",
    "bert-3-tokens": "the same with heads on every token",
    "mlp-7": "a small MLP with 7",
}


def compared() -> str:
    """What was compared, and a bullet for each of the rivals that a reader decides between."""
    judged = regrets()
    bullets = []
    for rival, name in _RIVALS.items():
        own = judged[judged["rival"] == rival]
        verdicts = {group.name: own["verdict"][own["measure"] == group.name] for group in TOLERANCES}
        parts = [f"on {TITLES[group]} {counted(found)}" for group, found in verdicts.items()]
        count = len(own) // len(TOLERANCES)
        bullets.append(f"- **Compared with {name}** ({count} comparisons), `MultiTaskLoss` is {'; '.join(parts)}.")
    head = (
        f"Over {judged['setting'].nunique()} settings on {judged['benchmark'].nunique()} data sets, with synthetic and "
        "human label noise, by 90 % intervals of paired seeds:"
    )
    return "\n".join([head, "", *bullets])


def cost() -> str:
    """A bullet on the cost of a step."""
    gpu, cpu = medians("ratio", *ON_GPU), medians("ratio", "bench_cpu")
    texts = [f"x{gpu[network]['excess']:.2f} on {name}" for network, name in _NETWORKS.items()]
    robust = [f"x{own['excess-robust']:.2f}" for own in map(gpu.get, _NETWORKS) if own and "excess-robust" in own]
    most = max(own["excess-robust"] / own["excess"] for own in cpu.values())
    return (
        f"- **Cost of a step** of `excess` on a GPU, over plain PyTorch: {', '.join(texts)}; with robust losses "
        f"{', '.join(robust)} on the ResNets and the MLP ([all measurements](docs/performance.md)). On a CPU robust "
        f"losses make a step of a small MLP up to x{most:.2f} as long."
    )


PAGES = (
    Page(DOCS.parent / "README.md", {"compared": compared, "cost": cost}),
    Page(DOCS / "how-sure.md", {"compared": compared}),
)
