"""Every candidate that was tried, by the question it was to answer. README.md has the answers."""

from research.weighting.candidates import Candidate


def _rule(
    trust: float = 0.0, threshold: float = 0.0, mix: float = 0.0, trusts: str = "r", **powers: float
) -> Candidate:
    return Candidate({symbol: power for symbol, power in powers.items() if power}, trust, trusts, threshold, mix)


UNIFORM, IMTL = Candidate(), Candidate(equal_projections=True)
RIVALS = (UNIFORM, IMTL)
SHIPPED = _rule(trust=2, n=-0.5, r0=-0.5)
"""The rule of `excessmtl.create("excess", ...)`."""

# Which part of version 0.1.0's rule, sqrt(E0) / n, does what?
_ABLATION = (
    _rule(E0=0.5, n=-1),
    _rule(E=0.5, n=-1),
    _rule(n=-1),
    _rule(r=-1),
    _rule(r_fast=-1),
    _rule(r=-0.5),
    _rule(E=0.5, r=-1),
    _rule(E=0.25, r=-1),
    _rule(E=0.5, r=-0.5),
    _rule(E=1, r=-0.5),
    _rule(E=0.5, n=-1, r=-0.5),
    _rule(E=0.25, n=-1, r=-0.5),
    _rule(n=-1, r=-0.5),
    _rule(E=0.25, n=-1),
    _rule(E=0.5, F=-1),
    _rule(E=0.5),
    _rule(r=-1.5),
    _rule(E=1, r=-1),
)

# In which units should tasks be equal: of the present gradient, of the first one, of the loss, of the first loss?
_UNITS = (
    _rule(r0=-1),
    _rule(E=0.5, n=-1),
    _rule(E=0.25, n=-1),
    _rule(n=-1),
    *(_rule(E=signal, n=-0.5, n0=-0.5) for signal in (0, 0.25, 0.5)),
    *(_rule(E=signal, n=-0.5, r0=-0.5) for signal in (0, 0.25, 0.5)),
    *(_rule(E=signal, r=-0.5, r0=-0.5) for signal in (0, 0.25, 0.5)),
    *(_rule(E=signal, n=-0.5, r=-0.5) for signal in (0, 0.25)),
    *(_rule(E=signal, A=-1) for signal in (0, 0.25, 0.5)),
    *(_rule(E=signal, n=-0.5, A=-0.5) for signal in (0, 0.25, 0.5)),
    *(_rule(E=signal, n=-0.75, r0=-0.25) for signal in (0, 0.25)),
    _rule(E=0.5, r0=-1),
    *(_rule(E=signal, F=-1) for signal in (0, 0.25)),
    *(_rule(E=signal, F=-0.5, r0=-0.5) for signal in (0, 0.25)),
    _rule(F=-0.5, n0=-0.5),
    _rule(n=-1, mix=0.3),
    _rule(E=0.5, n=-1, mix=0.3),
    *(_rule(T=signal, n=-1) for signal in (0.25, 0.5)),
    *(_rule(T=signal, n=-0.5, r0=-0.5) for signal in (0.25, 0.5)),
    _rule(E=0.25, n=-0.5, r=-0.25, r0=-0.25),
)

# How much less should a task count that still has most of its first loss?
_TRUST = (
    _rule(r0=-1),
    _rule(E=0.25, n=-1),
    _rule(E=0.5, n=-1),
    _rule(r=-0.5, r0=-0.5),
    *(_rule(trust=trust, E=signal, r0=-1) for signal in (0, 0.25, 0.5) for trust in (1, 2, 3, 4, 6, 8)),
    *(_rule(trust=trust, E=signal, n=-0.5, r0=-0.5) for signal in (0, 0.25) for trust in (2, 4)),
    *(_rule(threshold=power, E=signal, r0=-1) for signal in (0, 0.25, 0.5) for power in (2, 3, 4)),
    *(_rule(trust=4, T=signal, r0=-1) for signal in (0.25, 0.5)),
)

# How far apart may the norms set tasks that are learned and tasks that are not?
_CONTRAST = (
    _rule(r0=-1),
    *(_rule(trust=trust, n=-0.5, r0=-0.5) for trust in (1, 2, 3)),
    *(Candidate({"r0": -1, cap: -0.5}, trust) for trust in (1, 1.5, 2, 2.5, 3) for cap in ("g30", "g10", "g3")),
    *(Candidate({"r0": -1, cap: -0.25}, trust) for trust in (2, 3) for cap in ("g", "g10")),
    *(_rule(trust=trust, F=-0.5, r0=-0.5) for trust in (1.5, 2, 3)),
    *(_rule(trust=trust, n=-0.75, r0=-0.25) for trust in (1, 2)),
    *(_rule(trust=trust, r0=-1) for trust in (2, 3)),
    *(_rule(threshold=power, r0=-1, g10=-0.5) for power in (0.5, 1)),
)

# Should the excess risk be taken off the loss before it is distrusted?
_IRREDUCIBLE = (
    SHIPPED,
    *(_rule(trust=trust, trusts="i", n=-0.5, r0=-0.5) for trust in (1.5, 2, 2.5, 3, 4)),
    *(_rule(trust=trust, trusts="i", r0=-1) for trust in (2, 3, 4)),
    *(_rule(trust=trust, trusts="r_fast", n=-0.5, r0=-0.5) for trust in (2,)),
    *(_rule(trust=trust, trusts="i", n=-0.75, r0=-0.25) for trust in (1, 2)),
)

GROUPS: dict[str, tuple[Candidate, ...]] = {
    "ablation": (*RIVALS, *_ABLATION),
    "units": (*RIVALS, *_UNITS),
    "trust": (*RIVALS, *_TRUST),
    "contrast": (*RIVALS, *_CONTRAST),
    "irreducible": (*RIVALS, *_IRREDUCIBLE),
    "quick": (*RIVALS, _rule(E0=0.5, n=-1), _rule(r0=-1), SHIPPED),
}


def choose(names: list[str]) -> list[Candidate]:
    """Candidates of the named groups and formulas, each once, behind the rivals that all are measured against."""
    known = {candidate.name: candidate for group in GROUPS.values() for candidate in group}
    chosen = list(RIVALS)
    for name in names:
        if name not in GROUPS and name not in known:
            raise ValueError(
                f"--candidates {name!r} is neither a group ({', '.join(GROUPS)}) nor the formula of a candidate; "
                "--list prints all formulas"
            )
        chosen += GROUPS[name] if name in GROUPS else (known[name],)
    return list({candidate.name: candidate for candidate in chosen}.values())
