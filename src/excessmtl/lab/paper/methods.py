"""The methods the paper compares, by the names its figures use, and how a finished run is recognised as one of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from excessmtl.lab.compare.settings import chosen_options
from excessmtl.lab.runs.config import SINGLE

ROBUST = "ExcessMTL (ours, robust)"
PAPER = "ExcessMTL (paper)"
NORMALISED = "ExcessMTL (paper, normalised)"
UNIFORM, GRADNORM, MGDA, GROUPDRO, IMTL = "Uniform", "GradNorm", "MGDA", "GroupDRO", "IMTL"
MOML, SINGLE_TASK = "MOML", "Single-task"

PAPER_EXCESS = (PAPER, NORMALISED)
"""Algorithm 1, which the paper's claims are about; the second divides by the first value of each risk."""
ADAPTIVE_RIVALS = (GRADNORM, MGDA, GROUPDRO, IMTL)
"""The adaptive methods that the paper compares itself with."""
COMPARED = (ROBUST, PAPER, NORMALISED, UNIFORM, *ADAPTIVE_RIVALS)
"""What the figures over noise levels show."""


@dataclass(frozen=True)
class Method:
    """A method as it is configured: the arguments of a run."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


METHODS = {
    ROBUST: Method("excess"),
    PAPER: Method("excess", {"estimator": "paper"}),
    NORMALISED: Method("excess", {"estimator": "paper", "normalize": "initial"}),
    **{shown: Method(shown.lower()) for shown in (UNIFORM, GRADNORM, MGDA, GROUPDRO, IMTL, MOML)},
    SINGLE_TASK: Method(SINGLE),
}
"""In the order in which figures and tables list them."""


def shown_name(method: str, options: Mapping[str, Any], label: str, mixed: bool) -> str:
    """The paper's name of a run's method where it is configured as there, else its label.

    Args:
        method: its name in the library.
        options: as the run resolved them.
        label: what the run itself is called.
        mixed: whether the tasks have losses of different kinds. The paper divides by a warm-up mean there, and runs do
            so unless told otherwise.
    """
    set_options = chosen_options(options)
    if mixed and set_options.get("normalize") == "initial" and "warmup_steps" in set_options:
        set_options = {"estimator": "paper"}
    for title, known in METHODS.items():
        if method == known.name and set_options == dict(known.options):
            return title
    return label


def with_shown_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Collected runs with a column `shown`: what figures and tables call each one's method."""
    rows = frame[["method", "options", "label", "primary_metric"]].itertuples(index=False)
    shown = [shown_name(row[0], row[1], row[2], len(set(row[3].values())) > 1) for row in rows]
    return frame.assign(shown=shown)
