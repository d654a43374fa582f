"""The part of a balancer's state that is not in buffers, as a tensor of bytes; and keys that are not of a state.

Checkpoint formats such as safetensors hold tensors and nothing else, so that part has to be one.
"""

import base64
import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

MOST_STEPS = 2**63 - 1


def encoded(plain: Mapping[str, Any], steps: int, random: Tensor) -> Tensor:
    """[n] uint8: JSON. `plain` is what never changes, `random` the state of a random stream.

    The length does not depend on `steps`: some checkpoint formats load into the tensors of a fresh state.
    """
    stream = base64.b64encode(bytes(random.tolist())).decode()
    text, longest = (json.dumps({**plain, "steps": number, "random": stream}) for number in (steps, MOST_STEPS))
    return torch.frombuffer(bytearray(text.ljust(len(longest)).encode()), dtype=torch.uint8)


def decoded(state: Any) -> dict[str, Any]:
    """What was encoded, the random stream as a tensor; a ValueError for anything else."""
    if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.is_meta:
        raise ValueError("state has no '_extra_state' entry of a balancer; pass what state_dict() returned")
    try:
        content = json.loads(bytes(state.tolist()))
        if "random" in content:
            content["random"] = torch.frombuffer(bytearray(base64.b64decode(content["random"])), dtype=torch.uint8)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError("state has an '_extra_state' entry that cannot be read; it is damaged") from error
    if not isinstance(content, dict) or "version" not in content:
        raise ValueError("state has an '_extra_state' entry of something else; pass what state_dict() returned")
    return content


def check_keys(module: nn.Module, state_dict: Mapping[str, Any], prefix: str = "") -> None:
    """A ValueError for keys that are not the module's; `nn.Module` reports them when everything has been written."""
    children = tuple(f"{prefix}{name}." for name, _ in module.named_children())
    listed = [named("", False, False) for named in (module.named_parameters, module.named_buffers)]
    own = {prefix + name for name, _ in chain(*listed)} | {prefix + "_extra_state"}
    mine = [key for key in state_dict if key.startswith(prefix)]
    unexpected = [key for key in mine if key not in own and not key.startswith(children)]
    if unexpected:
        raise ValueError(f"state has unexpected keys {unexpected[:5]}; pass what state_dict() returned")
