"""A guard against steps that have become slow: ratios to plain PyTorch in the same process, with wide margins."""

import sys

import torch

from excessmtl.lab.speed.measure import measure
from excessmtl.lab.speed.networks import NETWORKS
from excessmtl.lab.speed.variants import chosen

LIMITS = {
    ("mlp512-40", "uniform"): 1.6,
    ("mlp512-40", "excess"): 1.9,
    ("conv-5", "uniform"): 1.5,
    ("conv-5", "excess"): 1.6,
    ("conv-5", "paper"): 5.0,
    ("mlp-7", "excess"): 4.5,
}
SECONDS = 1.5


def main() -> int:
    """0 when every ratio is below its limit."""
    torch.set_num_threads(1)
    too_slow = 0
    for name in dict.fromkeys(network for network, _ in LIMITS):
        methods = [method for network, method in LIMITS if network == name]
        rows = measure(NETWORKS[name], chosen(methods), torch.device("cpu"), SECONDS).rows
        for row in rows[1:]:
            limit, (_, ratio, _) = LIMITS[name, row.method], row.ratio
            verdict = "ok" if ratio <= limit else "TOO SLOW"
            too_slow += ratio > limit
            print(f"{name:10} {row.method:8} x{ratio:.2f} of plain PyTorch (limit x{limit:.1f})  {verdict}")
    return int(too_slow > 0)


if __name__ == "__main__":
    sys.exit(main())
