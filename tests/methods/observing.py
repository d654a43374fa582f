"""Rules without a balancer: an observation made of four numbers."""

import torch

import excessmtl.methods
from excessmtl.gradients.task_gradients import Sample
from excessmtl.methods.observation import Observation


def rule_of(name, tasks=3, **options):
    return excessmtl.methods.registry()[name](**options).bind([f"task{i}" for i in range(tasks)])


def start(rule, tasks, width=None):
    """`width`: of the gradients; only rules that remember gradients have to know it."""
    width = 3 * tasks if width is None else width
    return rule.init(tasks, [torch.Size([width])])


def observe(gradients, losses=None, ok=None, seed=0, **more):
    """What a step with these task gradients [m, n] shows; tasks that are not ok show zeros, as the engine has it.

    For GradDrop the gradient of a task is that of one sample, at features of one.
    """
    gradients = torch.as_tensor(gradients, dtype=torch.float32)
    m = len(gradients)
    losses = torch.ones(m) if losses is None else torch.as_tensor(losses, dtype=torch.float32)
    ok = torch.ones(m, dtype=torch.bool) if ok is None else torch.as_tensor(ok)
    gradients = torch.where(ok[:, None], gradients, 0)
    z = torch.ones_like(gradients[:1])
    return Observation(
        losses=torch.where(ok, losses, 0),
        ok=ok,
        rows=(gradients,),
        matrix=gradients,
        offsets=(0,),
        samples=lambda task: [Sample(z, gradients[task][None])],
        random_stream=lambda: torch.Generator().manual_seed(seed),
        **more,
    )


def weights_of(name, gradients, losses=None, ok=None, seed=0, **options):
    """The weights of one first step."""
    rule = rule_of(name, len(gradients), **options)
    seen = observe(gradients, losses, ok, seed=seed)
    return rule.update(start(rule, len(gradients), seen.matrix.shape[1]), seen).weights
