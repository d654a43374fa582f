"""The laboratory as a Python API: benchmarks of your own, training runs, sweeps, tables and reports.

from excessmtl import lab

result = lab.train("multimnist", method="excess", noise=0.4, out="runs/first")
network = lab.load("runs/first")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from excessmtl.lab.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """A name of the API: its packages are imported when it is asked for, so that the command line starts quickly."""
    api = import_module("excessmtl.lab.api")
    if name == "__all__" or name in api.__all__:
        return getattr(api, name)
    raise AttributeError(f"module 'excessmtl.lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return list(import_module("excessmtl.lab.api").__all__)
