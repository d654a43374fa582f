"""What a training loop may have got wrong in the graph of its losses: one clear sentence per mistake.

Most of this is looked for once per task, when the task first has a label, or when a step is going to be refused: it
visits the whole graph.
"""

from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.autograd.graph import Node

from excessmtl.distributed import fsdp
from excessmtl.distributed.processes import no_reduction
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.nodes import leaves_among, nodes_below, nodes_of, one_head_for_all
from excessmtl.graph.places import Probe
from excessmtl.graph.representation import AROUND, FindRepresentation, used
from excessmtl.torch_private import (
    compiled_among,
    has_static_graph,
    inside_join,
    is_ddp_output,
    is_reentrant_checkpoint,
    leaf_of,
    time_in_graph,
)
from excessmtl.warn import warn

if TYPE_CHECKING:
    from excessmtl.graph.plan import Plan

SECOND_BACKWARD = (
    "losses have been through a backward pass already, which has freed their graph; call balancer.backward(losses) in "
    "place of loss.backward(), once, and compute the losses again for the next step"
)
_SAY_WHERE = "pass the representation as at=z, or mark it in the model by z = excessmtl.representation(z)"


class GraphChecks:
    """Checks the plans of a balancer, and remembers what need not be checked again."""

    def __init__(self) -> None:
        self.checked: set[str] = set()
        """Tasks whose graph has been checked."""
        self._warned = False
        self._joined = False
        """Whether DistributedDataParallel has put all outputs of the model behind one node of the graph."""

    def before(self, inputs: StepInputs, method: str) -> None:
        """What must be refused before the graph is searched."""
        if inputs.probe.at_parameters:
            fsdp.check_whole(method, inputs.parameters)
        if inputs.reduction is not no_reduction and inside_join(inputs.shared.module):
            raise ValueError(
                "losses were computed inside the join() of DistributedDataParallel, where a process may have no batch "
                "left while the balancer sums its statistics over all processes; make the balancer with pool=False"
            )
        if self._new_tasks(inputs):
            _check_not_flat(inputs.losses)
            self._joined = _joined_by_ddp(inputs.losses)
            if inputs.probe.at_parameters:
                _check_reentrant(inputs, method)

    def after(self, plan: "Plan", whole_model: bool) -> None:
        """What the plan shows; nothing has been computed or freed yet. `whole_model`: whether heads may be shared."""
        inputs = plan.inputs
        if inputs.probe.at_representation:
            _check_representation(plan, inputs.per_sample)
        # A skip connection may appear at any step. Where backward passes end at the representation it is noticed there.
        if not plan.complete and (plan.at_parameters or self._new_tasks(inputs)):
            _check_nothing_around(plan)
        if self._new_tasks(inputs):
            if not plan.complete:
                _check_reached(plan)
            if not whole_model:
                _check_whole_model(plan)
            self.checked.update(self._new_tasks(inputs))
        if not self._warned and not self._joined and (warning := _shared_outside(plan)):
            self._warned = True
            warn(warning)

    def _new_tasks(self, inputs: StepInputs) -> list[str]:
        if len(self.checked) == len(inputs.tasks):
            return []
        pairs = zip(inputs.tasks, inputs.losses, strict=True)
        return [task for task, loss in pairs if loss is not None and task not in self.checked]


def _check_not_flat(losses: Sequence[Tensor | None]) -> None:
    """A ValueError if a loss was computed by a module wrapped in `FullyShardedDataParallel`, the older form of FSDP."""
    if any(map(fsdp.is_flat, leaves_among(nodes_of(losses)))):
        raise ValueError(
            "losses were computed by a module wrapped in FullyShardedDataParallel, which allows one backward pass "
            "where two are needed; shard it by torch.distributed.fsdp.fully_shard, or use DistributedDataParallel"
        )


def _joined_by_ddp(losses: Sequence[Tensor | None]) -> bool:
    """Whether DDP has put the outputs behind one node, as it does to find unused parameters.

    A ValueError where it does so because the graph is said to be static.
    """
    joined = False
    for node in nodes_of(losses):
        if is_ddp_output(node):
            joined = True
            if has_static_graph(node):
                raise ValueError(
                    "losses were computed by DistributedDataParallel(static_graph=True), which averages gradients "
                    "only when every backward pass starts at the model's output; make it with static_graph=False"
                )
    return joined


def _check_reentrant(inputs: StepInputs, method: str) -> None:
    """Checkpoints of the older kind hide their parameters from `torch.autograd.grad`."""
    nodes = list(nodes_of(inputs.losses))
    if not any(map(is_reentrant_checkpoint, nodes)):
        return
    seen = {id(leaf) for leaf in leaves_among(nodes)}
    wanted = inputs.probe.parameters(inputs.shared)
    if any(id(parameter) not in seen for parameter in wanted):
        raise ValueError(
            f"{method!r} looks at the gradients of shared parameters, and some of these are inside "
            "checkpoint(use_reentrant=True), where autograd cannot compute them per task; pass use_reentrant=False"
        )


def _check_representation(plan: "Plan", per_sample: bool) -> None:
    for z in plan.representations:
        if z.stored.ndim == 0 or z.stored.is_complex():
            kind = "a single number" if z.stored.ndim == 0 else "complex"
            raise ValueError(
                f"this method looks at the representation, and a tensor of it is {kind}; let the shared module return "
                "real features of every sample, or take a method that looks at losses or shared parameters"
            )
        if per_sample:
            z.check_unchanged()


def _check_reached(plan: "Plan") -> None:
    """A ValueError if the trunk has no shared parameter in it."""
    nodes = list(nodes_below(plan.representations))
    # FSDP replaces its parameters in the graph for a while, so any leaf may be one of them.
    wanted = None if plan.second_backward else set(map(id, plan.inputs.parameters))
    leaves = [leaf for node in nodes if (leaf := leaf_of(node)) is not None]
    if any(wanted is None or id(leaf) in wanted for leaf in leaves):
        return
    if not any(map(is_reentrant_checkpoint, nodes)):  # which hides what it holds
        raise ValueError(no_shared_parameter(plan.inputs))


def _check_whole_model(plan: "Plan") -> None:
    """The gradients that a method looks at are those of heads where these are part of `shared`.

    A ValueError where outputs are taken for the representation. A warning where the method looks at all parameters: it
    does what was asked, and that is not what its paper does.
    """
    inputs = plan.inputs
    if inputs.at is not None or inputs.probe is Probe.LOSSES or any(reach.leaves for reach in plan.reaches):
        return
    problem = whole_model(inputs, inputs.finder())
    if problem is not None and inputs.probe.at_representation:
        raise ValueError(problem)
    if problem is not None:
        warn(problem)


def _check_nothing_around(plan: "Plan") -> None:
    """A ValueError if a task reaches a leaf both through a single tensor of the representation and around it.

    Its gradient would need a backward pass through the trunk for this task, and the trunk is passed once, with the
    weights. Where there are several tensors, each of them stops what arrives there, so nothing is counted twice.
    """
    below = {id(z): {id(leaf) for leaf in leaves_among(nodes_below([z]))} for z in plan.representations}
    for task, reach in zip(plan.inputs.tasks, plan.reaches, strict=True):
        if len(reach.representations) != 1:
            continue
        (only,) = reach.representations
        for key, leaf in reach.leaves.items():
            if key in below[only]:
                raise ValueError(f"the loss of task {task!r} reaches a tensor of shape {tuple(leaf.shape)} {AROUND}")


def _shared_outside(plan: "Plan") -> str | None:
    """A warning of parameters outside `shared` that several tasks reach, if there are any."""
    if plan.separate_heads or plan.heads_compiled:
        return None
    seen: set[int] = set()
    common: dict[int, Tensor] = {}
    for reach in plan.reaches:
        for key, leaf in reach.leaves.items():
            if not isinstance(leaf, nn.Parameter):  # an input that requires a gradient, for instance
                continue
            if key in seen:
                common[key] = leaf
            seen.add(key)
    if not common or one_head_for_all(plan.leaves):  # whose rows are the tasks' own
        return None
    shapes = [tuple(leaf.shape) for leaf in common.values()][:5]
    return (
        f"{len(common)} parameters outside shared are reached by several tasks (shapes {shapes}); they get the "
        "weighted gradient. Add them to shared if they are part of the trunk; if they are heads, keep the "
        "losses as separate scalars instead of parts of one tensor"
    )


def no_shared_parameter(inputs: StepInputs) -> str:
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


def no_representation(inputs: StepInputs, find: FindRepresentation | None) -> str:
    """Why no representation was found that the losses were computed from."""
    shared, nodes = inputs.shared, list(nodes_of(inputs.losses))
    needs = "under fully_shard every method needs" if fsdp.in_use() else "this method needs"
    if not inputs.parameters:
        return no_shared_parameter(inputs)
    if any(map(used, nodes)):
        return SECOND_BACKWARD
    if not shared.modules:
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


def around_representation(inputs: StepInputs, find: FindRepresentation, task: str) -> str:
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


def whole_model(inputs: StepInputs, find: FindRepresentation | None) -> str | None:
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


def _users_of(nodes: Iterable[Node], shared: Set[int]) -> list[Node]:
    """The nodes that take a shared parameter as an input."""
    return [
        node
        for node in nodes
        if any(child is not None and id(leaf_of(child)) in shared for child, _ in node.next_functions)
    ]


def _shared_leaf_above(loss: Tensor | None, shared: Set[int], find: FindRepresentation) -> Tensor | None:
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
