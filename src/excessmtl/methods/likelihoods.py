"""Which tasks have losses that reckon with the noise of their own labels: an option of rules, in task order."""

from collections.abc import Collection, Mapping, Sequence

OWN = "own"
"""A likelihood but for its unit, as a squared error is."""
_KINDS = (True, False, OWN)

Likelihoods = Mapping[str, bool | str] | Collection[str] | tuple[bool | str, ...]
"""Names of tasks; or a mapping from them to True or `OWN`; or these and False in task order."""


def in_task_order(given: Likelihoods, tasks: Sequence[str]) -> tuple[bool | str, ...]:
    """True, False or `OWN` for every task; () where none is named."""
    if isinstance(given, str) or not isinstance(given, Collection):
        raise ValueError(_wrong(given, tasks))
    if isinstance(given, Mapping):
        kinds = dict(given)
    elif len(given) == len(tasks) and all(kind in _KINDS for kind in given):
        kinds = dict(zip(tasks, given, strict=True))
    else:
        kinds = dict.fromkeys(given, True)
    for task, kind in kinds.items():
        if task not in tasks or kind not in _KINDS:
            raise ValueError(_wrong(kind if task in tasks else task, tasks))
    found = (kinds.get(task, False) for task in tasks)
    return tuple(kind if kind == OWN else bool(kind) for kind in found) if kinds else ()


def _wrong(found: object, tasks: Sequence[str]) -> str:
    known = f"the tasks are {list(tasks)}, and a mapping gives each True or {OWN!r}"
    return f"likelihoods must be a list of tasks, found {found!r}; {known}"
