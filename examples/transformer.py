"""Train a transformer on two tasks, one of them with bad labels, and see which weight each task gets.

    python examples/transformer.py                  # the robust default: about two minutes on two cores
    python examples/transformer.py --method uniform
    python examples/transformer.py --compile        # the same with a compiled trunk

Pictures of two overlapping digits are cut into 36 patches, which are the tokens. Both heads read the first token of the
trunk's output. Some labels of the second digit are replaced by random ones; the test labels are all right.
"""

import argparse

import torch
from digits import print_table
from torch import Tensor, nn
from torch.nn import functional as F

import excessmtl
from excessmtl.lab.data.multimnist import load

TASKS = ["top_left", "bottom_right"]
PATCH = 6


class Trunk(nn.Module):
    """Pictures -> features of every token; the first token stands for the whole picture."""

    def __init__(self, width: int = 64, layers: int = 3, patches: int = 36) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH, width)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, patches + 1, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, pictures: Tensor) -> Tensor:
        """(batch, 36, 36) -> (batch, 37, width)."""
        patches = F.unfold(pictures.unsqueeze(1), PATCH, stride=PATCH).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(pictures), -1, -1), self.embed(patches)], dim=1) + self.positions
        for layer in self.layers:
            tokens = layer(tokens)
        return self.norm(tokens)


def main() -> None:
    """Train, then test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="excess", choices=excessmtl.list_methods())
    parser.add_argument("--noise", type=float, default=0.4, help="share of the second digit's labels that are random")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--compile", action="store_true", help="compile the trunk")
    parser.add_argument("--quick", action="store_true", help="one epoch on a few pictures")
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = load(None, seed=0, bundled=True, pairs=600 if options.quick else None)
    pictures, labels = data.train.inputs.float().div(255).to(device), data.train.targets
    noisy = torch.rand(len(pictures)) < options.noise
    labels["bottom_right"] = torch.where(noisy, torch.randint(10, noisy.shape), labels["bottom_right"])
    labels = {task: labels[task].to(device) for task in TASKS}

    trunk = Trunk().to(device)
    heads = nn.ModuleDict({task: nn.Linear(64, 10) for task in TASKS}).to(device)
    encode = torch.compile(trunk) if options.compile else trunk
    balancer = excessmtl.create(options.method, tasks=TASKS, shared=trunk)
    optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=1e-3)

    for epoch in range(1 if options.quick else options.epochs):
        for rows in torch.randperm(len(pictures), device=device).split(128):
            z = encode(pictures[rows])
            losses = {task: F.cross_entropy(heads[task](z[:, 0]), labels[task][rows]) for task in TASKS}
            optimizer.zero_grad()
            step = balancer.backward(losses)  # in place of sum(losses.values()).backward()
            optimizer.step()
        shown = ", ".join(f"{name} {value:.2f}" for name, value in step.to_dict().items() if "skipped" not in name)
        print(f"epoch {epoch + 1}: {shown}", flush=True)

    trunk.eval()
    with torch.no_grad():
        z = encode(data.test.inputs.float().div(255).to(device))
        right = {task: heads[task](z[:, 0]).argmax(1) == data.test.targets[task].to(device) for task in TASKS}
    print_table({"accuracy": {task: found.float().mean().item() for task, found in right.items()}})


if __name__ == "__main__":
    main()
