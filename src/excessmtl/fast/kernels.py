"""Whether the kernels of `triton_kernels.py` can be used: there is a plain way beside each of them."""

import importlib.util
import warnings
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_TENSOR_CORES = (8, 0)
"""The first GPUs whose tensor cores multiply what the kernels multiply."""


def kernels_for(tensor: Tensor) -> ModuleType | None:
    """The kernels, if they can read this tensor."""
    if tensor.device.type != "cuda" or tensor.dtype not in _DTYPES:
        return None
    return _kernels(tensor.device, tensor.dtype)


@lru_cache(maxsize=64)
def _kernels(device: torch.device, dtype: torch.dtype) -> ModuleType | None:
    if torch.version.hip is not None or torch.cuda.get_device_capability(device) < _TENSOR_CORES:
        return None
    if importlib.util.find_spec("triton") is None:
        return None
    try:
        kernels = importlib.import_module("excessmtl.fast.triton_kernels")
        trial = torch.zeros(1, 64, 64, device=device, dtype=dtype)
        kernels.weighted_sum([trial], trial[0, 0], trial[0, 0] == 0)
        for maps in (trial, trial.mT):  # channels last and not: these differ in how much shared memory they take
            kernels.outer_products(maps, maps)
    except Exception as error:  # a missing compiler, too little shared memory: whatever a machine may lack
        line = str(error).partition("\n")[0]
        warnings.warn(
            f"large maps are combined without Triton, which takes longer: {type(error).__name__}: {line}", stacklevel=2
        )
        return None
    return kernels
