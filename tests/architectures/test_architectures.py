"""Every architecture: its equation, what it declares as shared, and the gradient of methods of every kind."""

import pytest
import torch
from torch import nn

import excessmtl
from excessmtl import architectures
from excessmtl.architectures.base import mix
from models import DEVICE
from steps import assert_gradients, expected_gradients, plain_gradients

TASKS = ["a", "b", "c"]
INPUTS, WIDTH = 5, 8


def encoder():
    return nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh())


def layer():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def heads(width=WIDTH):
    return {task: nn.Linear(width, 1) for task in TASKS}


MAKE = {
    "hard": lambda: architectures.HardSharing(encoder(), heads()),
    "mmoe": lambda: architectures.MMoE(encoder, heads(), INPUTS, experts=3),
    "cgc": lambda: architectures.CGC(encoder, heads(), INPUTS),
    "ple": lambda: architectures.PLE([encoder, layer], heads(), [INPUTS, WIDTH]),
    "ple, one level": lambda: architectures.PLE([encoder], heads(), [INPUTS]),
    "dselect_k": lambda: architectures.DSelectK(encoder, heads(), experts=4),
    "cross_stitch": lambda: architectures.CrossStitch([encoder, layer], heads()),
    "mtan": lambda: architectures.MTAN([encoder(), layer()], heads(), [WIDTH, WIDTH], dimensions=0),
    "ltb": lambda: architectures.LTB([encoder, layer], heads()),
}
each = pytest.mark.parametrize("name", MAKE)


def make(name):
    torch.manual_seed(0)
    return MAKE[name]().to(DEVICE)


def losses_of(model, seed):
    torch.manual_seed(seed)
    outputs = model(torch.randn(16, INPUTS, device=DEVICE))
    return {task: (output - 1).square().mean() for task, output in outputs.items()}


@each
@pytest.mark.parametrize("method", ["uniform", "excess", "mgda", "gradnorm"])
def test_the_gradient_is_the_weighted_sum_of_the_tasks(name, method):
    model = make(name)
    parts = [model.shared] if isinstance(model.shared, nn.Module) else model.shared
    shared = [parameter for part in parts for parameter in part.parameters()]
    balancer = excessmtl.create(method, tasks=TASKS, shared=model.shared, heads="weighted")
    for step in range(2):
        model.zero_grad()
        losses = losses_of(model, step)
        parameters = list(model.parameters())
        plain = plain_gradients(losses, parameters)
        result = balancer.backward(losses)
        assert_gradients(parameters, expected_gradients(balancer, result, plain, parameters, shared))


@each
def test_what_is_declared_private_belongs_to_one_task(name):
    model = make(name)
    losses = losses_of(model, 0)
    private = model.private_parameters()
    for parameter in private:
        reached = [
            task
            for task, loss in losses.items()
            if torch.autograd.grad(loss, parameter, retain_graph=True, allow_unused=True)[0] is not None
        ]
        assert len(reached) == 1
    assert {id(one) for head in model.heads.values() for one in head.parameters()} <= {id(one) for one in private}
    assert len(private) < len(list(model.parameters()))


@each
def test_tasks_with_inputs_of_their_own(name):
    model = make(name).eval()
    x = torch.randn(4, INPUTS, device=DEVICE)
    together, apart = model(x), model(dict.fromkeys(TASKS, x))
    for task in TASKS:
        torch.testing.assert_close(together[task], apart[task])
    with pytest.raises(ValueError, match="unknown task 'x'"):
        model({"x": x})


def test_mmoe_and_cgc_mix_their_experts():
    x = torch.randn(4, INPUTS)
    mmoe, cgc = (make(name).cpu() for name in ("mmoe", "cgc"))
    weights = mmoe.gates["a"](x)
    assert weights.sum(1).tolist() == pytest.approx([1] * 4)
    expected = sum(weights[:, k, None] * expert(x) for k, expert in enumerate(mmoe.experts.experts))
    torch.testing.assert_close(mmoe(x)["a"], mmoe.heads["a"](expected))
    outputs = [*cgc.own_experts["b"](x), *cgc.shared_experts(x)]
    torch.testing.assert_close(cgc(x)["b"], cgc.heads["b"](mix(cgc.gates["b"](x), outputs)))


def test_dselect_k_chooses_exactly():
    model = make("dselect_k").cpu()
    gate = model.gates["a"]
    assert gate().sum().item() == pytest.approx(1)
    assert model.entropy() > 1
    with torch.no_grad():
        gate.codes.copy_(torch.tensor([[1.0, -1.0], [1.0, 1.0]]))  # bits 1, 0 and 1, 1: experts 1 and 3
        gate.scores.copy_(torch.tensor([0.0, torch.tensor(3.0).log()]))
    assert gate().tolist() == pytest.approx([0, 0.25, 0, 0.75])
    with pytest.raises(ValueError, match="power of two, found 3; take 4"):
        architectures.DSelectK(encoder, heads(), experts=3)


def test_cross_stitch_starts_near_separate_encoders():
    model = make("cross_stitch").cpu()
    assert model.trunk.mixtures[0].sum(1).tolist() == pytest.approx([1] * 3)
    with torch.no_grad():
        for one in model.trunk.mixtures:
            one.copy_(torch.eye(3))
    x = torch.randn(4, INPUTS)
    first, second = (stage[1] for stage in model.trunk.stages)
    torch.testing.assert_close(model(x)["b"], model.heads["b"](second(first(x))))


def test_ltb_takes_one_path_in_evaluation():
    model = make("ltb").cpu().eval()
    with torch.no_grad():
        model.choices["a"].copy_(torch.tensor([0.0, 1.0]))
        model.trunk.choices[0].copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    assert model.branches()["a"] == (0, 1)
    x = torch.randn(4, INPUTS)
    first, second = model.trunk.levels[0][0], model.trunk.levels[1][1]
    torch.testing.assert_close(model(x)["a"], model.heads["a"](second(first(x))))


@pytest.mark.parametrize("dimensions", [1, 2])
def test_mtan_on_sequences_and_maps(dimensions):
    kind = {1: nn.Conv1d, 2: nn.Conv2d}[dimensions]
    stages = [kind(3, 4, 3, padding=1), kind(4, 6, 3, stride=2, padding=1)]
    ends = {task: nn.Sequential(nn.Flatten(), nn.LazyLinear(1)) for task in TASKS}
    model = architectures.MTAN(stages, ends, [4, 6], dimensions)
    x = torch.randn(5, 3, *[8] * dimensions)
    model(x)
    balancer = excessmtl.create("excess", tasks=TASKS, shared=model.shared)
    step = balancer.backward({task: output.square().mean() for task, output in model(x).items()})
    assert step.weights.isfinite().all()
    mask = model.masks["a"][0](stages[0](x))
    assert (mask > 0).all()
    assert (mask < 1).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: architectures.MMoE(encoder, {}, INPUTS), "heads is empty"),
        (lambda: architectures.MMoE(encoder, heads(), INPUTS, experts=0), "experts.*0"),
        (lambda: architectures.PLE([encoder, layer], heads(), [INPUTS]), "features.*2 levels"),
        (lambda: architectures.MTAN([encoder()], heads(), [8], 3), "dimensions.*3"),
        (lambda: architectures.MTAN([encoder()], heads(), []), "channels.*1 stages"),
        (lambda: architectures.LTB([encoder], heads(), temperature=0), "temperature.*0"),
        (lambda: architectures.CrossStitch([], heads()), "stages is empty"),
    ],
)
def test_mistakes_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
