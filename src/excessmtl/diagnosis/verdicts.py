"""From what was measured on a task to a verdict, its reason and what to do."""

from dataclasses import dataclass
from typing import Literal

from excessmtl.diagnosis.inputs import Kind
from excessmtl.diagnosis.levels import HALF, Level
from excessmtl.diagnosis.skill import LEARNED, Skill

Verdict = Literal["clean", "suspect", "noisy", "not learned yet", "too little evidence"]

LEAST_SAMPLES = 50
ENOUGH_SAMPLES = 400
"""From here on, more samples of the same kind do not help."""
NOISY = 0.08
"""At least so high is the cautious lower end of a noisy task."""
SUSPECT = 0.05
"""At least so high is the lower end of a suspect task, or else its noise rate is over twice that."""
CLEAN = 0.2
"""A clean task has no more noise than this for certain."""


@dataclass(frozen=True)
class Evidence:
    """What was measured on one task."""

    samples: int
    level: Level
    skill: Skill
    learned: float
    """The share of what good labels tell that the predictions know."""
    enough: float = HALF
    """The least share that tells a hard task from a noisy one."""
    graded: bool = True
    """Whether the predictions say which of them are the surest."""
    rated: bool = True
    """Whether they say how sure they are at all."""
    possible: bool = True
    """Whether the loss is as high as this much noise makes it."""
    agreed: bool = True
    """Whether every model that has learned the task sees the noise."""
    others_learned: bool = False
    """Whether another task of the same network has been learned."""
    pairs: int = 0
    """How many samples were labelled twice, where the level is from these."""

    @property
    def doubt(self) -> tuple[str, str] | None:
        """What would explain the predictions without a bad label, and what would tell; None where it is excluded."""
        if not self.graded:
            return "the model is wrong where it seems sure", (
                "a single tree or a few neighbours do not say which of their predictions are sure; pass those of a "
                "forest, of boosting or of a network"
            )
        if self.learned < self.enough:
            return "this task is hard", "too little has been learned to tell; second labels would"
        if not self.agreed:
            return "these samples are hard for one of the models", "another explains the labels with less noise"
        if self.level.least <= 0:
            return "errors are large for some samples or predictions only", (
                "second labels, or the predictions of another model beside these, would tell"
            )
        return None

    @property
    def interval(self) -> tuple[float, float]:
        """From 0 where no bad label is needed to explain the predictions."""
        return (0.0, self.level.high_from_0) if self.doubt and not self.pairs else (self.level.low, self.level.high)


def verdict_of(seen: Evidence) -> tuple[Verdict, str]:
    """The verdict and its reason."""
    level, skill = seen.level, seen.skill
    low, high = seen.interval
    span = f"{low:.2f} to {high:.2f}"
    rates = f"{level.rate:.2f} ({span})"
    if seen.pairs:
        return _by_second_labels(seen, rates)
    if seen.samples < LEAST_SAMPLES:
        return "too little evidence", f"only {seen.samples} held-out labels; at least {LEAST_SAMPLES} are needed"
    if skill.is_nothing:
        if seen.others_learned:
            return "suspect", (
                "the predictions say nothing about these labels, although other tasks have been learned: the labels "
                "are random, or the inputs do not hold the answer"
            )
        return "not learned yet", "the predictions say nothing about the labels of this task, nor of any other one"
    if skill.information < 2 * skill.error:
        return "too little evidence", f"{seen.samples} held-out labels do not show whether anything has been learned"
    if not seen.possible:
        return (
            "too little evidence",
            f"{seen.samples} labels fit a noise rate of {level.rate:.2f}, but the predictions are too good for it",
        )
    if level.least >= NOISY and not seen.doubt:
        return "noisy", f"labels disagree with the predictions even where these are sure: the noise rate is {rates}"
    if level.is_wide and seen.rated:
        if seen.others_learned:
            return "suspect", (
                "other tasks have been learned, this one hardly: it is hard, or labels are bad (any noise rate from "
                f"{span} fits); second labels would tell"
            )
        if skill.share < LEARNED:
            return (
                "not learned yet",
                f"too little has been learned to tell hard from noisy: any rate from {span} fits",
            )
        return (
            "too little evidence",
            f"hard and noisy cannot be told apart here: any noise rate from {span} fits",
        )
    if max(level.least, low) >= SUSPECT or level.rate >= 2 * SUSPECT:
        if seen.doubt:
            explanation, test = seen.doubt
            share = f"a share of about {level.rate:.2f} of the labels is bad" if seen.rated else "labels are bad"
            return "suspect", f"{explanation}, or {share}: {test}"
        return "suspect", f"some labels disagree with predictions that are sure: the noise rate is {rates}"
    if level.most >= CLEAN:
        return "too little evidence", f"no noise is seen, but a noise rate of up to {level.most:.2f} is not excluded"
    return "clean", f"where predictions are sure the labels agree: the noise rate is {rates}"


def _by_second_labels(seen: Evidence, rates: str) -> tuple[Verdict, str]:
    """No question of hard or noisy: two labels of one sample differ, or they do not."""
    level, where = seen.level, f"of {seen.pairs} samples labelled twice: the noise rate is {rates}"
    if level.low >= NOISY:
        return "noisy", f"the two labels differ too often or too far, {where}"
    if level.is_wide:
        return "too little evidence", f"too few samples were labelled twice, {where}"
    if level.low >= SUSPECT or level.rate >= 2 * SUSPECT:
        return "suspect", f"some labels differ, {where}"
    return "clean", f"the two labels agree, {where}"


def advice_for(verdict: Verdict, kind: Kind, samples: int, wrong: float | None, pairs: int = 0) -> str:
    """What to do, in one sentence; only what our own studies have found to help. `pairs`: labelled twice."""
    if verdict == "clean":
        return "nothing to do"
    if verdict == "suspect":
        look = "look at the most suspicious labels: report.suspects(task)"
        twice = "; or have some samples labelled a second time and pass second_labels, which tells hard from noisy"
        return look if pairs else look + twice
    if verdict == "noisy":
        count = "" if wrong is None else f" (about {round(wrong * samples)} of these {samples} are bad)"
        look = f"look at the most suspicious labels{count} with report.suspects(task), and relabel them"
        # docs/robustness.md: the noisy digit of MultiMNIST gains in 7 of 8 comparisons with uniform noise.
        return f"{look}, or train with excessmtl.losses.RobustCrossEntropy" if kind == "classification" else look
    if verdict == "not learned yet":
        return "train longer, or with a larger learning rate or network, and diagnose again"
    if pairs:
        return "have more samples labelled a second time"
    if samples < ENOUGH_SAMPLES:
        return f"hold out more labelled samples ({max(4 * samples, 4 * LEAST_SAMPLES)} or more) and diagnose again"
    return "have some of these samples labelled a second time and pass second_labels, which tells hard from noisy"
