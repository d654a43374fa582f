"""From what was measured on a task to a verdict, its reason and what to do."""

from dataclasses import dataclass
from typing import Literal

from excessmtl.diagnosis.inputs import Kind
from excessmtl.diagnosis.levels import Level
from excessmtl.diagnosis.skill import Skill

Verdict = Literal["clean", "suspect", "noisy", "not learned yet", "too little evidence"]

LEAST_SAMPLES = 50
ENOUGH_SAMPLES = 400
"""From here on, more samples of the same kind do not help."""
NOISY = 0.08
"""At least so high is the cautious lower end of a noisy task."""
SUSPECT = 0.05
"""At least so high is the lower end of a suspect task, or else its noise rate is over twice that."""
WIDE = 0.5
"""An interval so wide says nothing."""
LEARNED = 0.2
"""The least skill of a task that has been learned."""


@dataclass(frozen=True)
class Evidence:
    """What was measured on one task."""

    samples: int
    level: Level
    skill: Skill
    others_learned: bool
    """Whether another task of the same network has been learned."""
    learnable: float
    """The skill of a network that knows all but the noise."""
    pairs: int = 0
    """How many samples were labelled twice, where the level is from these."""

    @property
    def hard_or_noisy(self) -> bool:
        """Whether too little of what can be learned has been: then a hard task looks like a noisy one."""
        return not self.pairs and self.skill.share < max(LEARNED, self.learnable / 2)

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return 0.0 if self.hard_or_noisy else self.level.low

    @property
    def is_impossible(self) -> bool:
        """Whether the predictions are far better than this much noise allows."""
        return self.level.least >= SUSPECT and 1 - self.skill.share < (1 - self.learnable) / 2


def verdict_of(seen: Evidence) -> tuple[Verdict, str]:
    """The verdict and its reason."""
    level, skill = seen.level, seen.skill
    span = f"{seen.low:.2f} to {level.high:.2f}"
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
    if seen.is_impossible:
        return (
            "too little evidence",
            f"{seen.samples} labels fit a noise rate of {level.rate:.2f}, but the predictions are too good for it",
        )
    if level.least >= NOISY and not seen.hard_or_noisy:
        return "noisy", f"labels disagree with the predictions even where these are sure: the noise rate is {rates}"
    if level.high - level.low >= WIDE:
        if not seen.others_learned and skill.share < LEARNED:
            return (
                "not learned yet",
                f"too little has been learned to tell hard from noisy: any rate from {span} fits",
            )
        return (
            "too little evidence",
            f"hard and noisy cannot be told apart here: any noise rate from {span} fits",
        )
    if seen.hard_or_noisy and (level.least >= SUSPECT or level.rate >= 2 * SUSPECT):
        return (
            "suspect",
            f"this task is hard, or its noise rate is about {level.rate:.2f}: too little has been learned to tell",
        )
    if level.low >= SUSPECT or level.rate >= 2 * SUSPECT:
        return "suspect", f"some labels disagree with predictions that are sure: the noise rate is {rates}"
    return "clean", f"where predictions are sure the labels agree: the noise rate is {rates}"


def _by_second_labels(seen: Evidence, rates: str) -> tuple[Verdict, str]:
    """No question of hard or noisy: two labels of one sample differ, or they do not."""
    level, where = seen.level, f"of {seen.pairs} samples labelled twice: the noise rate is {rates}"
    if level.low >= NOISY:
        return "noisy", f"the two labels differ too often or too far, {where}"
    if level.high - level.low >= WIDE:
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
