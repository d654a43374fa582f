"""Looking for the linear layers by which tasks take z."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from excessmtl.engine.graph import leaf_of
from excessmtl.engine.private_torch import has_hooks, is_cast, linear_layer
from excessmtl.fast.linear_heads import Linear, LinearHeads
from excessmtl.fast.separate_heads import SeparateHeads

_DTYPES = (torch.float64, torch.float32, torch.bfloat16)
"""Not float16, which overflows where the check of the factors, which looks no further than fp32, sees nothing."""


def find_linear_layers(heads: SeparateHeads) -> LinearHeads | None:
    """The layers by which the tasks take z; None where some task takes it in another way."""
    z = heads.representation.stored
    if z.ndim != 2:
        return None
    found = [layer_above(above, heads) for above in heads.entries]
    if any(above and layer is None for above, layer in zip(heads.entries, found, strict=True)):
        return None
    if not fits(z, [layer for layer in found if layer is not None]):
        return None
    linear = LinearHeads.of(found, heads.leaves)
    return linear if linear.worth_it(z) else None


def fits(z: Tensor, layers: Sequence[Linear]) -> bool:
    """Whether these factors can be multiplied: matrices of one kind on one device."""
    tensors = [z, *(tensor for layer in layers for tensor in layer[1:] if isinstance(tensor, Tensor))]
    if z.ndim != 2 or any(tensor.dtype not in _DTYPES or tensor.device != z.device for tensor in tensors):
        return False
    return len({(layer.weight.dtype, layer.applied.dtype) for layer in layers}) == 1


def layer_above(above: Mapping[Node, Sequence[int]], heads: SeparateHeads) -> Linear | None:
    """The linear layer by which nodes take z, given with the places of z among their inputs."""
    if len(above) != 1:
        return None
    ((node, positions),) = above.items()
    repeated = heads.repeated
    if node not in repeated and is_cast(node) and node in heads.users:
        node, position = heads.users[node]
        positions = [position]
    if node in repeated or (found := linear_layer(node)) is None or positions != [found[0]]:
        return None
    place, taken, applied = found
    if taken is None or applied is None:  # not saved: the other one wants no gradient
        return None
    # This way does not pass the layer, so nobody who waits for a gradient in between would get it. Those at z will.
    own = taken.grad_fn is heads.representation.edges[0].node and len(heads.representation.edges) == 1
    if has_hooks(applied) or has_hooks(applied._base) or (not own and has_hooks(taken)):
        return None
    inputs = [child for child, _ in node.next_functions]
    transposed = inputs[place + 1]
    if transposed is None or transposed in repeated or type(transposed).__name__ != "TBackward0":
        return None
    weight = _parameter(transposed.next_functions[0][0], repeated)
    if weight is None or weight.shape != applied.shape[::-1]:
        return None
    itself = weight.data_ptr() == applied.data_ptr() and weight.dtype == applied.dtype
    applied = weight if itself else applied.t()
    if place == 0 or inputs[0] is None:
        return Linear(node, weight, None, applied)
    bias = _parameter(inputs[0], repeated)
    same = bias is not None and bias.shape == (len(applied),) and bias.dtype == weight.dtype
    return Linear(node, weight, bias, applied) if same else None


def _parameter(node: Node | None, repeated: Collection[Node]) -> Tensor | None:
    """The leaf at which the graph ends here, if it is an ordinary one that serves nothing else."""
    if node is not None and node not in repeated and is_cast(node):
        node = node.next_functions[0][0]
    leaf = None if node is None or node in repeated else leaf_of(node)
    return leaf if leaf is not None and type(leaf) in (nn.Parameter, Tensor) else None
