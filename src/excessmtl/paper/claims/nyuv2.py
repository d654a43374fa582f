"""Section 4.4, Figure 8: NYUv2 over noise levels in the segmentation labels."""

from excessmtl.paper.claims.judging import Check, Finding, every, excess
from excessmtl.paper.claims.measures import advantage, harm, high_noise, levels, task_score
from excessmtl.paper.claims.rules import beats_all, declines_monotonically, favours_noisy
from excessmtl.paper.claims.verdicts import claim
from excessmtl.paper.methods import ADAPTIVE_RIVALS, GROUPDRO, SINGLE_TASK, UNIFORM
from excessmtl.paper.subjects import Subject

SEGMENTATION, DEPTH, NORMALS = "segmentation", "depth", "normals"
_DRAMATIC = 5
"""Margins: 5 points of a share, 50 % of an error."""


@claim("4.4, Fig. 8", "ExcessMTL is best on both clean tasks at all noise levels.", on="nyuv2")
def best_on_clean(subject: Subject) -> Finding:
    """At each noise level its mean relative depth error is below, and its mean share of normals within 11.25 degrees
    above, those of all rivals and uniform weighting.
    """

    def test(shown: str) -> Check:
        high_noise(subject, shown)
        found = [
            beats_all(subject, shown, (*ADAPTIVE_RIVALS, UNIFORM), level, task_score(task))
            for level in levels(subject, shown)
            for task in (DEPTH, NORMALS)
        ]
        return Check(all(check.ok for check in found), "; ".join(check.text for check in found))

    return excess(test)


@claim("4.4, Fig. 8", "The other adaptive methods give the noisy task more weight the more noise there is.", on="nyuv2")
def rivals_favour_noisy(subject: Subject) -> Finding:
    """For each rival the weight of the clean tasks at the highest noise level is below 2/3, and at least 0.05 lower
    than without noise, 90 % interval above 0.
    """
    return every(ADAPTIVE_RIVALS, lambda shown: favours_noisy(subject, shown))


@claim("4.4, Fig. 8", "The other methods fail dramatically on the clean tasks when there is much noise.", on="nyuv2")
def rivals_fail(subject: Subject) -> Finding:
    """For each rival, at the highest noise level the relative depth error is at least 50 % higher or the share of
    normals within 11.25 degrees at least 5 points lower than without noise.
    """

    def test(shown: str) -> Check:
        noise = high_noise(subject, shown)
        found = {task: harm(subject, shown, noise, task_score(task)) for task in (DEPTH, NORMALS)}
        failed = any(change.mean >= _DRAMATIC * change.margin for change in found.values())
        return Check(failed, ", ".join(f"{task} worse by {change}" for task, change in found.items()))

    return every(ADAPTIVE_RIVALS, test)


@claim("4.4, Fig. 8", "GroupDRO and uniform weighting undertrain the normals even without noise.", on="nyuv2")
def normals_undertrained(subject: Subject) -> Finding:
    """Without noise their share of normals within 11.25 degrees is more than 1 point below the single-task network's,
    90 % interval above 0.
    """

    def test(shown: str) -> Check:
        behind = advantage(subject, SINGLE_TASK, shown, 0.0, task_score(NORMALS))
        return Check(behind.is_clear, f"behind the single-task network by {behind}")

    return every((GROUPDRO, UNIFORM), test)


@claim("4.4, Fig. 8", "Scale processing lets ExcessMTL train all tasks in a more balanced way.", on="nyuv2")
def balanced(subject: Subject) -> Finding:
    """Without noise its share of normals within 11.25 degrees is more than 1 point above that of uniform weighting and
    of GroupDRO, 90 % intervals above 0.
    """
    rivals = (UNIFORM, GROUPDRO)
    return excess(lambda shown: beats_all(subject, shown, rivals, 0.0, task_score(NORMALS), clearly=True))


@claim("4.4, Fig. 8", "The pixel accuracy of the noisy segmentation falls monotonically with noise.", on="nyuv2")
def segmentation_declines(subject: Subject) -> Finding:
    """For the rivals and uniform weighting it is more than 1 point lower at the highest noise level than without noise
    (90 % interval above 0), and no step from one level to the next gains half a point.
    """
    pick = task_score(SEGMENTATION)
    return every((*ADAPTIVE_RIVALS, UNIFORM), lambda shown: declines_monotonically(subject, shown, pick))
