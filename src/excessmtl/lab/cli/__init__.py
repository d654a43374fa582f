"""The command line: parse, call, print."""

import sys

from excessmtl.extras import needed_by

__all__ = ["main"]


def main() -> None:
    """Entry point of `excessmtl`."""
    try:
        with needed_by("the command line", "lab"):
            from excessmtl.lab.cli.app import app
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("excessmtl"):
            raise
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    app()
