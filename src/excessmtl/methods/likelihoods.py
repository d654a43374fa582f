"""Which tasks have losses that reckon with the noise of their own labels: an option of rules, in task order."""

from collections.abc import Collection, Mapping, Sequence

OWN = "own"
"""A likelihood but for its unit, as a squared error is."""
_KINDS = (True, False, OWN)

Likelihoods = Mapping[str, bool | str] | Collection[str] | tuple[bool | str, ...]
"""Names of tasks; or a mapping from them to True or `OWN`; or these and False in task order."""


def in_task_order(given: Likelihoods, tasks: Sequence[str]) -> tuple[bool | str, ...]:
    """True, False or `OWN` for every task; () where none is named."""
    listed = [given] if isinstance(given, str) or not isinstance(given, Collection) else given
    if isinstance(listed, Mapping):
        kinds = dict(listed)
    elif len(listed) == len(tasks) and all(kind in _KINDS for kind in listed):
        kinds = dict(zip(tasks, listed, strict=True))
    else:
        kinds = dict.fromkeys(listed, True)
    unknown = [name for name in kinds if isinstance(given, str) or name not in tasks]
    unknown += [kind for kind in kinds.values() if kind not in _KINDS]
    if unknown:
        raise ValueError(f"likelihoods must be a list of tasks, found {unknown[0]!r}; the tasks are {list(tasks)}")
    found = (kinds.get(task, False) for task in tasks)
    return tuple(kind if kind == OWN else bool(kind) for kind in found) if kinds else ()
