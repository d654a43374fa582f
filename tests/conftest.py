"""Every test starts from the same seed. EXCESSMTL_TEST_DEVICE says where the models live (default: cpu).

Examples of properties are the same in every run; HYPOTHESIS_PROFILE=explore draws new ones.
"""

import os
from contextlib import suppress

import pytest
import torch

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
