"""Every private name of PyTorch that this package uses, behind functions with plain names.

Beside each name stands why it is used, where it is in PyTorch, and what happens without it. A step then takes a little
longer or another way, with the same gradients; where something is lost, it is written there. `nodes` has the names of
autograd's nodes and of what they save, `engine` backward passes and tensors, `modules` modules and what wraps them.
"""

# Tensors in nested tuples, lists and dicts, and in the types that other packages have registered there.
# https://github.com/pytorch/pytorch/blob/main/torch/utils/_pytree.py
# Without it: this package cannot be imported. So many need it that torch will not take it away in silence.
from torch.utils._pytree import TreeSpec as TreeSpec
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_unflatten as tree_unflatten

from excessmtl.torch_private.engine import *  # noqa: F403
from excessmtl.torch_private.modules import *  # noqa: F403
from excessmtl.torch_private.nodes import *  # noqa: F403
