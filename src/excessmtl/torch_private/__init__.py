"""Every private name of PyTorch that this package uses, behind functions with plain names.

Beside each name stands why it is used, where it is in PyTorch, and what happens without it. A step then takes a little
longer or another way, with the same gradients; where something is lost, it is written there. `nodes` has the names of
autograd's nodes and of what they save, `engine` backward passes and tensors, `modules` modules and what wraps them.
"""

from excessmtl.torch_private.engine import *  # noqa: F403
from excessmtl.torch_private.modules import *  # noqa: F403
from excessmtl.torch_private.nodes import *  # noqa: F403
