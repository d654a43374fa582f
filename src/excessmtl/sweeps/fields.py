"""The fields of a run as a study may state them."""

from collections.abc import Mapping

from excessmtl.plain import FLAG, NAMES, NUMBER, OPTIONS, TEXT, WHOLE, Kind

FIELDS: Mapping[str, Kind] = {
    "benchmark": TEXT,
    "method": TEXT,
    "seed": WHOLE,
    "noise": NUMBER,
    "noisy_tasks": NAMES,
    "noise_seed": WHOLE,
    "exclude_true": FLAG,
    "redraw_each_epoch": FLAG,
    "epochs": WHOLE,
    "batch_size": WHOLE,
    "optimiser": TEXT,
    "optimiser_options": OPTIONS,
    "learning_rate": NUMBER,
    "weight_decay": NUMBER,
    "schedule": TEXT,
    "warmup_steps": WHOLE,
    "limit_batches": WHOLE,
    "options": OPTIONS,
    "label": TEXT,
    "benchmark_options": OPTIONS,
    "data": TEXT,
    "device": TEXT,
    "devices": WHOLE,
    "strategy": TEXT,
    "precision": TEXT,
    "replay": FLAG,
}
"""The fields of `RunConfig` as a file may state them; it checks their ranges itself."""
