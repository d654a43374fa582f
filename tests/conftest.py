"""Every test starts from the same seed. EXCESSMTL_TEST_DEVICE says where the models live (default: cpu).

Examples of properties are the same in every run; HYPOTHESIS_PROFILE=explore draws new ones.
"""

import os
from contextlib import suppress

import pytest
import torch

from models import IN_FULL, METHODS, Method

with suppress(ModuleNotFoundError):  # the tests of properties need it, the others do not
    from hypothesis import settings

    settings.register_profile("same", derandomize=True)
    settings.register_profile("explore")
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
os.environ["EXCESSMTL_DATA"] = "no/such/folder"  # what is in this machine's cache must not decide what tests see
torch.set_num_threads(1)  # the models are tiny: threads cost more than they bring


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)  # before the slow ones are left out
def pytest_collection_modifyitems(items):
    """A method that is not in `IN_FULL` meets every test, in one combination of the other parameters."""
    combinations = {}
    for item in items:
        method = item.callspec.params.get("method") if hasattr(item, "callspec") else None
        if isinstance(method, Method) and method.name not in IN_FULL:
            combinations.setdefault((item.nodeid.partition("[")[0], str(method)), []).append((item, method))
    for group in combinations.values():
        place = METHODS.index(group[0][1]) if group[0][1] in METHODS else 0
        kept = group[place % len(group)][0]
        for item, _ in group:
            if item is not kept:
                item.add_marker(pytest.mark.slow)
