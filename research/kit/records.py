"""The table of the runs: one row per problem, configuration, learning rate and case."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from excessmtl.files import atomic_write
from research.kit.configs import Runs
from research.kit.training import Outcome

SCORES = ("clean", "worst", "noisy", "overall")
"""Means over the clean tasks (and the worst of these), the noisy tasks and all tasks."""
COLUMNS = ("problem", "config", "lr", "level", "kind", "seed", *SCORES, "val", "cw", "eps_noisy", "eps_clean")
"""val: on noisy validation labels, lower is better. cw: the clean tasks' share of the weight. eps: estimated noise."""


def table(problem: str, runs: Runs, outcome: Outcome, noisy: Sequence[int]) -> pd.DataFrame:
    """The rows of one problem."""
    tasks = outcome.scores.shape[1]
    bad, good = list(noisy), [task for task in range(tasks) if task not in noisy]
    runs_of = [(config, rate, case) for config, rate in runs.combinations for case in runs.cases]
    frame = pd.DataFrame(
        [(problem, config.name, rate, case.level, case.kind, case.seed) for config, rate, case in runs_of],
        columns=list(COLUMNS[:6]),
    )
    scores, weights, noise = (part.cpu().numpy() for part in (outcome.scores, outcome.weights, outcome.noise))
    return frame.assign(
        clean=scores[:, good].mean(1),
        worst=scores[:, good].min(1),
        noisy=scores[:, bad].mean(1),
        overall=scores.mean(1),
        val=outcome.validation.cpu().numpy(),
        cw=weights[:, good].sum(1),
        eps_noisy=noise[:, bad].mean(1),
        eps_clean=noise[:, good].mean(1),
    )


def write(frame: pd.DataFrame, path: Path) -> None:
    """The rows of all problems, packed."""
    with atomic_write(path) as file:
        packing = {"method": "gzip", "compresslevel": 9, "mtime": 0}
        frame[list(COLUMNS)].to_csv(file, index=False, float_format="%.6g", compression=packing)
