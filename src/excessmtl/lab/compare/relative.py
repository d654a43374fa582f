"""Methods compared over metrics of different units: relative change to a baseline, and mean rank."""

from collections.abc import Mapping

import numpy as np
from scipy.stats import rankdata


def delta_m(scores: Mapping[str, float], baseline: Mapping[str, float], higher_is_better: Mapping[str, bool]) -> float:
    """Mean relative loss against a baseline in percent, each metric counting once: **lower is better**.

    The usual baseline are single-task networks; zero then means as good as they are, on average.
    All three have the same metrics, and no score of the baseline is 0.
    """
    changes = [
        (-1 if higher else 1) * (scores[name] - baseline[name]) / baseline[name]
        for name, higher in higher_is_better.items()
    ]
    return 100 * sum(changes) / len(changes)


def mean_rank(table: Mapping[str, Mapping[str, float]], higher_is_better: Mapping[str, bool]) -> dict[str, float]:
    """Rank of each method (1 is best, ties share their average), averaged over the metrics.

    Args:
        table: method -> metric -> score. A score that is not a number counts as the worst.
        higher_is_better: metric -> whether larger scores are better.
    """
    signs = np.array([-1.0 if higher else 1.0 for higher in higher_is_better.values()])
    badness = signs * [[scores[name] for name in higher_is_better] for scores in table.values()]
    ranks = rankdata(np.nan_to_num(badness, nan=np.inf, posinf=np.inf, neginf=-np.inf), axis=0)
    return dict(zip(table, ranks.mean(axis=1).tolist(), strict=True))
