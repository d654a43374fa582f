"""A compiled encoder: `torch.compile` needs no change in the loop. The steps are those of the plain encoder.

python examples/compiled.py                # compiled code by the default backend, which needs a C++ compiler
python examples/compiled.py --quick        # without code generation
"""

import argparse

import torch
from digits import TASKS, Network, accuracy, batches, load, losses_of, print_table

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="one epoch on a few digits, backend aot_eager")
quick = parser.parse_args().quick


def train(compiled: bool) -> tuple[dict[str, float], dict[str, float]]:
    """The weights of the last step, and accuracies."""
    torch.manual_seed(0)
    data, test = load(quick)
    network = Network()
    balancer = excessmtl.create("excess", tasks=TASKS, shared=network.encoder)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    if compiled:
        network.encoder = torch.compile(network.encoder, backend="aot_eager" if quick else "inductor")
    for _ in range(1 if quick else 3):
        for x, labels in batches(*data, size=100):
            optimizer.zero_grad()
            step = balancer.backward(losses_of(network(x), labels))
            optimizer.step()
    return dict(zip(TASKS, step.weights.tolist(), strict=True)), accuracy(network, *test)


columns = {}
for name, compiled in (("plain", False), ("compiled", True)):
    weights, right = train(compiled)
    columns |= {f"weight, {name}": weights, f"accuracy, {name}": right}
print_table(columns)
