"""Five raters label the same digits, each a part of them: a head per rater on one encoder, and who is how good.

The weights are equal here: the question is how good each rater is, and a spammer must not be left untrained.

python examples/annotators.py
"""

import argparse

import torch
from digits import load, print_table
from torch import nn
from torch.nn.functional import cross_entropy

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="few epochs")
quick = parser.parse_args().quick
ERRORS = {"ann": 0.0, "bob": 0.1, "cem": 0.3, "dan": 0.5, "eve": 1.0}  # share of random answers; eve is a spammer
NONE = -100

torch.manual_seed(0)
(x, labels), _ = load()
truth = labels["digit"]
targets = {}
for rater, share in ERRORS.items():
    answers = torch.where(torch.rand(len(x)) < share, torch.randint(10, truth.shape), truth)
    targets[rater] = torch.where(torch.rand(len(x)) < 0.7, answers, NONE)  # nobody has labelled everything

held_out = torch.arange(len(x)) < len(x) // 4  # not trained on
encoder = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
heads = nn.ModuleDict({rater: nn.Linear(64, 10) for rater in ERRORS})
optimizer = torch.optim.Adam([*encoder.parameters(), *heads.parameters()], lr=1e-3)
balancer = excessmtl.create("uniform", tasks=list(ERRORS), shared=encoder)

for _ in range(4 if quick else 10):
    for rows in (~held_out).nonzero()[:, 0][torch.randperm(int((~held_out).sum()))].split(64):
        z = encoder(x[rows])
        optimizer.zero_grad()
        losses = {
            rater: cross_entropy(head(z), targets[rater][rows], ignore_index=NONE) for rater, head in heads.items()
        }
        balancer.backward(losses)
        optimizer.step()

with torch.no_grad():
    z = encoder(x[held_out])
    predictions = {rater: head(z) for rater, head in heads.items()}
report = excessmtl.diagnose(predictions, {rater: own[held_out] for rater, own in targets.items()}, ignore=NONE)
print(report, end="\n\n")
# Without a rate, the predictions say nothing about the answers: as good as random, since other raters are predicted.
rates = {one.task: 1.0 if one.noise_rate is None else one.noise_rate for one in report.tasks}
print_table({"random answers": ERRORS, "estimate": rates})
