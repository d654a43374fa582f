"""Why the noisy task gains weight under Algorithm 1: the signal of its estimate, and what mini-batches add to it."""

import pandas as pd
from joblib import Parallel, delayed
from matplotlib.figure import Figure as Canvas

from excessmtl.lab.compare.palette import COLOURS
from excessmtl.lab.paper.plans import Scale
from excessmtl.lab.paper.registry import SMALL, Drawing, canvas, figure, heading, tidy

_SIZES = {"quick": (16, 64, 256), "paper": (16, 64, 256, 1024)}
_STEPS = {"quick": 150, "paper": 400}
_SEEDS = {"quick": 1, "paper": 3}
_CURVES = {"log_ratio": ("as trained", "-"), "signal": ("by the signal alone", "--")}


@figure("batch-size", "Why Algorithm 1 favours a noisy task: signal and noise of its estimate, by batch size")
def draw(scale: Scale) -> Drawing:
    """The courses, and the last step of each."""
    from excessmtl.lab.paper.split_estimate import course  # here, not above: it trains, and a list of figures does not

    steps, bundled = _STEPS[scale], scale == "quick"
    jobs = [delayed(course)(steps, size, seed, bundled) for size in _SIZES[scale] for seed in range(_SEEDS[scale])]
    courses = pd.concat(Parallel(n_jobs=2)(jobs))
    ends = courses[courses["step"] == steps].drop(columns="step")
    thin = courses[courses["step"] % 5 == 0]
    return Drawing({"": ends, "_course": thin}, {"": _picture(thin, ends, scale)})


def _picture(courses: pd.DataFrame, ends: pd.DataFrame, scale: Scale) -> Canvas:
    picture = canvas(8.6, 3.8)
    left, right = picture.subplots(1, 2, sharey=True)
    sizes = _SIZES[scale]
    for (column, (name, line)), (colour, _) in zip(_CURVES.items(), COLOURS[1::-1], strict=False):
        for size, width in ((sizes[0], 1.2), (sizes[-1], 2.4)):
            mean = courses[courses["batch_size"] == size].groupby("step")[column].mean()
            left.plot(mean.index, mean, line, color=colour, lw=width, label=f"{name}, batches of {size}")
        own = ends.groupby("batch_size")[column]
        right.errorbar(sizes, own.mean(), own.std(), fmt=f"o{line}", color=colour, label=name)
    right.set_xscale("log", base=2)
    right.set_xticks(sizes, [str(size) for size in sizes])
    for axes in (left, right):
        axes.axhline(0, color="gray", lw=1)
        axes.legend(fontsize=SMALL)
    above = "log weight, noisy task over clean\nabove 0: the noisy task has more"
    tidy(left, "over training", "step", above)
    tidy(right, f"after {_STEPS[scale]} steps", "batch size", "")
    heading(picture, "MultiMNIST, Algorithm 1; noise 0.8 in the second digit; bars: deviation over seeds")
    return picture
