"""Low-rank adapters (LoRA) in a frozen encoder: the adapters are what the new tasks share.

    python examples/lora.py

The encoder first learns which digit it sees. Then it is frozen, and adapters learn two other questions, one of them
with bad labels.
"""

import argparse

import torch
from digits import Network, accuracy, batches, load, losses_of, print_table, with_bad_labels
from torch import Tensor, nn

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
quick = parser.parse_args().quick
NEW = ["odd", "loop"]


class LowRank(nn.Module):
    """A frozen linear layer plus a trainable product of two small matrices, which starts at zero."""

    def __init__(self, layer: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """W x + B A x."""
        return self.layer(x) + x @ self.down.T @ self.up.T


torch.manual_seed(0)
(x, labels), test = load(quick)
labels = with_bad_labels(labels, "loop", 0.4)
network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
for _ in range(1 if quick else 3):
    for pictures, their_labels in batches(x, labels):
        optimizer.zero_grad()
        losses_of(network(pictures), their_labels)["digit"].backward()
        optimizer.step()

for name, layer in list(network.encoder.named_children()):
    if isinstance(layer, nn.Linear):
        setattr(network.encoder, name, LowRank(layer))
trainable = [parameter for parameter in network.encoder.parameters() if parameter.requires_grad]
balancer = excessmtl.create("excess", tasks=NEW, shared=network.encoder)  # frozen parameters cost nothing
optimizer = torch.optim.Adam([*trainable, *network.heads.parameters()], lr=2e-3)
for _ in range(1 if quick else 4):
    for pictures, their_labels in batches(x, labels):
        losses = losses_of(network(pictures), their_labels)
        optimizer.zero_grad()
        step = balancer.backward({task: losses[task] for task in NEW})
        optimizer.step()

total = sum(parameter.numel() for parameter in network.encoder.parameters())
print(f"{sum(map(torch.Tensor.numel, trainable))} of {total} parameters of the encoder are trained")
right = accuracy(network, *test)
weights = dict(zip(NEW, step.weights.tolist(), strict=True))
print_table({"weight": weights, "accuracy": {task: right[task] for task in NEW}})
