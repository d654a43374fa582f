"""Recorded arithmetic in loops as people write them. Most of it needs a CUDA device: EXCESSMTL_TEST_DEVICE=cuda."""

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
        return {
            task: cross_entropy(output.flatten(2).mean(2) if output.ndim > 2 else output, labels[task])
            for task, output in outputs.items()
        }


def batch(seed, size=16):
    generator = torch.Generator().manual_seed(seed)
    labels = {task: torch.randint(4, (size,), generator=generator).to(DEVICE) for task in TASKS}
    return torch.randn(size, 1, 8, 8, generator=generator).to(DEVICE), labels


def train(record, around, maps=False, prepare=lambda model: model, method="excess", **options):
    """Weights of all steps and parameters at the end; `around(step)` is the loop's own way to call backward."""
    model = prepare(Images(maps).to(DEVICE))
    balancer = excessmtl.create(method, tasks=TASKS, shared=model.trunk, record=record, **options)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(7)  # of dropout
    weights = []
    for seed in range(STEPS):
        x, labels = batch(seed)
        optimiser.zero_grad()
        weights.append(around(model, balancer, x, labels).weights)
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


def on_a_stream(model, balancer, x, labels):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step = balancer.backward(model(x, labels))
    torch.cuda.current_stream().wait_stream(stream)
    return step


def same(around, kinds=1, **options):
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        wanted, _ = train(False, around, **options)
        found, balancer = train(True, around, **options)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert recorded(balancer) == kinds
    return balancer


@pytest.mark.parametrize("around", [plainly, in_bf16, in_bf16_all_of_it, under_no_grad])
@pytest.mark.parametrize("method", ["excess", "uniform", "mgda"])
def test_loops(around, method):
    same(around, method=method)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_maps_keep_their_layout(memory_format):
    def check(model, balancer, x, labels):
        seen = []

        def note(module, inputs, z):
            z.register_hook(seen.append)

        handle = model.trunk.register_forward_hook(note)
        step = balancer.backward(model(x.to(memory_format=memory_format), labels))
        handle.remove()
        assert seen[-1].is_contiguous(memory_format=memory_format)
        return step

    same(check, maps=True, prepare=lambda model: model.to(memory_format=memory_format))


@on_cuda
def test_on_another_stream():
    same(on_a_stream)


@on_cuda
def test_a_gradient_scaler_is_not_recorded():
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0)

    def scaled(model, balancer, x, labels):
        with torch.autocast("cuda", dtype=torch.float16):
            losses = model(x, labels)
        step = balancer.backward(losses, scaler=scaler)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= scaler.get_scale()
        return step

    same(scaled, kinds=0)


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


@on_cuda
def test_many_balancers_come_and_go_while_others_record():
    """Old recordings are taken apart in the middle of new ones."""
    for _ in range(12):
        model = Images().to(DEVICE)
        balancer = excessmtl.create("excess", tasks=TASKS, shared=model.trunk)
        balancer.itself = [balancer]  # only the collector finds out that nobody holds it
        for seed in range(WARM_UP + 2):
            balancer.backward(model(*batch(seed)))
        assert recorded(balancer) == 1
    assert torch.randn(4, device=DEVICE).isfinite().all()


@on_cuda
@pytest.mark.slow
def test_a_compiled_trunk():
    def compiled(model):
        model.trunk = torch.compile(model.trunk, backend="aot_eager")
        return model

    same(plainly, prepare=compiled)
