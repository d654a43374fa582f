"""Choosing how the gradients of a step are computed, from what the losses reach and where the rule looks."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from excessmtl.gradients.cut import Cut, FindCut, no_cut
from excessmtl.gradients.graph import Reach, explore, kinds_below, leaves_below
from excessmtl.gradients.heads import Heads, separate_heads
from excessmtl.gradients.observation import Probe

UNREACHED = (
    "shared has no parameter that a loss reaches; pass the module or parameters that the losses are computed with"
)
_NOT_CALLED = (
    "no loss was computed from an output of the shared module as this balancer saw it (make the balancer before the "
    "forward; inside a compiled model nothing can be seen)"
)


@dataclass
class Route:
    """How the gradients are going to be computed.

    "cut": heads down to the representation, then the trunk once. "direct": down to the shared parameters, for every
    task. "combined": one backward for the weighted sum of the losses.
    """

    mode: Literal["cut", "direct", "combined"]
    explored: Sequence[Reach]
    """What each loss reaches, where that is not said by `heads`."""
    overlap: bool
    """Whether walks from different losses meet on the way."""
    heads: Heads | None = None
    """The way down to the cut, where it can be walked for all tasks at once."""
    kinds: frozenset[str] = frozenset()
    """Of the nodes below the cut, where the way goes on there."""
    again: bool = False
    """Whether gradients are delivered by a second walk from the losses (see `rewalk`)."""
    streams: bool = False
    """Whether the gradients at shared parameters are let go as soon as the rule has looked at them (see `reduced`)."""

    @property
    def reaches(self) -> Sequence[Reach]:
        """What each loss reaches on its way: with "direct", no cut."""
        return self.explored if self.heads is None else self.heads.reaches(to_cut=self.mode == "cut")

    @property
    def cuts(self) -> list[Cut]:
        """All cuts, once each."""
        if self.heads is not None:
            return [self.heads.cut] if self.mode == "cut" else []
        return list({key: cut for reach in self.explored for key, cut in reach.cuts.items()}.values())


def choose_route(
    losses: Sequence[Tensor | None],
    tasks: Sequence[str],
    shared: Set[int],
    probe: Probe,
    find_cut: FindCut | None,
    *,
    explicit: bool,
    sharded: bool = False,
) -> Route:
    """The cheapest way that gives the rule what it looks at, or a ValueError that says why there is none.

    `shared`: the ids of the shared parameters. `explicit`: the cuts are the caller's `at=`, so they have to be right.
    `sharded`: shared parameters may not be the leaves of the graph, so that they cannot be walked to.
    """
    if probe is not Probe.LAYER and (heads := separate_heads(losses, shared, find_cut)) is not None:
        if probe is not Probe.SHARED:
            return Route("cut", (), overlap=False, heads=heads, again=sharded)
        if (kinds := kinds_below(heads.cut, shared)) is not None:
            return Route("direct", (), overlap=True, heads=heads, kinds=kinds)
    problem = "shared is a list of parameters" if find_cut is None else _NOT_CALLED
    if find_cut is not None and (explicit or probe is not Probe.SHARED):
        reaches, overlap = explore(losses, shared, find_cut)
        cuts = [cut for reach in reaches for cut in reach.cuts.values()]
        around = [task for task, reach in zip(tasks, reaches, strict=True) if reach.shared]
        if around and cuts:
            problem = f"the loss of task {around[0]!r} also reaches shared parameters around the representation"
        if explicit and (around or not cuts):
            raise ValueError(
                f"at does not hold the whole representation: {problem if cuts else 'no loss was computed from it'}; "
                "pass a tuple of all tensors through which the losses reach the shared parameters"
            )
        if cuts and not around and probe is not Probe.SHARED:
            return Route("cut", reaches, overlap, again=sharded)
    if probe is Probe.REPRESENTATION or sharded:
        needs = "this method needs" if probe is Probe.REPRESENTATION else "under fully_shard every method needs"
        raise ValueError(
            f"{needs} the shared representation, and {problem}; pass it as at=z, or pass the module that computes it "
            "as shared"
        )
    reaches, overlap = explore(losses, shared, no_cut)
    if not any(reach.shared for reach in reaches):
        raise ValueError(UNREACHED)
    return Route("combined" if probe is Probe.LOSSES else "direct", reaches, overlap)


def check_representation(cuts: Sequence[Cut]) -> None:
    """A ValueError if a rule cannot look at a tensor of the representation."""
    for cut in cuts:
        if cut.stored.ndim == 0 or cut.stored.is_complex():
            found = "a single number" if cut.stored.ndim == 0 else "complex"
            raise ValueError(
                f"this method looks at the representation, and a tensor of it is {found}; let the shared module return "
                "real features of every sample, or take a method that looks at losses or shared parameters"
            )


def check_nothing_around(route: Route, tasks: Sequence[str]) -> None:
    """A ValueError if a task reaches a leaf both through a single tensor of the representation and around it.

    Walking to that leaf would walk the trunk as well, once before and once with the weights. Of several tensors,
    each stops what arrives there (see `gather`), so nothing is walked twice.
    """
    below = {id(cut): {id(leaf) for leaf in leaves_below([cut])} for cut in route.cuts}
    for task, reach in zip(tasks, route.reaches, strict=True):
        if len(reach.cuts) != 1:
            continue
        (cut,) = reach.cuts
        for key, leaf in reach.leaves.items():
            if key in below[cut]:
                raise ValueError(
                    f"the loss of task {task!r} reaches a tensor of shape {tuple(leaf.shape)} outside shared both "
                    "through the representation and around it; pass at= with a tuple of all tensors that heads take"
                )


def in_several_hands(reaches: Sequence[Reach]) -> str | None:
    """A warning of parameters outside `shared` that more than one task reaches, if there are any."""
    seen: dict[int, Tensor] = {}
    common: dict[int, Tensor] = {}
    for reach in reaches:
        for key, leaf in reach.leaves.items():
            if not isinstance(leaf, nn.Parameter):  # an input that wants its gradient, for instance
                continue
            (common if key in seen else seen)[key] = leaf
    if not common:
        return None
    shapes = [tuple(leaf.shape) for leaf in common.values()][:5]
    return (
        f"{len(common)} parameters outside shared are reached by several tasks (shapes {shapes}); they get the "
        "weighted gradient. Add them to shared if they are part of the trunk; if they are heads, keep the "
        "losses as separate scalars instead of parts of one tensor"
    )
