"""Why a step finds no representation, or no shared parameter: one clear sentence per cause.

Asked only when a step is going to be refused, so the whole graph may be searched.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.autograd.graph import Node

from excessmtl.distributed import fsdp
from excessmtl.graph.representation import FindRepresentation, used
from excessmtl.graph.search import leaves_among, nodes_of
from excessmtl.torch_private import compiled_among, is_reentrant_checkpoint, leaf_of, time_in_graph

if TYPE_CHECKING:
    from excessmtl.graph.inputs import StepInputs

SECOND_BACKWARD = (
    "losses have been through a backward pass already, which has freed their graph; call balancer.backward(losses) in "
    "place of loss.backward(), once, and compute the losses again for the next step"
)
_SAY_WHERE = "pass the representation as at=z, or mark it in the model by z = excessmtl.representation(z)"


def no_shared_parameter(inputs: "StepInputs") -> str:
    """Why no loss reaches a shared parameter that wants a gradient."""
    shared = inputs.shared
    if not inputs.parameters:
        return (
            f"shared ({shared.name}) is frozen: none of its {len(shared.parameters)} parameters wants a gradient, so "
            "there is nothing to balance; unfreeze what is to be trained, or train the heads alone with "
            "sum(losses.values()).backward()"
        )
    nodes = list(nodes_of(inputs.losses))
    if any(map(is_reentrant_checkpoint, nodes)):
        return (
            f"no loss leads to shared ({shared.name}) in the graph, since checkpoint(use_reentrant=True) hides what it "
            "computes; pass its output as at=z, or use_reentrant=False to checkpoint"
        )
    others = {id(leaf): leaf for leaf in leaves_among(nodes) if isinstance(leaf, nn.Parameter)}
    shapes = [tuple(leaf.shape) for leaf in others.values()][:5]
    return (
        f"shared has no parameter that a loss reaches: the losses were computed with other parameters (shapes "
        f"{shapes}), not with those of shared ({shared.name}); pass the module or parameters that the losses are "
        "computed with (a module that was copied or made anew is another one, and under torch.no_grad(), after "
        ".detach(), or after checkpoint(use_reentrant=True) of inputs that need no gradient, nothing leads back to it)"
    )


def no_representation(inputs: "StepInputs", find: FindRepresentation | None) -> str:
    """Why no representation was found that the losses were computed from."""
    shared, nodes = inputs.shared, list(nodes_of(inputs.losses))
    needs = "under fully_shard every method needs" if fsdp.in_use() else "this method needs"
    if not inputs.parameters:
        return no_shared_parameter(inputs)
    if any(map(used, nodes)):
        return SECOND_BACKWARD
    if shared.module is None:
        return (
            f"{needs} the shared representation, and shared is a list of parameters; pass it as at=z, mark it in the "
            "model by z = excessmtl.representation(z), or pass the module that computes it as shared"
        )
    if problem := whole_model(inputs, find):
        return problem
    users = _users_of(nodes, inputs.shared_ids)
    if not users and not fsdp.in_use():
        return no_shared_parameter(inputs)
    if users and all(time_in_graph(node) < shared.watched_since for node in users):
        return (
            f"{needs} the output of shared ({shared.name}), and the losses were computed before this balancer was "
            "made, which has not seen it; make the balancer before the forward, or pass the representation as at=z"
        )
    if compiled_among(nodes):
        return (
            f"{needs} the shared representation, and no loss was computed from an output of the shared module as this "
            f"balancer saw it; make the balancer before the forward, and before the first one of a compiled model, "
            f"{_SAY_WHERE}"
        )
    if shared.module not in shared.called and len(shared.called) != 1:
        return (
            f"{needs} the shared representation, and none of the {len(shared.called)} modules in shared "
            f"({shared.name}) was called to compute the losses, though their parameters were used; call them as "
            f"modules (module(x)), {_SAY_WHERE}"
        )
    return (
        f"{needs} the shared representation, and shared ({shared.name}) was not called to compute the losses, though "
        "its parameters were used; call the module itself (encoder(x), not a method of it as in encoder.encode(x)), "
        f"pass the modules that are called as a list, {_SAY_WHERE}"
    )


def around_representation(inputs: "StepInputs", find: FindRepresentation, task: str) -> str:
    """What to do about a loss that reaches a shared parameter without passing the representation."""
    loss = inputs.losses[list(inputs.tasks).index(task)]
    leaf = _shared_leaf_above(loss, inputs.shared_ids, find)
    shape = "" if leaf is None else f" (one of shape {tuple(leaf.shape)})"
    return (
        f"the loss of task {task!r} also reaches shared parameters around the representation{shape}; for a skip "
        "connection pass at= with a tuple of all tensors that heads take; for a weight that trunk and head have in "
        "common take a method that looks at the losses or at all shared parameters, e.g. 'uniform' or 'excess' with "
        "estimator='paper'"
    )


def whole_model(inputs: "StepInputs", find: FindRepresentation | None) -> str | None:
    """Whether `shared` has the heads in it: the losses need nothing else, and one task alone uses a part of it."""
    losses = {task: loss for task, loss in zip(inputs.tasks, inputs.losses, strict=True) if loss is not None}
    returned = find is not None and any(
        loss.grad_fn is not None and find(loss.grad_fn, loss.output_nr) is not None for loss in losses.values()
    )
    reason = "the losses are its own outputs"
    if not returned:
        reached = {task: leaves_among(nodes_of([loss])) for task, loss in losses.items()}
        users: dict[int, list[str]] = {}
        shapes: dict[int, tuple[int, ...]] = {}
        for task, leaves in reached.items():
            for leaf in leaves:
                if id(leaf) in inputs.shared_ids:
                    users.setdefault(id(leaf), []).append(task)
                    shapes[id(leaf)] = tuple(leaf.shape)
                elif isinstance(leaf, nn.Parameter):
                    return None
        single = next((key for key, tasks in users.items() if len(tasks) == 1), None)
        if single is None or len(losses) == 1:
            return None
        reason = f"a parameter in it, of shape {shapes[single]}, is used by task {users[single][0]!r} alone"
    return (
        f"shared ({inputs.shared.name}) is the whole model: {reason}, so heads are part of it; pass the part that all "
        "tasks share, e.g. shared=model.encoder, or shared=model with its name, z='encoder'"
    )


def _users_of(nodes: Iterable[Node], shared: frozenset[int]) -> list[Node]:
    """The nodes that take a shared parameter as an input."""
    return [node for node in nodes if any(_is_leaf_in(child, shared) for child, _ in node.next_functions)]


def _is_leaf_in(node: Node | None, shared: frozenset[int]) -> bool:
    leaf = None if node is None else leaf_of(node)
    return leaf is not None and id(leaf) in shared


def _shared_leaf_above(loss: Tensor | None, shared: frozenset[int], find: FindRepresentation) -> Tensor | None:
    stack = [] if loss is None or loss.grad_fn is None else [loss.grad_fn]
    seen = set(stack)
    while stack:
        node = stack.pop()
        leaf = leaf_of(node)
        if leaf is not None and id(leaf) in shared:
            return leaf
        for child, output in node.next_functions:
            if child is not None and child not in seen and find(child, output) is None:
                seen.add(child)
                stack.append(child)
    return None
