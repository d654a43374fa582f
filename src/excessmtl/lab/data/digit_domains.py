"""Digit domains: the bundled digits drawn in four styles, a task for each; the stand-in for Office-Home.

As there, every task has pictures of its own and all tasks share the classes: what helps one style (edges,
strokes, shading) is of little use to another, so the tasks compete for a small network.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark
from excessmtl.lab.data.digits import Digits, load_digits
from excessmtl.lab.data.kinds import classification
from excessmtl.lab.data.networks import LeNet
from excessmtl.lab.data.pictures import pixel_scaling
from excessmtl.lab.data.tasks import Task

Style = Callable[[Tensor, torch.Generator], Tensor]
"""Ink between 0 and 1, [n, 1, 28, 28] -> the picture, in the same range."""

_DIGITS_PER_DOMAIN = 1000


@benchmark("digit-domains", "the bundled digits in four drawn styles, each task with inputs of its own; no file needed")
def load(seed: int, *, digits_per_domain: int = _DIGITS_PER_DOMAIN) -> Benchmark:
    """Four domains of digits.

    Args:
        seed: decides backgrounds, angles and shading of the training pictures; test pictures never change.
        digits_per_domain: how many different digits a domain has, a tenth of them for validation; no digit is
            used by two domains. All are tested on the same 1,000 digits, which none of them trains on.
    """
    if digits_per_domain not in range(20, _DIGITS_PER_DOMAIN + 1):
        raise ValueError(f"digits_per_domain must be from 20 to {_DIGITS_PER_DOMAIN}, got {digits_per_domain!r}.")
    train_digits, test_digits = load_digits()
    held_out = digits_per_domain // 10
    pictures: list[dict[str, Tensor]] = [{}, {}, {}]
    labels: list[dict[str, Tensor]] = [{}, {}, {}]
    for number, (name, style) in enumerate(STYLES.items()):
        own = train_digits[number * _DIGITS_PER_DOMAIN :][:digits_per_domain]
        draws, test_draws = _generator(seed, name), _generator(0, f"{name} test")
        parts = ((own[held_out:], draws), (own[:held_out], draws), (test_digits, test_draws))
        for part, (digits, generator) in enumerate(parts):
            pictures[part][name], labels[part][name] = _draw(digits, style, generator), digits.labels
    return Benchmark(
        "digit-domains",
        f"bundled digits in {len(STYLES)} drawn styles, {digits_per_domain:,} digits each",
        tuple(Task(name, 10, classification) for name in STYLES),
        *map(Split, pictures, labels),
        recipe=Recipe(learning_rate=1e-3, weight_decay=1e-5, batch_size=64, epochs=20),
        noisy_tasks=("plain",),
        build_trunk=lambda: LeNet(28),
        build_head=lambda task: nn.Linear(LeNet.out_features, task.outputs),
        prepare=pixel_scaling(torch.cat(list(pictures[0].values()))),
    )


def plain(ink: Tensor, _: torch.Generator) -> Tensor:
    """The digit as it is, on black: the easy domain, as Product is in Office-Home."""
    return ink


def outline(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Only the contour of the strokes, drawn on grainy paper."""
    contour = F.max_pool2d(ink, 3, 1, 1) - ink
    grain = _uniform(ink.shape, generator, 0.0, 0.5)
    return torch.maximum(0.9 * contour, grain)


def shaded(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Dark strokes on a bright ground that falls off in a random direction, some of it in stripes."""
    angle, phase, tilt = (_uniform((len(ink), 1, 1, 1), generator, 0, 2 * torch.pi) for _ in range(3))
    down, right = (torch.linspace(-1, 1, 28).view(shape) for shape in ((28, 1), (1, 28)))
    ramp = 0.7 + 0.2 * (down * angle.sin() + right * angle.cos())
    stripes = 0.12 * torch.sin(9 * (down * tilt.sin() + right * tilt.cos()) + phase)
    return (ramp + stripes) * (1 - 0.75 * ink)


def turned(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Thick soft strokes, lying on their side, give or take 25 degrees."""
    thick = F.avg_pool2d(F.max_pool2d(ink, 3, 1, 1), 3, 1, 1)
    angle = torch.pi / 2 + _uniform((len(ink),), generator, -0.44, 0.44)
    c, s, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    turn = torch.stack([c, -s, zero, s, c, zero], 1).view(-1, 2, 3)
    grid = F.affine_grid(turn, list(thick.shape), align_corners=False)
    return F.grid_sample(thick, grid, align_corners=False)


STYLES: dict[str, Style] = {"plain": plain, "outline": outline, "shaded": shaded, "turned": turned}


def _draw(digits: Digits, style: Style, generator: torch.Generator) -> Tensor:
    ink = digits.images.unsqueeze(1).float() / 255
    return (style(ink, generator).clamp(0, 1) * 255).round().to(torch.uint8).squeeze(1)


def _uniform(shape: tuple[int, ...], generator: torch.Generator, low: float, high: float) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator)


def _generator(seed: int, purpose: str) -> torch.Generator:
    # Streams of their own per purpose: the same seed also draws noise and initial weights elsewhere.
    state = np.random.SeedSequence((seed, *purpose.encode())).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> 1))
