"""The documentation site has every page, and the Python on its own pages runs; `make docs` builds it."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

import excessmtl

ROOT = Path(__file__).parent.parent


def pages(nav):
    """The files a navigation names, at any depth."""
    for entry in nav:
        (below,) = entry.values()
        yield from pages(below) if isinstance(below, list) else [below]


def test_the_navigation_has_every_page_once():
    named = list(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert sorted(named) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("name", ["quickstart.md", "shared.md", "missing-labels.md"])
def test_the_page_runs_from_top_to_bottom_and_prints_what_it_shows(name, capsys):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    source = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    exec(compile(source, name, "exec"), {"__name__": "page"})
    shown = "".join(re.findall(r"```\n(task .*?)```", text, flags=re.DOTALL)).split()
    printed = capsys.readouterr().out.split()
    assert len(printed) == len(shown)
    for found, expected in zip(printed, shown, strict=True):  # the last digits depend on the machine
        assert found == expected or float(found) == pytest.approx(float(expected), rel=0.02, abs=2e-4)


def test_both_sides_of_the_diff_run():
    (diff,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    for side in "+-":
        source = "\n".join(line[2:] for line in diff.splitlines() if line[:1] in (side, " ", ""))
        model = TwoHeads()
        names = {**MODEL, "model": model, "optimizer": torch.optim.Adam(model.parameters())}
        exec(compile(source, "README.md", "exec"), names)
        assert all(parameter.grad is not None for parameter in names["model"].parameters())
        assert ("balancer" in names) == (side == "+")


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_the_first_lines_train_and_diagnose(name, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    y = {"digit": (x[:, 0] > 0).long() + (x[:, 1] > 0), "spam": (x[:, 2] > 0).float(), "price": x[:, 3].clone()}
    y["price"][::5], y["digit"][::7] = torch.nan, -100
    parts = [{task: labels[start : start + 50] for task, labels in y.items()} for start in range(0, 200, 50)]
    loader = [(x[50 * place : 50 * place + 50], part) for place, part in enumerate(parts)]
    held_out = {task: labels[200:] for task, labels in y.items()}
    names = {**MODEL, "MultiTaskModel": ThreeHeads, "held_out_x": x[200:], "held_out_y": held_out}
    exec(compile(code, name, "exec"), {**names, "loader": loader})
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()[1:4]} == set(y)


class ThreeHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.heads = nn.ModuleDict({"digit": nn.Linear(8, 3), "spam": nn.Linear(8, 1), "price": nn.Linear(8, 1)})

    def forward(self, x):
        z = self.encoder(x)
        return {task: head(z) for task, head in self.heads.items()}


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.heads = nn.ModuleDict({"digit": nn.Linear(8, 1), "colour": nn.Linear(8, 1)})

    def forward(self, x):
        z = self.encoder(x)
        return {task: head(z) for task, head in self.heads.items()}


MODEL = {
    "torch": torch,
    "excessmtl": excessmtl,
    "MultiTaskModel": TwoHeads,
    "Model": TwoHeads,
    "loss_fn": nn.functional.mse_loss,
    "loader": [(torch.ones(3, 4), {"digit": torch.zeros(3, 1), "colour": torch.ones(3, 1)})],
}
"""What the diffs take for granted."""
