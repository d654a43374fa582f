"""Warnings that point at the user's line, however many of our functions lie between it and the place that warns."""

import os
import sys
import warnings
from pathlib import Path

import torch

# `balancer(losses)` passes nn.Module, `loss.backward()` autograd, a compiled step the compiler: all of it is torch.
_NOT_THE_USER = tuple(f"{Path(package).parent}{os.sep}" for package in (__file__, torch.__file__))


def warn(message: str) -> None:
    """A UserWarning at the innermost line outside this package and torch.

    Where there is none, as on the threads of autograd that belong to a device, at the outermost line there is.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_NOT_THE_USER) and frame.f_back is not None:
        frame = frame.f_back
    names = frame.f_globals
    warnings.warn_explicit(
        message,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        names.get("__name__"),
        names.setdefault("__warningregistry__", {}),
    )
