"""The figures of a setting as plain numbers: measures against noise, one curve per method."""

from collections.abc import Sequence
from typing import Any

from excessmtl.lab.compare.measures import CLEAN_WEIGHT, DELTA_M, Measure, measures_of, task_key
from excessmtl.lab.compare.settings import Setting
from excessmtl.lab.compare.summary import Row


def figures_of(setting: Setting, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What the page's script draws: title, axis and the points of every method with their spread over seeds."""
    return [
        {
            "title": measure.title,
            "caption": f"{measure.title}{measure.suffix}",
            "share": measure == CLEAN_WEIGHT,
            "digits": measure.digits,
            "levels": setting.noise_levels,
            "curves": curves,
        }
        for measure in _drawn(setting)
        if (curves := _curves(measure, setting.labels, rows))
    ]


def _drawn(setting: Setting) -> list[Measure]:
    by_key = {measure.key: measure for measure in measures_of(setting)}
    if setting.common_metric is None:
        wanted = [*map(task_key, setting.tasks), DELTA_M.key, CLEAN_WEIGHT.key]
    else:
        wanted = ["overall_score", "clean_score", CLEAN_WEIGHT.key]
    return [by_key[key] for key in wanted if key in by_key]


def _curves(measure: Measure, labels: Sequence[str], rows: Sequence[Row]) -> list[dict[str, Any]]:
    curves = []
    for label in labels:
        spreads = {row.noise: row.cells[measure.key].spread for row in rows if row.label == label}
        known = {noise: spread for noise, spread in spreads.items() if spread is not None and spread.count}
        if known:
            curves.append(
                {
                    "label": label,
                    "noise": list(known),
                    "mean": [float(f"{own.mean:.6g}") for own in known.values()],
                    "deviation": [float(f"{own.deviation:.3g}") if own.count > 1 else 0 for own in known.values()],
                    "seeds": [own.count for own in known.values()],
                }
            )
    return curves
