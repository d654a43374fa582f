"""Mistakes and mishaps as one line and an exit code, not as a traceback."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import typer
from rich.console import Console

from excessmtl.lab.data.base import DataNotFoundError
from excessmtl.lab.runs.checkpoint import CheckpointError

USAGE, INTERRUPTED = 2, 130
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


def plain_errors(command: Callable[..., None], interrupted: str = "nothing was changed") -> Callable[..., None]:
    """What a user can mend becomes `error: ...` and exit code 2; `interrupted` is said after Ctrl-C."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            _telling_interrupts(command, *args, **kwargs)
        except (ValueError, DataNotFoundError, CheckpointError) as error:
            errors.print(f"error: {error}")
            raise typer.Exit(USAGE) from None
        except torch.OutOfMemoryError:
            errors.print("error: the device has not enough memory; lower --batch-size")
            raise typer.Exit(USAGE) from None
        except OSError as error:
            place = f" {error.filename}" if error.filename else ""
            errors.print(f"error: cannot read or write{place}: {error.strerror or error}")
            raise typer.Exit(USAGE) from None
        except KeyboardInterrupt:
            errors.print(f"interrupted; {interrupted}")
            raise typer.Exit(INTERRUPTED) from None

    return wrapped


def _telling_interrupts(command: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Ctrl-C while a file is being written may surface as an error of its writer; it is Ctrl-C all the same."""
    try:
        command(*args, **kwargs)
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
            cause = cause.__context__
        raise
