"""What to say where the packages of an extra of pyproject.toml are not installed."""

from collections.abc import Iterator
from contextlib import contextmanager


def missing(what: str, error: ModuleNotFoundError, extra: str) -> str:
    """One sentence, with a command that works in a clone."""
    package = (error.name or "").partition(".")[0]
    return f'{what} needs the package {package}; in the folder of the repository, run pip install ".[{extra}]"'


@contextmanager
def needed_by(what: str, extra: str) -> Iterator[None]:
    """Around imports: a package that is not installed is an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "excessmtl":
            raise
        raise ModuleNotFoundError(missing(what, error, extra), name=error.name) from error
