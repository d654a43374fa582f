"""The kinds of task that come with the package: a loss, metrics with unit and direction, and label noise each."""

from dataclasses import replace

from excessmtl.lab.data import losses, metrics, noise
from excessmtl.lab.data.tasks import SHARE, Kind, Metric

classification = Kind(
    losses.cross_entropy,
    (Metric("accuracy", metrics.accuracy, SHARE, True),),
    "accuracy",
    noise.wrong_classes,
    losses.CLASSES,
)
binary = Kind(
    losses.binary_cross_entropy,
    (
        Metric("accuracy", metrics.binary_accuracy, SHARE, True),
        Metric("roc_auc", metrics.roc_auc, SHARE, True),
    ),
    "accuracy",
    noise.wrong_bits,
    losses.BITS,
)
rare_binary = replace(binary, score="roc_auc")
"""For labels that are nearly all the same: always giving the frequent one has a high accuracy and ranks nothing."""
regression = Kind(
    losses.squared_error,
    (Metric("nmse", metrics.nmse, "ratio", False),),
    "nmse",
    noise.gaussian,
    losses.NUMBERS,
)


def regression_over(variance: float) -> Kind:
    """Regression whose squared error is divided by this variance, which several tasks may share."""
    return replace(regression, metrics=(Metric("nmse", metrics.error_over(variance), "ratio", False),))


segmentation = Kind(
    losses.pixel_cross_entropy,
    (
        Metric("miou", metrics.confusion, SHARE, True, 0),
        Metric("pixel_accuracy", metrics.confusion, SHARE, True, 1),
    ),
    "pixel_accuracy",
    noise.wrong_pixels,
    losses.CLASSES,
)
depth = Kind(
    losses.depth_error,
    (
        Metric("abs_error", metrics.depth_error, "m", False, 0),
        Metric("rel_error", metrics.depth_error, "ratio", False, 1),
    ),
    "rel_error",
    noise.wrong_depths,
)
normals = Kind(
    losses.cosine_distance,
    (
        Metric("angle_mean", metrics.angle, "degrees", False, 0),
        Metric("angle_median", metrics.angle, "degrees", False, 1),
        Metric("within_11.25", metrics.angle, SHARE, True, 2),
        Metric("within_22.5", metrics.angle, SHARE, True, 3),
        Metric("within_30", metrics.angle, SHARE, True, 4),
    ),
    "within_11.25",
    noise.wrong_normals,
)
