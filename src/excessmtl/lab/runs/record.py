"""The record of a run: all that decided it. Folders, summaries, tables and resuming use it.

Two runs are of one kind where their records differ in nothing but the seed, the noise level and the machine: `kind_of`.
"""

import ast
import hashlib
import inspect
import io
import platform
import sys
import tokenize
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import yaml
from torch import nn

import excessmtl
from excessmtl.balancer import Balancer
from excessmtl.files import read_text
from excessmtl.graph.places import Probe
from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.runs.config import Resolved
from excessmtl.lab.schema import explained, mapping

VERSION = 1
"""Of the record as config.yaml holds it. Folders without a version are read too."""
RECORDED = "a loop of its own"
"""The source of a run that a `Recorder` wrote."""
NOT_RECORDED = "not recorded"
OF_THE_MACHINE = ("device", "devices", "data", "label", "versions", "record")
"""Where a run is computed, and what it is called, may change between its parts; what is computed may not."""
_PLAIN = ("method", "loss", "optimiser", "learning_rate", "weight_decay", "noise_kind")
_COLUMNS = ("benchmark", "label", "options", "noise", "noisy_tasks", "seed", "epochs", *_PLAIN)
"""Fields of a configuration that are columns of a table of runs; `settings` has the others."""
_APART = (*OF_THE_MACHINE, "noise_seed")
_DECIDING = (
    *("balancer.py", "distributed/", "excess/", "gradients/", "losses/", "methods/", "multi_task_loss.py", "solvers/"),
    *("step/", "tensors.py", "lab/data/noise.py", "lab/training/"),
)
"""The code that the numbers of a run come from. What finds or records a quicker way to the same is not part of it."""
_HARD = "hard"
"""The architecture of every run, which earlier versions recorded."""
_DIGITS = 12
"""Of fingerprints and checksums."""


@dataclass(frozen=True)
class RunRecord:
    """All that decided a run, as plain values."""

    config: Mapping[str, Any]
    """`Resolved.to_dict()`; of a `Recorder`, what it knows of that."""
    method_options: Mapping[str, Any] | None
    """Every option of the method, defaults filled in; None: not recorded."""
    data_name: str
    source: str
    data_checksum: str | None = None
    """Of the file or folder that it was read from; None: the benchmark makes or finds its data itself."""
    data_split: Mapping[str, int] | None = None
    """How many samples each part has."""
    code: str = NOT_RECORDED
    """The fingerprint of the code that decided weights and gradients; several where a run went on with other code."""

    @classmethod
    def of(cls, config: Resolved, benchmark: Benchmark, balancer: Balancer | None, by_name: bool = True) -> Self:
        """Of a run that is about to be trained.

        `balancer`: None where every task is trained alone. `by_name`: whether the benchmark was loaded by the name in
        the configuration, or is an object.
        """
        path = data_file(config.benchmark, config.data) if by_name else None
        splits = {"train": benchmark.train, "validation": benchmark.validation, "test": benchmark.test}
        return cls(
            config.to_dict(),
            {} if balancer is None else complete_options(balancer),
            benchmark.name,
            benchmark.source,
            None if path is None else checksum(path),
            {name: _size(split) for name, split in splits.items()},
            code_of(None if balancer is None else type(balancer.rule), config.benchmark if by_name else ""),
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Of the config.yaml of a run, written by any version; what older ones do not say is left open."""
        damage = (yaml.YAMLError, TypeError, ValueError, RecursionError)
        with explained(f"{path} is not the config.yaml of a run", "choose another folder, or delete this one", *damage):
            plain = dict(mapping(yaml.safe_load(read_text(path)), "it"))
            if plain.get("source") == RECORDED:
                raise ValueError("a Recorder wrote it, so there is no network in the folder and nothing to go on with")
            if plain.get("architecture", _HARD) != _HARD:
                raise ValueError(f"architecture is {plain['architecture']!r}, which only earlier versions train")
            config = Resolved.from_dict(plain).to_dict()
            unknown = {"method_options": None, "data_name": config["benchmark"], "source": NOT_RECORDED}
            known = {part.name: plain[part.name] for part in fields(cls) if part.name in plain}
            mapping(known.get("method_options", {}), "method_options")
        return cls(**{**unknown, **known, "config": config})

    def to_yaml(self) -> bytes:
        """The content of config.yaml, with the versions of what is installed."""
        versions = {"python": platform.python_version(), "excessmtl": excessmtl.__version__}
        versions |= {name: version(name) for name in ("torch", "lightning", "numpy")}
        plain = {"record": VERSION, **self.plain, "versions": versions}
        try:
            return yaml.safe_dump(plain, sort_keys=False).encode()
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"options must be plain values (numbers, texts, lists), or config.yaml cannot hold them: {reason}"
            ) from error

    @property
    def plain(self) -> dict[str, Any]:
        """All of it in one mapping; what an older version has not recorded is missing."""
        parts = {name: value for name, value in vars(self).items() if name != "config"}
        return {**self.config, **{name: value for name, value in parts.items() if value not in (None, NOT_RECORDED)}}

    @property
    def columns(self) -> dict[str, Any]:
        """What summary.json and tables of runs say of it."""
        config = self.config
        named = {name: config[name] for name in (*_COLUMNS, "noisy_validation") if name in config}
        about = {"record": VERSION, "benchmark": self.data_name, "source": self.source, "code": self.code}
        return {**named, **about, "method_options": dict(self.method_options or {}), "settings": self._settings}

    @property
    def _settings(self) -> dict[str, Any]:
        if "settings" in self.config:  # of a Recorder
            return dict(self.config["settings"])
        settings = {name: value for name, value in self.config.items() if name not in (*_COLUMNS, *_APART)}
        if self.config["noise_seed"] != self.config["seed"]:
            settings["noise_seed"] = self.config["noise_seed"]
        if self.data_checksum is not None:
            settings["data_checksum"] = self.data_checksum
        return settings


def kind_of(run: Mapping[str, Any]) -> dict[str, str]:
    """How a run was made, as texts by name: all that must be equal in two runs that differ in their seed alone.

    Left out are the seed, the noise level (curves are drawn over it), the label, and the machine. What a run has not
    recorded is missing. `run`: a row of `collect`, or the columns of a record.
    """
    plain = {name: run.get(name) for name in ("benchmark", "source", "epochs", *_PLAIN, "code")}
    values = {name: value for name, value in plain.items() if value is not None and value == value}
    values |= {"noisy_tasks": ", ".join(run.get("noisy_tasks") or ())}
    for column in ("settings", "method_options"):
        values |= run.get(column) or {}
    # Of runs that have not recorded all options, those that were given.
    if not run.get("method_options"):
        values |= {f"option {key}": value for key, value in (run.get("options") or {}).items()}
    if values.get("architecture") == _HARD:
        del values["architecture"]
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in values.items()}


def differing(kinds: Iterable[Mapping[str, str]]) -> set[str]:
    """The names in which these kinds differ. Runs that recorded less than others differ from these in `code`."""
    every = [{"code": NOT_RECORDED, **kind} for kind in kinds]
    complete = {kind["code"] for kind in every} != {NOT_RECORDED}
    known = [kind for kind in every if not complete or kind["code"] != NOT_RECORDED]
    names = {name for kind in known for name in kind}
    unequal = {name for name in names if len({kind.get(name, NOT_RECORDED) for kind in known}) > 1}
    return unequal | {name for name in (*_PLAIN, "code") if len({kind.get(name) for kind in every}) > 1}


def refuse_equal_seeds(runs: Iterable[Mapping[str, Any]], column: str = "label") -> None:
    """Refuses two runs of one kind, noise level and seed, by the names of their folders.

    `runs`: rows of `collect` whose `column` is the same for runs of one kind only.
    """
    first: dict[tuple[Any, ...], str] = {}
    for run in runs:
        key = (run[column], run["noise"], run["seed"])
        if key in first:
            raise ValueError(
                f"{first[key]} and {run['folder']} are two runs of {run[column]} on {run['benchmark']} at noise "
                f"{run['noise']:g} with seed {run['seed']} and the same settings; delete one of them, or look at one "
                "study at a time"
            )
        first[key] = run["folder"]


def complete_options(balancer: Balancer) -> dict[str, Any]:
    """Every option of the method as it is used, defaults included, as plain values."""
    options = {option.name: _plain(getattr(balancer.rule, option.name)) for option in fields(balancer.rule)}
    common = {name: getattr(balancer, name) for name in ("heads", "every", "scale", "protect")}
    return {**options, **common, **({} if balancer.pool else {"pool": False})}


def data_file(benchmark: str, data: str | None) -> Path | None:
    """The file or folder that a run reads its data from, where there is one; a benchmark may find its data itself."""
    path = Path(benchmark if data is None else data)
    return path if (path.exists() if data is not None else path.suffix != "" and path.is_file()) else None


def refuse_changed_data(benchmark: str, data: str | None, recorded: str | None, run: Path) -> None:
    """A ValueError where the data is no longer what the run was trained on."""
    path = data_file(benchmark, data)
    if path is None or recorded is None:
        return
    if (checksum(path) if path.is_dir() else _of_file(path, path.stat().st_mtime_ns)) != recorded:
        raise ValueError(
            f"{path} has changed since {run} was trained on it; put the file back, or train in another folder"
        )


@cache
def _of_file(path: Path, changed: int) -> str:
    return checksum(path)


def checksum(path: Path) -> str:
    """Of the content of a file; of a folder, of the names and sizes of its files, which may be many gigabytes."""
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            digest.update(f"{file.relative_to(path).as_posix()}\n{file.stat().st_size}\n".encode())
    else:
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256")
    return digest.hexdigest()[:_DIGITS]


def code_of(rule: type | None = None, benchmark: str = "") -> str:
    """The fingerprint of the library, and of the files that a rule and a benchmark of the user's own are written in."""
    module = sys.modules.get(benchmark.partition(":")[0]) if ":" in benchmark else None
    own = {"rule": rule and inspect.getsourcefile(rule), "benchmark": getattr(module, "__file__", None)}
    if rule is not None and rule.__module__.partition(".")[0] == "excessmtl":
        del own["rule"]
    return _code(**{name: path for name, path in own.items() if path})


@cache
def _code(**own: str) -> str:
    root = Path(excessmtl.__file__).parent
    places = [(path.relative_to(root).as_posix(), path) for path in root.rglob("*.py")]
    sources = {place: path for place, path in places if place.startswith(_DECIDING)}
    return fingerprint({**sources, **{name: Path(path) for name, path in own.items()}})


def fingerprint(sources: Mapping[str, Path]) -> str:
    """Of the statements in files by name: not of comments, docstrings, line ends, or where the files lie."""
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        with suppress(SyntaxError, ValueError, tokenize.TokenError):  # files of others may be in any form
            content = _statements(content.decode()).encode()
        digest.update(f"{name}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()[:_DIGITS]


def _statements(source: str) -> str:
    lines = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):  # a docstring
                lines[number] = ""
    return "\n".join(filter(None, lines))


def _size(split: Split) -> int:
    """Of tasks with inputs of their own, all samples together."""
    lengths = [split.length(task) for task in split.targets]
    return sum(lengths) if isinstance(split.inputs, Mapping) else max(lengths)


def _plain(value: Any) -> Any:
    if isinstance(value, Probe):
        return value.value
    if isinstance(value, Mapping):
        return {name: repr(part) if isinstance(part, nn.Module) else part for name, part in value.items()}
    return list(value) if isinstance(value, tuple) else value
