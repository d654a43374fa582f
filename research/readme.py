"""The numbers of README.md, from the files that docs/robustness.md and docs/performance.md show."""

from pathlib import Path

from excessmtl.lab.compare.comparison import BETTER, EQUIVALENT, UNDECIDED, WORSE
from excessmtl.lab.compare.page import Page
from research.performance import ON_GPU, medians
from research.robustness import LAST, TITLES, TOLERANCES, regrets

_RIVALS = {"uniform": "plain training", "uniform + robust loss": "the same robust losses without weights"}
_WORDS = (BETTER, EQUIVALENT, UNDECIDED, WORSE)
_NETWORKS = {
    "resnet18-4": "a ResNet-18 with 4 tasks",
    "resnet18-40": "one with 40",
    "bert-3": "a BERT with 3",
    "bert-3-tokens": "the same with heads on every token",
    "mlp-7": "a small MLP with 7",
}


def compared() -> str:
    """A bullet for each of the rivals that a reader decides between."""
    last = regrets()[regrets()["epoch"] == LAST]
    bullets = []
    for rival, name in _RIVALS.items():
        parts = []
        for group in TOLERANCES:
            verdicts = last[(last["rival"] == rival) & (last["measure"] == group.name)]["verdict"]
            better, *others = ((verdicts == word).sum() for word in _WORDS)
            counts = ", ".join(f"{word} in {count}" for word, count in zip(_WORDS[1:], others, strict=True))
            parts.append(f"better on {TITLES[group.name]} in {better} of {len(verdicts)} comparisons, {counts}")
        bullets.append(f"- **Compared with {name}**, `MultiTaskLoss` is {'; '.join(parts)}.")
    return "\n".join(bullets)


def cost() -> str:
    """A bullet on the cost of a step."""
    gpu, cpu = medians("ratio", *ON_GPU), medians("ratio", "bench_cpu")
    texts = [f"x{gpu[network]['excess']:.2f} on {name}" for network, name in _NETWORKS.items()]
    most = max(own["excess-robust"] / own["excess"] for own in cpu.values())
    return (
        f"- **Cost of a step** of `excess` on a GPU, over plain PyTorch: {', '.join(texts)} "
        "([all measurements](docs/performance.md)). On a CPU robust losses make a step of a small MLP up to "
        f"x{most:.2f} as long."
    )


PAGE = Page(Path(__file__).parents[1] / "README.md", {"compared": compared, "cost": cost})
