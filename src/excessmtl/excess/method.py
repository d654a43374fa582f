"""The method "excess": three rules under one name, by estimator and by where it looks."""

from typing import Any, Literal

from excessmtl.excess.paper import PaperExcess
from excessmtl.excess.paper_at_representation import PaperExcessAtRepresentation
from excessmtl.excess.robust import RobustExcess
from excessmtl.methods.base import Rule, build, method

_RULES: dict[str, dict[str, type[Rule]]] = {
    "robust": {"representation": RobustExcess},
    "paper": {"all": PaperExcess, "representation": PaperExcessAtRepresentation},
}
"""By estimator and probe; the first probe is the default."""


@method("excess")
def excess(
    estimator: Literal["robust", "paper"] = "robust",
    probe: Literal["all", "representation"] | None = None,
    **options: Any,
) -> Rule:
    """Weights by excess risk: what training can still improve, not noise ("robust", or the paper's)."""
    if estimator not in _RULES:
        raise ValueError(f"estimator must be one of {list(_RULES)}, found {estimator!r}")
    choices = _RULES[estimator]
    if probe is not None and probe not in choices:
        raise ValueError(f"probe must be one of {list(choices)} with estimator={estimator!r}, found {probe!r}")
    chosen = choices[probe] if probe is not None else next(iter(choices.values()))
    return build(chosen, options, f"estimator={estimator!r}")


def rules() -> dict[str, type[Rule]]:
    """The options that choose a rule -> the rule; the default first."""
    return {
        f'estimator="{estimator}", probe="{probe}"': rule
        for estimator, choices in _RULES.items()
        for probe, rule in choices.items()
    }
