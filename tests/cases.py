"""Helpers for tests with many cases."""

from contextlib import contextmanager

import pytest


def each(name, values):
    """Parametrise over `values`, by their names."""
    return pytest.mark.parametrize(name, values, ids=str)


@contextmanager
def or_refused(word):
    """Inside all goes well, or a ValueError says why not, with this word in it."""
    try:
        yield
    except ValueError as error:
        if word not in str(error):
            raise
