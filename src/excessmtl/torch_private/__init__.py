"""Every private name of PyTorch that this package uses, behind functions with plain names.

Beside each name stands why it is used, where it is in PyTorch, and what happens without it. A step then takes a little
longer or another way, with the same gradients; where something is lost, it is written there. `nodes` has the names of
autograd's nodes and of what they save, `engine` backward passes and tensors, `modules` modules and what wraps them.
"""

# Tensors in nested tuples, lists and dicts, and in the types that other packages have registered there.
# https://github.com/pytorch/pytorch/blob/main/torch/utils/_pytree.py
# Without it: this package cannot be imported. So many need it that torch will not take it away in silence.
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten

from excessmtl.torch_private.engine import (
    accumulate,
    arriving_shape,
    buffers_of,
    copy_all,
    gradient_entries,
    gradients_at,
    has_hooks,
    has_node_hooks,
    hooks_disabled,
    time_in_graph,
    version,
    view_of,
    vmap_warnings_disabled,
    when_backward_ends,
)
from excessmtl.torch_private.modules import (
    clear_cublas_workspaces,
    end_allocation_to_pool,
    inside_join,
    note_data_parallel,
    original_of,
    outside_compiled_code,
    parameter_tables,
    repeatable,
)
from excessmtl.torch_private.nodes import (
    compiled_among,
    derivative_by_factor,
    has_static_graph,
    includes_compiled,
    is_cast,
    is_ddp_output,
    is_reentrant_checkpoint,
    is_transpose,
    is_unbind,
    leaf_of,
    linear_layer,
    passed_through,
    plain_linear,
    rearranges_entries,
    release_saved,
    selection,
    sums_over_samples,
    works_entry_by_entry,
)

__all__ = [
    "TreeSpec",
    "accumulate",
    "arriving_shape",
    "buffers_of",
    "clear_cublas_workspaces",
    "compiled_among",
    "copy_all",
    "derivative_by_factor",
    "end_allocation_to_pool",
    "gradient_entries",
    "gradients_at",
    "has_hooks",
    "has_node_hooks",
    "has_static_graph",
    "hooks_disabled",
    "includes_compiled",
    "inside_join",
    "is_cast",
    "is_ddp_output",
    "is_reentrant_checkpoint",
    "is_transpose",
    "is_unbind",
    "leaf_of",
    "linear_layer",
    "note_data_parallel",
    "original_of",
    "outside_compiled_code",
    "parameter_tables",
    "passed_through",
    "plain_linear",
    "rearranges_entries",
    "release_saved",
    "repeatable",
    "selection",
    "sums_over_samples",
    "time_in_graph",
    "tree_flatten",
    "tree_map",
    "tree_unflatten",
    "version",
    "view_of",
    "vmap_warnings_disabled",
    "when_backward_ends",
    "works_entry_by_entry",
]
