"""Run by torchrun: trains every case in two processes, in folders that the test compares with those of one process."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from excessmtl import lab

CASES = {
    "excess": {"method": "excess", "noise": 0.4},
    "single": {"method": "single"},
    "mgda": {"method": "mgda"},
    "gradnorm": {"method": "gradnorm", "optimiser": "sgd", "optimiser_options": {"momentum": 0.9}},
    "cosine": {"method": "uniform", "schedule": "cosine", "warmup_steps": 3},
    "separate": {"method": "excess", "benchmark_options": {"separate": True}},
}
MISSING = {
    "missing": {"method": "excess", "benchmark_options": {"missing": True}},
    "missing robust": {"method": "excess", "loss": "robust", "benchmark_options": {"missing": True}},
    "missing single": {"method": "single", "benchmark_options": {"missing": True}},
}
COMMON = {"device": "cpu", "epochs": 2, "seed": 3}


class Stops:
    """Ends a run after its first epoch, in every process."""

    def on_step(self, *args):
        pass

    def on_epoch(self, epoch, row):
        if epoch == 0:
            raise KeyboardInterrupt


def main(folder):
    torch.set_num_threads(1)
    for name, settings in (CASES | MISSING).items():
        arguments = {**COMMON, **settings, "devices": 2}
        if name == "excess":  # it is interrupted and resumed
            try:
                lab.train("process_world:load", out=folder / name, watcher=Stops(), **arguments)
            except KeyboardInterrupt:
                dist.barrier()
            arguments["resume"] = True
        lab.train("process_world:load", out=folder / name, **arguments)
        dist.barrier()
    # Not sys.exit: tearing down gloo's threads at interpreter exit aborts the process now and then.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
