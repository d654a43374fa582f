"""Rules without a balancer: an observation made of four numbers, and every rule there is."""

import torch

import excessmtl.methods
from excessmtl.gradients.samples import Sample
from excessmtl.methods.observation import Observation

LOSSES_ONLY = ("uniform", "static", "groupdro", "imtl_l", "uw", "dtp", "dwa", "rlw")
LOSSES_ONLY += ("uw_so", "igb", "log_loss", "gls", "stch", "famo", "cosmos", "pbi", "ldc_mtl")
GRADIENTS = ("gradnorm", "mgda", "imtl", "imtl_hybrid", "moml", "pcgrad", "cagrad", "graddrop", "nash")
GRADIENTS += ("fairgrad", "upgrad", "dualproj", "aligned_mtl", "config", "gradvac", "pcd", "krum", "sdmgrad", "modo")
GRADIENTS += ("auto_lambda", "moco", "db_mtl", "trimmed_mean", "autoscale", "forum")
FREE = ("mgda", "imtl", "pcgrad", "cagrad", "nash", "fairgrad", "upgrad", "dualproj", "aligned_mtl", "config", "krum")
"""No memory: the weights of a step are a function of its gradients alone."""
VARIANTS = [(name, {}) for name in (*LOSSES_ONLY, *GRADIENTS)]
VARIANTS += [("mgda", {"normalize": way}) for way in ("l2", "loss", "loss+")]
VARIANTS += [("mgda", {"solver": "frank-wolfe"}), ("groupdro", {"step_size": 2.0}), ("dwa", {"window": 2})]
VARIANTS += [("nash", {"max_norm": None}), ("cagrad", {"rescale": 2, "c": 0.8}), ("uw", {"kinds": "classification"})]
VARIANTS += [("igb", {"base_epoch": 0, "window": 1}), ("stch", {"warmup_epochs": 0, "window": 1, "mu": 0.1})]
VARIANTS += [("fairgrad", {"alpha": 0.5}), ("fairgrad", {"alpha": 2.0, "max_norm": None})]
VARIANTS += [("moml", {"normalize": way}) for way in ("none", "loss")]
VARIANTS += [("aligned_mtl", {"size": size}) for size in ("median", "rmse")]
VARIANTS += [("gradvac", {"rate": 0.5}), ("krum", {"selected": 2}), ("pcd", {"tau": 0.5})]
VARIANTS += [("dtp", {"gamma": 2.0, "rate": 1.0}), ("graddrop", {"leak": 0.5})]
VARIANTS += [("ldc_mtl", {"compare": "plain"}), ("autoscale", {"windows": 2, "window": 1})]


def rule_of(name, tasks=3, **options):
    return excessmtl.methods.registry()[name](**options).bind([f"task{i}" for i in range(tasks)])


def start(rule, tasks, width=None):
    """`width`: of the gradients; only rules that remember gradients have to know it."""
    width = 3 * tasks if width is None else width
    return rule.init(tasks, [torch.Size([width])])


def observe(gradients, losses=None, ok=None, z=None, seed=0, **more):
    """What a step with these task gradients [m, n] shows; tasks that are not ok show zeros, as the engine has it.

    For GradDrop the gradient of a task is that of one sample, at features `z` (ones if not given).
    """
    gradients = torch.as_tensor(gradients, dtype=torch.float32)
    m = len(gradients)
    losses = torch.ones(m) if losses is None else torch.as_tensor(losses, dtype=torch.float32)
    ok = torch.ones(m, dtype=torch.bool) if ok is None else torch.as_tensor(ok)
    gradients = torch.where(ok[:, None], gradients, 0)
    z = torch.ones_like(gradients[:1]) if z is None else z
    return Observation(
        losses=torch.where(ok, losses, 0),
        ok=ok,
        rows=(gradients,),
        matrix=gradients,
        positions=(0,),
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


def direction(weights, gradients):
    return weights @ torch.as_tensor(gradients, dtype=torch.float32)
