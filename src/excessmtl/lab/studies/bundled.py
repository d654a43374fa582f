"""Studies that come with the package, by name."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[2]


def study_file(study: Path) -> Path:
    """The file itself where there is one, else the bundled study of that name."""
    if study.suffix or study.exists():
        return study
    names = bundled_studies()
    if study.as_posix() not in names:
        raise ValueError(
            f"there is no file {study}, and no study of that name comes with the package; those are {list(names)}"
        )
    return names[study.as_posix()]


def bundled_studies() -> dict[str, Path]:
    """Name -> file: `demo`, `results/sarcos`, ..."""
    installed = _PACKAGE / "studies"
    folder = installed if installed.is_dir() else _PACKAGE.parents[1] / "studies"  # a checkout has them at its root
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))}
