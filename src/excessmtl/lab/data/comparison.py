"""Methods compared over metrics of different units: relative change to a baseline, and mean rank."""

from collections.abc import Mapping

import numpy as np
from scipy.stats import rankdata


def _check(named: str, scores: Mapping[str, float], metrics: Mapping[str, bool]) -> None:
    if set(scores) != set(metrics):
        raise ValueError(
            f"{named} has the metrics {sorted(scores)} but higher_is_better has {sorted(metrics)}: "
            "give the same ones to both"
        )


def delta_m(scores: Mapping[str, float], baseline: Mapping[str, float], higher_is_better: Mapping[str, bool]) -> float:
    """Mean relative loss against a baseline in percent, each metric counting once: **lower is better**.

    The usual baseline are single-task networks; zero then means as good as they are, on average.
    """
    if not higher_is_better:
        raise ValueError("higher_is_better is empty: name at least one metric")
    _check("scores", scores, higher_is_better)
    _check("baseline", baseline, higher_is_better)
    zero = [name for name, value in baseline.items() if value == 0]
    if zero:
        raise ValueError(f"the baseline is 0 in {zero}: a change relative to it is not defined, leave it out")
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
    if not table or not higher_is_better:
        raise ValueError("table and higher_is_better need at least one method and one metric")
    for method, scores in table.items():
        _check(method, scores, higher_is_better)
    signs = np.array([-1.0 if higher else 1.0 for higher in higher_is_better.values()])
    badness = signs * [[scores[name] for name in higher_is_better] for scores in table.values()]
    ranks = rankdata(np.nan_to_num(badness, nan=np.inf, posinf=np.inf, neginf=-np.inf), axis=0)
    return dict(zip(table, ranks.mean(axis=1).tolist(), strict=True))
