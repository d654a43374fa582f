"""Groups of one task: life expectancy on four continents, one of which keeps bad records.

One network without heads serves all of them, so every continent has to live with the bad records of one. Equal weights
and the balancer side by side, the error in years on countries that were not trained on. The table is Gapminder's, as it
comes with plotly.

python examples/groups.py
"""

import argparse
import csv
from pathlib import Path
from statistics import mean

import plotly.data
import torch
from torch import Tensor, nn

import excessmtl

GROUPS = ["Africa", "Americas", "Asia", "Europe"]
METHODS = ["uniform", "excess"]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="one continent with bad records, few epochs, two seeds")
parser.add_argument("--out", type=Path, help="write the errors to this CSV file")
options = parser.parse_args()
epochs, seeds = (5, 2) if options.quick else (30, 5)

frame = plotly.data.gapminder()
frame = frame[frame["continent"].isin(GROUPS)]  # Oceania has two countries
features = torch.tensor(frame[["gdpPercap", "pop", "year"]].to_numpy(), dtype=torch.float32)
features[:, :2] = features[:, :2].log()
years = torch.tensor(frame["lifeExp"].to_numpy(), dtype=torch.float32)
group = torch.tensor([GROUPS.index(name) for name in frame["continent"]])
country = torch.tensor(frame["country"].astype("category").cat.codes.to_numpy(), dtype=torch.int64)


def records(noisy: str | None, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """What was written down, and which rows are tested: a quarter of the countries, whose records stay right.

    In four fifths of the other rows of the noisy continent stands the life expectancy of some row of the world.
    """
    tested = (torch.rand(int(country.max()) + 1, generator=generator) < 0.25)[country]
    bad = (torch.rand(len(years), generator=generator) < 0.8) & ~tested
    bad &= group == (GROUPS.index(noisy) if noisy else -1)
    others = years[torch.randint(0, len(years), (len(years),), generator=generator)]
    return torch.where(bad, others, years), tested


def train(method: str, noisy: str | None, seed: int) -> dict[str, float]:
    """Continent -> root mean squared error in years."""
    generator = torch.Generator().manual_seed(seed)
    written, tested = records(noisy, generator)
    x = (features - features[~tested].mean(0)) / features[~tested].std(0)
    centre, spread = written[~tested].mean(), written[~tested].std()
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    balancer = excessmtl.create(method, tasks=GROUPS, shared=network)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    rows_to_train = torch.nonzero(~tested)[:, 0]
    for _ in range(epochs):
        for rows in rows_to_train[torch.randperm(len(rows_to_train), generator=generator)].split(64):
            squares = (network(x[rows])[:, 0] - (written[rows] - centre) / spread).square()
            optimizer.zero_grad()
            # A column per group; a row has a loss in its own column only.
            balancer.backward(torch.where(group[rows, None] == torch.arange(len(GROUPS)), squares[:, None], torch.nan))
            optimizer.step()
    with torch.no_grad():
        errors = (network(x)[:, 0] * spread + centre - years).square()
    return {name: errors[tested & (group == place)].mean().sqrt().item() for place, name in enumerate(GROUPS)}


found = []
print("error in years, mean over the continents with good records\nbad records  " + "".join(f"{m:>9}" for m in METHODS))
for noisy in (None, "Asia") if options.quick else (None, *GROUPS):
    line = []
    for method in METHODS:
        runs = [train(method, noisy, seed) for seed in range(seeds)]
        clean = [mean(error for name, error in errors.items() if name != noisy) for errors in runs]
        found += [
            {"bad_records": noisy or "none", "method": method, "seed": seed, "error": round(error, 4)}
            for seed, error in enumerate(clean)
        ]
        line.append(mean(clean))
    print(f"{noisy or 'none':<13}" + "".join(f"{error:9.2f}" for error in line))

if options.out:
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, found[0])
        writer.writeheader()
        writer.writerows(found)
