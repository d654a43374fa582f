"""Every test starts from the same seed. EXCESSMTL_TEST_DEVICE says where the models live (default: cpu)."""

import pytest
import torch

torch.set_num_threads(1)  # the models are tiny: threads cost more than they bring


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
