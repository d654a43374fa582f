"""`help(excessmtl.create)` is where a user finds the arguments."""

import inspect

import excessmtl


def test_the_help_of_create_lists_every_argument():
    text = inspect.getdoc(excessmtl.create)
    of_balancer = inspect.signature(excessmtl.Balancer).parameters
    for argument in ("name", *(name for name in of_balancer if name != "rule"), "options"):
        assert f"\n    {argument}: " in text, argument
