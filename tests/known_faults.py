"""Marks for faults that are known and not mended yet: a test that passes in spite of its mark fails the run."""

from contextlib import contextmanager

import pytest


def known_fault(reason):
    """The whole test fails today."""
    return pytest.mark.xfail(strict=True, reason=reason)


def each(name, values, failing=(), reason=""):
    """Parametrise over `values`; those whose names are in `failing` fail today."""
    unknown = set(failing) - {str(value) for value in values}
    assert not unknown, f"no such case: {sorted(unknown)}"
    marks = {True: [known_fault(reason)], False: []}
    cases = [pytest.param(value, id=str(value), marks=marks[str(value) in failing]) for value in values]
    return pytest.mark.parametrize(name, cases)


@contextmanager
def or_refused(word):
    """Inside all goes well, or a ValueError says why not, with this word in it."""
    try:
        yield
    except ValueError as error:
        if word not in str(error):
            raise
