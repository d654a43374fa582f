"""What a training loop may have got wrong in the graph of its losses: one clear sentence per mistake.

Most of this is looked for once per task, when the task first has a label: it visits the whole graph.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from excessmtl.distributed import fsdp
from excessmtl.distributed.processes import no_reduction
from excessmtl.graph import problems
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.places import Probe
from excessmtl.graph.plan import Plan
from excessmtl.graph.representation import AROUND
from excessmtl.graph.search import leaves_among, nodes_below, nodes_of, one_head_for_all
from excessmtl.torch_private import has_static_graph, inside_join, is_ddp_output, is_reentrant_checkpoint, leaf_of
from excessmtl.warn import warn


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

    def after(self, plan: Plan, whole_model: bool) -> None:
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


def _check_representation(plan: Plan, per_sample: bool) -> None:
    for z in plan.representations:
        if z.stored.ndim == 0 or z.stored.is_complex():
            kind = "a single number" if z.stored.ndim == 0 else "complex"
            raise ValueError(
                f"this method looks at the representation, and a tensor of it is {kind}; let the shared module return "
                "real features of every sample, or take a method that looks at losses or shared parameters"
            )
        if per_sample:
            z.check_unchanged()


def _check_reached(plan: Plan) -> None:
    """A ValueError if the trunk has no shared parameter in it."""
    nodes = list(nodes_below(plan.representations))
    # FSDP replaces its parameters in the graph for a while, so any leaf may be one of them.
    wanted = None if plan.second_backward else set(map(id, plan.inputs.parameters))
    leaves = [leaf for node in nodes if (leaf := leaf_of(node)) is not None]
    if any(wanted is None or id(leaf) in wanted for leaf in leaves):
        return
    if not any(map(is_reentrant_checkpoint, nodes)):  # which hides what it holds
        raise ValueError(problems.no_shared_parameter(plan.inputs))


def _check_whole_model(plan: Plan) -> None:
    """The gradients that a method looks at are those of heads where these are part of `shared`.

    A ValueError where outputs are taken for the representation. A warning where the method looks at all parameters: it
    does what was asked, and that is not what its paper does.
    """
    inputs = plan.inputs
    if inputs.at is not None or inputs.probe is Probe.LOSSES or any(reach.leaves for reach in plan.reaches):
        return
    problem = problems.whole_model(inputs, inputs.find_representation)
    if problem is not None and inputs.probe.at_representation:
        raise ValueError(problem)
    if problem is not None:
        warn(problem)


def _check_nothing_around(plan: Plan) -> None:
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


def _shared_outside(plan: Plan) -> str | None:
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
