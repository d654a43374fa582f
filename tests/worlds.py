"""Two made-up worlds: one in which the paper is right in all that a table of runs can tell, and one where it is wrong.

How each kind of method behaves is a function of the noise level n: its scores on clean and noisy tasks, the weight of
the clean tasks and, on MultiMNIST, the losses of both; on NYUv2 normals, depth, segmentation and the weight.
"""

from excessmtl.lab.paper import subjects
from excessmtl.lab.paper.subjects import COMPARED, MOML, SINGLE_TASK, UNIFORM
from made_up_runs import as_frame, made_up_dense_run, made_up_run

LEVELS = (0.0, 0.4, 0.8, 1.0)
SEEDS = (0, 1, 2)
RIGHT, WRONG = True, False

_MULTIMNIST = {
    RIGHT: {
        "excess": lambda n: (0.98, 0.97 - 0.25 * n, 0.5 + 0.4 * n, (0.1, 0.1 + n)),
        "rivals": lambda n: (0.98 - 0.3 * n, 0.97 - 0.3 * n, 0.5 - 0.5 * n, (0.1 + 0.5 * n, 0.1 + 2 * n)),
        UNIFORM: lambda n: (0.978, 0.97 - 0.3 * n, 0.5, (0.1, 0.1 + n)),
        SINGLE_TASK: lambda n: (0.98, 0.97 - 0.3 * n, None, (0.1, 0.1 + n)),
    },
    WRONG: {
        "excess": lambda n: (0.98 - 0.3 * n, 0.97 - 0.3 * n, 0.5 - 0.5 * n, (0.6 + n, 0.6 + n)),
        "rivals": lambda n: (0.98, 0.97 - 0.25 * n, 0.5 + 0.4 * n, (0.6, 0.6)),
        UNIFORM: lambda n: (0.98 - 0.3 * n, 0.97 - 0.3 * n, 0.5, (0.6, 0.6)),
        SINGLE_TASK: lambda n: (0.98, 0.97, None, (0.1, 0.1)),
    },
}
_OFFICE_HOME = {
    RIGHT: {
        "excess": lambda n: (0.71, 0.6 - 0.4 * n, 0.75 + 0.2 * n),
        "rivals": lambda n: (0.7 - 0.5 * n, 0.6 - 0.4 * n, 0.75 - 0.5 * n),
        UNIFORM: lambda n: (0.7 - 0.55 * n, 0.6 - 0.4 * n, 0.75),
        MOML: lambda n: (0.68 - 0.45 * n, 0.58 - 0.35 * n, 0.7),
    },
    WRONG: {
        "excess": lambda n: (0.7 - 0.5 * n, 0.6 - 0.4 * n, 0.75 - 0.5 * n),
        "rivals": lambda n: (0.7, 0.6 - 0.4 * n, 0.75 + 0.2 * n),
        UNIFORM: lambda n: (0.75, 0.6 - 0.4 * n, 0.75),
        MOML: lambda n: (0.72, 0.62 - 0.5 * n, 0.75 + 0.24 * n),
    },
}
_SARCOS = {
    RIGHT: {
        "excess": lambda n: (0.03, 0.03 + 0.03 * n, 5 / 7 + 0.2 * n),
        "rivals": lambda n: (0.03 + 0.06 * n, 0.03 + 0.06 * n, 5 / 7 - 0.5 * n),
        UNIFORM: lambda n: (0.03, 0.03 + 0.03 * n, 5 / 7),
    },
    WRONG: {
        "excess": lambda n: (0.045 + 0.09 * n, 0.045 + 0.09 * n, 5 / 7 - 0.5 * n),
        "rivals": lambda n: (0.03, 0.03 + 0.03 * n, 5 / 7 + 0.2 * n),
        UNIFORM: lambda n: (0.03 + 0.06 * n, 0.03 + 0.06 * n, 5 / 7),
    },
}
_NYUV2 = {
    RIGHT: {
        "excess": lambda n: (0.32, 0.147, 0.6 - 0.3 * n, 0.67 + 0.2 * n),
        "rivals": lambda n: (0.3 - 0.2 * n, 0.15 + 0.15 * n, 0.6 - 0.3 * n, 0.67 - 0.3 * n),
        subjects.GROUPDRO: lambda n: (0.25 - 0.2 * n, 0.15 + 0.15 * n, 0.6 - 0.3 * n, 0.67 - 0.3 * n),
        UNIFORM: lambda n: (0.25, 0.15, 0.6 - 0.3 * n, 0.67),
        SINGLE_TASK: lambda n: (0.3, 0.15, 0.6 - 0.3 * n, None),
    },
    WRONG: {
        "excess": lambda n: (0.3 - 0.2 * n, 0.15 + 0.15 * n, 0.6, 0.67 - 0.3 * n),
        "rivals": lambda n: (0.32, 0.147, 0.6, 0.67),
        UNIFORM: lambda n: (0.32, 0.147, 0.6, 0.67),
        SINGLE_TASK: lambda n: (0.3, 0.15, 0.6, None),
    },
}


def _kind(shown):
    if shown in (*subjects.PAPER_EXCESS, subjects.ROBUST, subjects.KIT):
        return "excess"
    return "rivals" if shown in subjects.ADAPTIVE_RIVALS else shown


def _rows(make, benchmark, behaviours, names=("clean", "noisy", "weight", "losses")):
    rows = []
    for shown in (*COMPARED, MOML, SINGLE_TASK):
        behave = behaviours.get(shown, behaviours.get(_kind(shown)))
        for noise in LEVELS if behave else ():
            for seed in SEEDS:
                luck = 1 + 0.0005 * (seed - 1)  # so that intervals have a width
                own = dict(zip(names, behave(noise), strict=False))
                scores = {name: value if name in ("weight", "losses") else value * luck for name, value in own.items()}
                rows.append(make(benchmark, shown, noise, seed, **scores))
    return rows


def multimnist(paper_is):
    return _rows(made_up_run, "multimnist", _MULTIMNIST[paper_is])


def office_home(paper_is, benchmark="office-home"):
    return _rows(made_up_run, benchmark, _OFFICE_HOME[paper_is])


def sarcos(paper_is, benchmark="sarcos"):
    return _rows(made_up_run, benchmark, _SARCOS[paper_is])


def nyuv2(paper_is, benchmark="nyuv2"):
    rows = _rows(made_up_dense_run, benchmark, _NYUV2[paper_is], ("normals", "depth", "segmentation", "weight"))
    return [row for row in rows if row["label"] != f"label of {subjects.NORMALISED}"]  # the paper's form is there


def world(paper_is):
    """All four data sets of the paper."""
    return as_frame([row for part in (multimnist, office_home, sarcos, nyuv2) for row in part(paper_is)])
