"""What is known of every method beside its rule: where it comes from and what it is good for. One line per method."""

from dataclasses import dataclass

import torch

from excessmtl.graph.places import Probe
from excessmtl.methods.base import Rule, registry


@dataclass(frozen=True)
class Entry:
    """One method, in words."""

    year: int
    paper: str
    source: str
    """Its number at arxiv.org, or an address."""
    missing: str
    """What happens where a task has no label in a batch."""
    scale_free: bool
    """Whether the direction of a step stays when one loss is multiplied by a constant."""
    good_for: str

    @property
    def link(self) -> str:
        """The address of the paper."""
        return self.source if self.source.startswith("https") else f"https://arxiv.org/abs/{self.source}"


KEEPS, PRESENT, LATEST = "keeps its weight", "decided among the others", "by its latest loss"
_CARUANA = "https://doi.org/10.1023/A:1007379606734"
_IMTL = "https://openreview.net/forum?id=IMPnRXEWpvr"
_MOCO = "https://openreview.net/forum?id=dLAYGdKTi2"
_PBI = "https://doi.org/10.1109/TEVC.2007.892759"
_DTP = "https://openaccess.thecvf.com/content_ECCV_2018/html/Michelle_Guo_Focus_on_the_ECCV_2018_paper.html"

CATALOGUE: dict[str, Entry] = {
    "excess": Entry(2024, "He et al.", "2402.02009", KEEPS, True, "some tasks have noisy labels: the default"),
    "uniform": Entry(1997, "Caruana", _CARUANA, KEEPS, False, "the baseline"),
    "static": Entry(1997, "Caruana", _CARUANA, KEEPS, False, "weights you know"),
    "gradnorm": Entry(2018, "Chen et al.", "1711.02257", KEEPS, False, "tasks that learn at different rates"),
    "mgda": Entry(2018, "Sener & Koltun", "1810.04650", PRESENT, False, "no task may get worse"),
    "groupdro": Entry(2020, "Sagawa et al.", "1911.08731", KEEPS, False, "the worst group, with clean labels"),
    "imtl": Entry(2021, "Liu et al.", _IMTL, PRESENT, True, "losses of different units"),
    "imtl_l": Entry(2021, "Liu et al.", _IMTL, KEEPS, False, "losses of different units, cheaply"),
    "imtl_hybrid": Entry(2021, "Liu et al.", _IMTL, PRESENT, True, "losses of different units"),
    "moml": Entry(2021, "Ye et al.", "2102.07121", KEEPS, False, "there is clean validation data"),
    "uw": Entry(2018, "Kendall et al.", "1705.07115", KEEPS, False, "regression with noise, cheaply"),
    "dtp": Entry(2018, "Guo et al.", _DTP, KEEPS, False, "hard tasks first, by a metric"),
    "dwa": Entry(2019, "Liu et al.", "1803.10704", KEEPS, False, "tasks that learn at different rates, cheaply"),
    "rlw": Entry(2022, "Lin et al.", "2111.10603", KEEPS, False, "a sanity check for every other method"),
    "pcgrad": Entry(2020, "Yu et al.", "2001.06782", PRESENT, False, "gradients that conflict"),
    "cagrad": Entry(2021, "Liu et al.", "2110.14048", PRESENT, False, "the mean loss, with care for the worst task"),
    "graddrop": Entry(2020, "Chen et al.", "2010.06808", PRESENT, False, "gradients that conflict, cheaply"),
    "nash": Entry(2022, "Navon et al.", "2202.01017", PRESENT, True, "losses of different units; each task counts"),
    "uw_so": Entry(2024, "Kirchdorfer et al.", "2408.07985", LATEST, False, "as `uw`, without its slow start; tune T"),
    "igb": Entry(2023, "Dai et al.", "2307.15429", LATEST, True, "losses of different units, clean labels, cheaply"),
    "log_loss": Entry(2023, "Dai et al.", "2307.15429", KEEPS, True, "losses of different units: the baseline"),
    "gls": Entry(2019, "Chennupati et al.", "1904.08492", LATEST, True, "losses of different units, cheaply"),
    "stch": Entry(2024, "Lin et al.", "2402.19078", LATEST, True, "the worst task, clean labels, cheaply"),
    "famo": Entry(2023, "Liu et al.", "2306.03792", LATEST, True, "equal progress of many tasks, cheaply"),
    "cosmos": Entry(2021, "Ruchte & Grabocka", "2103.13392", LATEST, False, "losses in a ratio you choose"),
    "pbi": Entry(2007, "Zhang & Li", _PBI, LATEST, False, "losses in a ratio you choose"),
    "fairgrad": Entry(2024, "Ban & Ji", "2402.15638", PRESENT, True, "a dial from the sum to the worst task"),
    "upgrad": Entry(2024, "Quinton & Rey", "2406.16232", PRESENT, False, "no task may get worse; near the mean"),
    "dualproj": Entry(2017, "Lopez-Paz & Ranzato", "1706.08840", PRESENT, False, "no task may get worse"),
    "aligned_mtl": Entry(2023, "Senushkin et al.", "2305.19000", PRESENT, False, "gradients that conflict or dominate"),
    "config": Entry(2024, "Liu et al.", "2408.11104", PRESENT, True, "losses of different units; physics terms"),
    "gradvac": Entry(2021, "Wang et al.", "2010.05874", PRESENT, False, "gradients that conflict; languages"),
    "pcd": Entry(2026, "Varam & Alhajri", "2606.29521", PRESENT, True, "one task counts, no other may get worse"),
    "krum": Entry(2017, "Blanchard et al.", "1703.02757", PRESENT, False, "groups of one task, some of them bad"),
    "sdmgrad": Entry(2023, "Xiao et al.", "2305.18409", PRESENT, False, "the worst task, from noisy gradients"),
    "modo": Entry(2023, "Chen et al.", "2305.20057", PRESENT, False, "as `mgda`, from noisy gradients"),
    "auto_lambda": Entry(2022, "Liu et al.", "2202.03091", KEEPS, False, "clean validation data; auxiliary tasks"),
    "moco": Entry(2023, "Fernando et al.", _MOCO, PRESENT, False, "as `mgda`, from noisy gradients"),
    "db_mtl": Entry(2023, "Lin et al.", "2308.12029", PRESENT, True, "losses of different units; each task counts"),
    "trimmed_mean": Entry(2018, "Yin et al.", "1803.01498", PRESENT, False, "groups of one task, some of them bad"),
    "ldc_mtl": Entry(2025, "Xiao et al.", "2502.08585", LATEST, False, "losses of one kind kept together, cheaply"),
    "autoscale": Entry(2025, "Yang et al.", "2508.13979", KEEPS, False, "fixed weights that you do not know yet"),
    "forum": Entry(2024, "Ye et al.", "2401.09257", PRESENT, False, "validation data to train on as well"),
    "bayes_agg": Entry(2024, "Achituve et al.", "2402.04005", PRESENT, False, "linear heads, surer of some samples"),
}  # fmt: skip

_LOOKS_AT = {
    Probe.LOSSES: "losses",
    Probe.REPRESENTATION: "representation",
    Probe.LAYER: "last shared layer",
    Probe.SHARED: "all gradients",
}
_INPUTS = {
    "metrics": "metrics",
    "validation_losses": "a second batch",
    "after_step": "(a second forward)",
    "targets": "labels",
}


def needs(name: str) -> str:
    """What a step of the method takes: where it looks, and further inputs."""
    rule = registry()[name]()
    assert isinstance(rule, Rule)
    return ", ".join([_LOOKS_AT[rule.probe], *(_INPUTS[extra] for extra in sorted(rule.uses))])


def memory(name: str) -> str:
    """What a step holds beyond one backward pass, for m tasks: gradients of all shared parameters count.

    Between steps `moco` and the like keep a vector per task as long as all shared parameters.
    """
    rule = registry()[name]()
    assert isinstance(rule, Rule)
    wide = 1000
    kept = any(value.numel() >= wide for value in rule.init(2, [torch.Size([wide])]).values())
    held = {Probe.SHARED: "m gradients", Probe.LAYER: "m of one layer", Probe.REPRESENTATION: "m of z"}
    return held.get(rule.probe, "none") + (" + m kept" if kept else "")


def rows() -> list[dict[str, str]]:
    """The table of all methods, in the order of `list_methods()`."""
    entries = []
    for name in registry():
        entry = CATALOGUE.get(name)
        if entry is None:  # somebody's own
            continue
        entries.append(
            {
                "method": name,
                "paper": f"{entry.paper} {entry.year}",
                "needs": needs(name),
                "memory": memory(name),
                "missing task": entry.missing,
                "scale-free": "yes" if entry.scale_free else "no",
                "good for": entry.good_for,
            }
        )
    return entries
