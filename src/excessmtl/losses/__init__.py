"""Losses per task: where labels have holes, and where labels are wrong."""

from excessmtl.losses.classification import RobustBCEWithLogits, RobustCrossEntropy
from excessmtl.losses.fixed import (
    BootstrappedCrossEntropy,
    ForwardCorrectedCrossEntropy,
    GeneralizedCrossEntropy,
    GeneralRobustLoss,
    SymmetricCrossEntropy,
    estimate_transition,
)
from excessmtl.losses.missing_labels import by_task
from excessmtl.losses.regression import RobustMSELoss

__all__ = [
    "BootstrappedCrossEntropy",
    "ForwardCorrectedCrossEntropy",
    "GeneralRobustLoss",
    "GeneralizedCrossEntropy",
    "RobustBCEWithLogits",
    "RobustCrossEntropy",
    "RobustMSELoss",
    "SymmetricCrossEntropy",
    "by_task",
    "estimate_transition",
]
