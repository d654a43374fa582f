"""Section 4.4, Figure 8: NYUv2 over noise levels in the segmentation labels."""

from functools import partial

from excessmtl.lab.compare.measures import task_score
from excessmtl.lab.paper.claims.judging import Claim, Finding, all_of, every, excess
from excessmtl.lab.paper.claims.measures import Pick, advantage, harm, high_noise
from excessmtl.lab.paper.claims.rules import at_every_level, beats_all, declines_monotonically, favours_noisy
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, GROUPDRO, SINGLE_TASK, UNIFORM
from excessmtl.lab.paper.subjects import Subject

SEGMENTATION, DEPTH, NORMALS = (partial(task_score, task=task) for task in ("segmentation", "depth", "normals"))
_CLEAN: dict[str, Pick] = {"depth": DEPTH, "normals": NORMALS}
_DRAMATIC = 5
"""Margins: 5 points of a share, 50 % of an error."""


def _fails_dramatically(subject: Subject, shown: str) -> Finding:
    noise = high_noise(subject, shown)
    found = {task: harm(subject, shown, noise, pick) for task, pick in _CLEAN.items()}
    failed = any(change.mean >= _DRAMATIC * change.margin for change in found.values())
    return Finding(failed, ", ".join(f"{task} worse by {change}" for task, change in found.items()))


def _undertrains_normals(subject: Subject, shown: str) -> Finding:
    behind = advantage(subject, SINGLE_TASK, shown, 0.0, NORMALS)
    return Finding(behind.clear, f"behind the single-task network by {behind}")


_best = partial(beats_all, rivals=(*ADAPTIVE_RIVALS, UNIFORM))
_claim = partial(Claim, "4.4, Fig. 8", "nyuv2")
CLAIMS = (
    _claim(
        "ExcessMTL is best on both clean tasks at all noise levels.",
        "At each noise level its relative depth error is below, and its share of normals within 11.25 degrees above, "
        "those of all rivals and uniform weighting, 90 % intervals above 0.",
        excess(at_every_level(all_of(partial(_best, pick=DEPTH), partial(_best, pick=NORMALS)))),
    ),
    _claim(
        "The other adaptive methods give the noisy task more weight the more noise there is.",
        "For each rival the weight of the clean tasks at the highest noise level is below 2/3, and at least 0.05 lower "
        "than without noise, 90 % interval above 0.",
        every(ADAPTIVE_RIVALS, favours_noisy),
    ),
    _claim(
        "The other methods fail dramatically on the clean tasks when there is much noise.",
        "For each rival, at the highest noise level the relative depth error is at least 50 % higher or the share of "
        "normals within 11.25 degrees at least 5 points lower than without noise.",
        every(ADAPTIVE_RIVALS, _fails_dramatically),
    ),
    _claim(
        "GroupDRO and uniform weighting undertrain the normals even without noise.",
        "Without noise their share of normals within 11.25 degrees is more than 1 point below the single-task "
        "network's, 90 % interval above 0.",
        every((GROUPDRO, UNIFORM), _undertrains_normals),
    ),
    _claim(
        "Scale processing lets ExcessMTL train all tasks in a more balanced way.",
        "Without noise its share of normals within 11.25 degrees is more than 1 point above that of uniform weighting "
        "and of GroupDRO, 90 % intervals above 0.",
        excess(partial(beats_all, rivals=(UNIFORM, GROUPDRO), noise=0.0, pick=NORMALS, clearly=True)),
    ),
    _claim(
        "The pixel accuracy of the noisy segmentation falls monotonically with noise.",
        "For the rivals and uniform weighting it is more than 1 point lower at the highest noise level than without "
        "noise (90 % interval above 0), and no step from one level to the next gains half a point.",
        every((*ADAPTIVE_RIVALS, UNIFORM), partial(declines_monotonically, pick=SEGMENTATION)),
    ),
)
