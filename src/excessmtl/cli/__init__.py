"""The command line: parse, call, print."""

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of `excessmtl`."""
    try:
        from excessmtl.cli.app import app
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("excessmtl"):
            raise
        print(
            f"error: the command line needs {error.name}; install it with: pip install 'excessmtl[lab]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app()
