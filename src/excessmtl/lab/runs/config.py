"""What defines a training run: `RunConfig`, as it is asked for, and `Resolved`, as it is trained."""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field
from pydantic.dataclasses import dataclass

from excessmtl.lab.data.noise import NOISE_KINDS, UNIFORM
from excessmtl.lab.data.tasks import LOSSES, PLAIN
from excessmtl.lab.schema import STRICT, Names, Number, Options, Word, in_sentences
from excessmtl.methods import registry
from excessmtl.methods.names import checked_name, our_name

SINGLE = "single"
"""The baseline that trains every task alone, with a trunk of its own."""

Seed = Annotated[int, Field(ge=0, lt=2**32)]
Count = Annotated[int, Field(ge=1)]
Steps = Annotated[int, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, le=1)]
Rate = Annotated[Number, Field(gt=0)]
Decay = Annotated[Number, Field(ge=0)]
Optimiser = Literal["adam", "adamw", "sgd"]
Schedule = Literal["constant", "cosine"]
DATA, TRAINING, MACHINE = "Data and label noise", "Training", "Machine"


class Help(NamedTuple):
    """What the command line says about a field, and in which group; a field without it is no option there."""

    text: str
    panel: str = "Options"


@in_sentences("the settings of a run")
@dataclass(frozen=True, config=STRICT)
class RunConfig:
    """One training run as it is asked for. None stands for the benchmark's own choice."""

    benchmark: Word
    """A registered name, `package.module:function`, or a CSV file."""
    method: Annotated[
        Word, Help("A method, 'single' for one network per task, or a rule of yours as package.module:Rule.")
    ] = "excess"
    seed: Annotated[Seed, Help("Seed of the weights, batches and noise.")] = 0
    options: Annotated[Options, Help("Option of the method, name=value; repeat.")] = field(default_factory=dict)
    loss: Annotated[
        Literal[LOSSES],  # type: ignore[valid-type]
        Help("Loss of every task: plain, robust (follows the noise), gce, symmetric, bootstrapped, huber or general."),
    ] = PLAIN
    """Of every task that has one of this name; the others keep their own."""
    data: Annotated[Word | None, Help("File or folder with the benchmark's data.", DATA)] = None
    benchmark_options: Annotated[Options, Help("Option of the benchmark, name=value; repeat.", DATA)] = field(
        default_factory=dict
    )
    noise: Annotated[Share, Help("Fraction of bad labels in the noisy tasks, 0 to 1.", DATA)] = 0.0
    noisy_tasks: Annotated[Names | None, Help("Comma-separated task names. Default: the benchmark's.", DATA)] = None
    noise_kind: Annotated[
        Literal[NOISE_KINDS],  # type: ignore[valid-type]
        Help("uniform, pair, instance, outliers, bias or annotator: see docs/benchmarks.md.", DATA),
    ] = UNIFORM
    """What bad labels look like; "uniform": what the kind of each task says."""
    noise_seed: Seed | None = None
    """None: the run's seed."""
    exclude_true: Annotated[bool, Help("Never draw the true class as a noisy label.", DATA)] = False
    noisy_validation: Annotated[bool, Help("Validation labels are as noisy as the training labels.", DATA)] = False
    """A choice by noisy validation labels is one that could be made."""
    redraw_each_epoch: Annotated[bool, Help("Draw new noise in every epoch.", DATA)] = False
    epochs: Annotated[Count | None, Help("Default: the benchmark's.", TRAINING)] = None
    batch_size: Annotated[Count | None, Help("Total over all devices. Default: the benchmark's.", TRAINING)] = None
    optimiser: Annotated[Optimiser | None, Help("adam, adamw or sgd. Default: the benchmark's.", TRAINING)] = None
    optimiser_options: Annotated[
        Options | None, Help("Option of the optimiser by torch's name, momentum=0.9; repeat.", TRAINING)
    ] = None
    learning_rate: Annotated[Rate | None, Help("Default: the benchmark's.", TRAINING)] = None
    weight_decay: Annotated[Decay | None, Help("Default: the benchmark's.", TRAINING)] = None
    schedule: Annotated[
        Schedule | None, Help("Learning rate schedule: constant or cosine. Default: the benchmark's.", TRAINING)
    ] = None
    """"cosine": down to zero at the end of the last epoch."""
    warmup_steps: Annotated[
        Steps | None, Help("Steps of learning rate warm-up. Default: the benchmark's.", TRAINING)
    ] = None
    limit_batches: Annotated[Count | None, Help("Maximum number of batches per epoch.", TRAINING)] = None
    label: Word | None = None
    """What tables call the method as it is configured here; None: its name and options."""
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], Help("auto, cpu, cuda or mps.", MACHINE)] = "auto"
    devices: Annotated[Count, Help("Number of devices, each with a process; they share every batch.", MACHINE)] = 1
    precision: Annotated[
        Literal["32-true", "bf16-mixed", "16-mixed"], Help("32-true, bf16-mixed or 16-mixed.", MACHINE)
    ] = "32-true"

    def __post_init__(self) -> None:
        # Folders, tables and comparisons know a method by one name. One that is not known is refused by the training.
        own_name = our_name(self.method, [*registry(), SINGLE])
        object.__setattr__(self, "method", self.method if own_name is None else own_name)
        if self.method == SINGLE and self.options:
            raise ValueError(f"method 'single' has no options, found {dict(self.options)}")

    @property
    def name(self) -> str:
        """What tables call the method: `label`, or its name and what is not as usual: options, loss."""
        words = [self.method.rpartition(":")[2]]
        words += [f"{key}={value}" for key, value in sorted(self.options.items())]
        words += [] if self.loss == PLAIN else [f"+ {self.loss} loss"]
        return self.label or " ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for YAML: lists and dicts, no tuples."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; entries that are not fields (versions) are left aside."""
        names = {option.name for option in fields(cls)}
        return cls(**{name: value for name, value in plain.items() if name in names})


def check_method(name: str) -> None:
    """Refuses a method that is not there."""
    from excessmtl.lab.data.find import import_path, is_import_path

    if is_import_path(name):
        import_path(name, "method")
    else:
        checked_name(name, [*registry(), SINGLE], ", or package.module:Rule")


@in_sentences("the settings of a run")
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Resolved(RunConfig):
    """One training run as it is trained: every choice is made."""

    # `field()`: without it, a field would inherit the default of `RunConfig`.
    noisy_tasks: Names = field()
    noise_seed: Seed = field()
    epochs: Count = field()
    batch_size: Count = field()
    optimiser: Optimiser = field()
    optimiser_options: Options = field()
    learning_rate: Rate = field()
    weight_decay: Decay = field()
    schedule: Schedule = field()
    warmup_steps: Steps = field()
    label: Word = field()
