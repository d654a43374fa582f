"""VADER: how positive is a text? Label noise of human origin: one rater to train on, the mean of all to be tested on.

Not in the paper.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark, shuffled
from excessmtl.lab.data.downloads import unpacked
from excessmtl.lab.data.hashing import dampened, hashed_counts, words
from excessmtl.lab.data.kinds import regression_over
from excessmtl.lab.data.networks import MLP
from excessmtl.lab.data.tasks import Task
from excessmtl.lab.schema import explained

FILES = {
    "films": "movieReviewSnippets",
    "products": "amazonReviewSnippets",
    "tweets": "tweets",
    "news": "nytEditorialSnippets",
}
"""Task -> how its two files begin."""
_ARCHIVE = "hutto_ICWSM_2014.tar.gz"
_FOLDER = "hutto_ICWSM_2014"
_COLUMNS = 4096
_HIDDEN = 64
_SAME = 1e-3
_Scores = npt.NDArray[np.int8]


@benchmark(
    "vader", "how positive is a text? four domains; one human rater to train on, the mean of all to be tested on"
)
def load(data: Path | None, seed: int, *, split_seed: int = 0) -> Benchmark:
    """One regression per domain, each with its own texts.

    Args:
        data: `hutto_ICWSM_2014.tar.gz`, or its folder.
        seed: decides which rater labels each text: the human noise of the run.
        split_seed: decides which texts are for training (70 %), validation (15 %) and test (15 %).

    Training and validation labels: the score from -4 to 4 of one rater, drawn for each text. Test labels: the mean of
    all its raters; errors are relative to the variance of these means. Tweets whose mean is not that of the published
    ground truth are left out.
    """
    path = sources.find("vader", data, _ARCHIVE)
    texts = read(path, path.stat().st_mtime_ns)
    inputs: list[dict[str, Tensor]] = [{}, {}, {}]
    targets: list[dict[str, Tensor]] = [{}, {}, {}]
    tasks = []
    for number, (task, (counts, scores)) in enumerate(texts.items()):
        raters = np.random.default_rng((seed, number, *b"rater"))
        drawn = torch.tensor([float(raters.choice(own)) for own in scores])
        mean = torch.tensor([float(own.mean()) for own in scores])
        tasks.append(Task(task, 1, regression_over(float(mean.var(correction=0)))))
        for part, rows in enumerate(shuffled(len(scores), (0.7, 0.15), split_seed, number, *b"vader")):
            inputs[part][task] = counts[rows]
            targets[part][task] = (mean if part == 2 else drawn)[rows]
    return Benchmark(
        "vader",
        f"VADER, {sum(len(scores) for _, scores in texts.values()):,} texts, one rater each",
        tuple(tasks),
        *map(Split, inputs, targets),
        recipe=Recipe(learning_rate=1e-3, weight_decay=1e-4, batch_size=64, epochs=6),
        noisy_tasks=("news",),
        build_trunk=lambda: nn.Sequential(nn.Dropout(0.5), MLP(_COLUMNS, _HIDDEN, layers=1), nn.Dropout(0.5)),
        build_head=lambda task: nn.Linear(_HIDDEN, task.outputs),
        prepare=dampened,
    )


@lru_cache(maxsize=1)
def read(path: Path, changed: int) -> dict[str, tuple[Tensor, list[_Scores]]]:
    """Task -> the texts as counts, and all scores of each; `changed` is when the file was."""
    texts = {}
    wrong = explained(f"{path} is not VADER's archive", "run `excessmtl data get vader`", OSError, ValueError)
    with unpacked(path) as root, wrong:
        for task, start in FILES.items():
            truth, ratings = (_rows(root, f"{start}_{what}.txt") for what in ("GroundTruth", "anonDataRatings"))
            kept, scores = [], []
            for name, (_, _, listed) in ratings.items():
                own = np.array([int(score) for score in listed.strip('[]" ').split(",")], np.int8)
                mean, text = truth.get(name, ("nan", ""))
                if abs(own.mean() - float(mean)) < _SAME:
                    kept.append(words(text))
                    scores.append(own)
            if len(kept) < 10:
                raise ValueError(f"it has {len(kept)} texts of {task} whose scores fit; at least 10 are needed")
            texts[task] = hashed_counts(kept, _COLUMNS), scores
    return texts


def _rows(root: Path, name: str) -> dict[str, list[str]]:
    """A table in the unpacked archive: first column -> the others."""
    content = (root / _FOLDER / name).read_bytes().decode("utf-8-sig", "replace")
    lines = [line.split("\t") for line in content.splitlines() if line.strip()]
    return {name: rest for name, *rest in lines}
