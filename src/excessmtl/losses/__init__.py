"""Losses per task where labels have holes."""

from excessmtl.losses.missing_labels import by_task

__all__ = ["by_task"]
