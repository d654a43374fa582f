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
        own = [row for row in rows if row.label == label and row.cells[measure.key].spread.count]
        cells = [row.cells[measure.key].spread for row in own]
        if cells:
            curves.append(
                {
                    "label": label,
                    "noise": [row.noise for row in own],
                    "mean": [float(f"{cell.mean:.6g}") for cell in cells],
                    "deviation": [float(f"{cell.deviation:.3g}") if cell.count > 1 else 0 for cell in cells],
                    "seeds": [cell.count for cell in cells],
                }
            )
    return curves
