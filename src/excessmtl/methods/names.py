"""Methods by the names that people know: without case, hyphens and underscores, and by those of LibMTL and TorchJD."""

from collections.abc import Iterable
from difflib import get_close_matches

LIBMTL = {
    "EW": "uniform",
    "GradNorm": "gradnorm",
    "MGDA": "mgda",
    "UW": "uw",
    "DWA": "dwa",
    "GLS": "gls",
    "GradDrop": "graddrop",
    "PCGrad": "pcgrad",
    "GradVac": "gradvac",
    "IMTL": "imtl_hybrid",
    "CAGrad": "cagrad",
    "RLW": "rlw",
    "Nash_MTL": "nash",
    "MoCo": "moco",
    "Aligned_MTL": "aligned_mtl",
    "FAMO": "famo",
    "SDMGrad": "sdmgrad",
    "MoDo": "modo",
    "DB_MTL": "db_mtl",
    "STCH": "stch",
    "ExcessMTL": "excess",
    "FairGrad": "fairgrad",
    "UPGrad": "upgrad",
    "MOML": "moml",
    "AutoLambda": "auto_lambda",
    "FORUM": "forum",
}
"""LibMTL's weighting -> our method."""
TORCHJD = {
    "Sum": "uniform",
    "Mean": "uniform",
    "Constant": "static",
    "MGDA": "mgda",
    "IMTLG": "imtl",
    "IMTLL": "imtl_l",
    "UW": "uw",
    "DWA": "dwa",
    "Random": "rlw",
    "PCGrad": "pcgrad",
    "CAGrad": "cagrad",
    "GradDrop": "graddrop",
    "NashMTL": "nash",
    "GeometricMean": "gls",
    "STCH": "stch",
    "FAMO": "famo",
    "COSMOS": "cosmos",
    "PBI": "pbi",
    "FairGrad": "fairgrad",
    "UPGrad": "upgrad",
    "DualProj": "dualproj",
    "AlignedMTL": "aligned_mtl",
    "ConFIG": "config",
    "GradVac": "gradvac",
    "PCD": "pcd",
    "Krum": "krum",
    "SDMGrad": "sdmgrad",
    "MoDo": "modo",
    "TrimmedMean": "trimmed_mean",
    "ExcessMTL": "excess",
}
"""TorchJD's aggregator, weighting (without the word `Weighting`) or scalarizer -> our method."""
_OTHERS = {"LS": "uniform", "IMTL-G": "imtl"}
"""Names of papers: linear scalarization, and the form of IMTL that needs gradients alone."""
NOTES = {
    "imtl": "LibMTL's IMTL is imtl_hybrid here",
    "imtl_hybrid": "LibMTL's IMTL is imtl_hybrid here; the name IMTL alone is imtl, which is IMTL-G",
    "excess": 'ExcessMTL of LibMTL and TorchJD is excess with estimator="paper" here',
    "uniform": 'TorchJD\'s Mean is uniform with scale="mean" here',
}
"""Our method -> where a known name means something else there."""


def our_name(name: str, methods: Iterable[str]) -> str | None:
    """The one of `methods` that a name means, or None."""
    known = list(methods)
    return name if name in known else _by_key(known).get(_key(name))


def checked_name(name: str, methods: Iterable[str], otherwise: str = "") -> str:
    """The one of `methods` that a name means; an error with the nearest of them where it means none."""
    known = list(methods)
    known_name = our_name(name, known)
    if known_name is not None:
        return known_name
    by_key = _by_key(known)
    nearest = [by_key[key] for key in get_close_matches(_key(name), by_key, n=1)]
    hint = f", the nearest is {nearest[0]!r}" if nearest else ""
    raise ValueError(f"unknown method {name!r}{hint}; the methods are {known}{otherwise}")


def rows() -> list[tuple[str, str, str, str]]:
    """(LibMTL's name, TorchJD's name, ours, what is different) of the methods that one of them has."""
    methods = dict.fromkeys([*LIBMTL.values(), *TORCHJD.values()])
    return [(_names(LIBMTL, own), _names(TORCHJD, own), own, NOTES.get(own, "")) for own in methods]


def _names(library: dict[str, str], own: str) -> str:
    return ", ".join(theirs for theirs, ours in library.items() if ours == own)


def _key(name: str) -> str:
    return str(name).lower().replace("-", "").replace("_", "").removesuffix("weighting")


def _by_key(methods: list[str]) -> dict[str, str]:
    """Our own names come last and win: "imtl" is a method of ours and another one of LibMTL's."""
    theirs = {_key(name): own for name, own in (LIBMTL | TORCHJD | _OTHERS).items() if own in methods}
    return theirs | {_key(own): own for own in methods}
