"""What training itself shows of the labels, while it goes on."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from excessmtl.diagnosis.report import Report, TaskReport
from excessmtl.diagnosis.verdicts import Verdict
from excessmtl.methods.base import Progress

_STEPS = 100
"""A task with fewer steps has not been learned yet."""
_REDUCIBLE = 0.15
"""Training that can still remove so much of the first loss is not over."""
_LEFT = 0.75
"""A task that has more than this of its first loss left, when others have half of it or less, is suspect."""
_NOISE = 0.1
"""A loss that sees more noise than this makes its task suspect."""
_ADVICE: dict[Verdict, str] = {
    "clean": "nothing to do; excessmtl.diagnose on held-out predictions also sees labels that were memorised",
    "suspect": "call excessmtl.diagnose on held-out predictions: it tells hard from noisy",
    "not learned yet": "go on training",
    "too little evidence": "call excessmtl.diagnose on held-out predictions",
}


def live_report(
    tasks: Sequence[str], progress: Progress | None, method: str, losses: Mapping[str, Any] | None
) -> Report:
    """One entry per task, from training losses alone."""
    noise = _noise(losses or {}, tasks)
    if progress is None:
        reason = f"method {method!r} keeps no record of the losses"
        rows = [(0.0, math.nan, math.nan, math.nan)] * len(tasks)
        judged = [_by_loss_module(noise.get(task)) or ("too little evidence", reason) for task in tasks]
    else:
        rows = list(zip(*(values.tolist() for values in progress), strict=True))
        left = [loss / first if first > 0 and steps else math.nan for steps, first, loss, _ in rows]
        least = min((share for share in left if math.isfinite(share)), default=math.nan)
        judged = [
            (row[0] >= _STEPS and _by_loss_module(noise.get(task))) or _judged(int(row[0]), share, row, least)
            for task, share, row in zip(tasks, left, rows, strict=True)
        ]
    return Report(
        [
            TaskReport(
                task,
                verdict,
                reason,
                _ADVICE[verdict],
                noise_rate=noise.get(task),
                floor=_known(row[2] - row[3]),
                loss=_known(row[2]) if row[0] else None,
                excess_risk=_known(row[3]),
            )
            for task, (verdict, reason), row in zip(tasks, judged, rows, strict=True)
        ]
    )


def _judged(steps: int, left: float, row: tuple[float, ...], least: float) -> tuple[Verdict, str]:
    _, first, _, excess = row
    if steps < _STEPS:
        return "not learned yet", f"only {steps} steps so far"
    if not math.isfinite(left):
        return "too little evidence", "its loss began at zero or below, so there is nothing to compare with"
    if left >= _LEFT:
        if least <= 0.5:
            return "suspect", f"{left:.0%} of its first loss is left, where another task has {least:.0%}"
        return "not learned yet", f"{left:.0%} of its first loss is left, and no task has half of it or less"
    if excess >= _REDUCIBLE * first:
        return "not learned yet", f"training can still remove {excess / first:.0%} of its first loss"
    return "clean", f"its loss has come down to {left:.0%} of what it was"


def _by_loss_module(noise: float | None) -> tuple[Verdict, str] | None:
    """Where a robust loss has seen noise."""
    if noise is None or noise < _NOISE:
        return None
    return "suspect", f"its loss takes a share of {noise:.2f} of the labels for noise"


def _noise(losses: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, float]:
    unknown = next((task for task in losses if task not in tasks), None)
    if unknown is not None:
        raise ValueError(f"losses names unknown task {unknown!r}; the tasks are {list(tasks)}")
    noises = {task: getattr(module, "noise", None) for task, module in losses.items()}
    return {task: float(noise) for task, noise in noises.items() if noise is not None and math.isfinite(float(noise))}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
