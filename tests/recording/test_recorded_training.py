"""Recorded arithmetic in loops as people write them; some need a CUDA device (EXCESSMTL_TEST_DEVICE=cuda)."""

import gc

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import excessmtl
from excessmtl.recording.recording import WARM_UP
from models import DEVICE
from recorded_world import recorded

pytestmark = pytest.mark.usefixtures("recording")
on_cuda = pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a CUDA device; set EXCESSMTL_TEST_DEVICE=cuda")
TASKS = ["left", "right"]
STEPS = WARM_UP + 6


class Images(nn.Module):
    """Two tasks on small images: heads on features, or on the map itself."""

    def __init__(self, maps=False):
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2)]
        self.trunk = nn.Sequential(*layers, *([] if maps else [nn.AdaptiveAvgPool2d(2), nn.Flatten()]))
        self.heads = nn.ModuleDict({task: nn.Conv2d(8, 4, 1) if maps else nn.Linear(32, 4) for task in TASKS})

    def forward(self, x, labels):
        z = self.trunk(x)
        outputs = {task: head(z) for task, head in self.heads.items()}
        means = {task: output.flatten(2).mean(2) if output.ndim > 2 else output for task, output in outputs.items()}
        return {task: cross_entropy(mean, labels[task]) for task, mean in means.items()}


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    labels = {task: torch.randint(4, (16,), generator=generator).to(DEVICE) for task in TASKS}
    return torch.randn(16, 1, 8, 8, generator=generator).to(DEVICE), labels


def train(record, around, prepare, method):
    """Weights of all steps and parameters at the end; `around` is the loop's own way to call backward."""
    model = prepare(Images(maps=around is on_maps)).to(DEVICE)
    balancer = excessmtl.create(method, tasks=TASKS, shared=model.trunk, record=record)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(7)  # of dropout
    weights = []
    for seed in range(STEPS):
        optimiser.zero_grad()
        weights.append(around(model, balancer, *batch(seed)).weights)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return [*weights, *model.state_dict().values()], balancer


def plainly(model, balancer, x, labels):
    return balancer.backward(model(x, labels))


def in_bf16(model, balancer, x, labels):
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        losses = model(x, labels)
    return balancer.backward(losses)


def in_bf16_all_of_it(model, balancer, x, labels):
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        return balancer.backward(model(x, labels))


def under_no_grad(model, balancer, x, labels):
    losses = model(x, labels)
    with torch.no_grad():
        return balancer.backward(losses)


def on_maps(model, balancer, x, labels):
    """Gradients at z are laid out as the weights are."""
    channels_last = model.trunk[0].weight.is_contiguous(memory_format=torch.channels_last)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    seen = []
    handle = model.trunk.register_forward_hook(lambda module, inputs, z: z.register_hook(seen.append) and None)
    step = balancer.backward(model(x.to(memory_format=memory_format), labels))
    handle.remove()
    assert seen[-1].is_contiguous(memory_format=memory_format)
    return step


def on_a_stream(model, balancer, x, labels):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step = balancer.backward(model(x, labels))
    torch.cuda.current_stream().wait_stream(stream)
    return step


def with_a_scaler(model, balancer, x, labels):
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
    with torch.autocast("cuda", dtype=torch.float16):
        losses = model(x, labels)
    step = balancer.backward(losses, scaler=scaler)
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= scaler.get_scale()
    return step


def unchanged(model):
    return model


def channels_last(model):
    return model.to(memory_format=torch.channels_last)


def compiled(model):
    model.trunk = torch.compile(model.trunk, backend="aot_eager")
    return model


LOOPS = [(around, unchanged, "excess") for around in (plainly, in_bf16, in_bf16_all_of_it, under_no_grad)]
LOOPS += [(in_bf16, unchanged, "mgda"), (on_maps, unchanged, "excess"), (on_maps, channels_last, "excess")]
LOOPS += [pytest.param(around, unchanged, "excess", marks=on_cuda) for around in (on_a_stream, with_a_scaler)]
LOOPS += [pytest.param(plainly, compiled, "excess", marks=[on_cuda, pytest.mark.slow])]


@pytest.mark.parametrize(("around", "prepare", "method"), LOOPS)
def test_loops(around, prepare, method):
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        wanted, _ = train(False, around, prepare, method)
        found, balancer = train(True, around, prepare, method)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert recorded(balancer) == (0 if around is with_a_scaler else 1)


@on_cuda
def test_a_graph_of_the_user_s_own_around_steps_that_were_recorded():
    model = Images().to(DEVICE)
    balancer = excessmtl.create("excess", tasks=TASKS, shared=model.trunk)
    x, labels = batch(1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(STEPS):
            balancer.backward(model(x, labels))
    torch.cuda.current_stream().wait_stream(stream)
    assert recorded(balancer) == 1
    gc.collect()
    graph = torch.cuda.CUDAGraph()
    for parameter in model.parameters():
        parameter.grad = None
    with torch.cuda.graph(graph, stream=stream):
        step = balancer.backward(model(x, labels))
    graph.replay()
    assert step.weights.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
