"""Every option of every method says what it is for."""

from dataclasses import dataclass, fields

from choices import each
from commands import done, excessmtl, refused
from excessmtl.excess.method import rules
from excessmtl.lab.cli.app import console
from excessmtl.methods import registry
from excessmtl.methods.base import Rule
from excessmtl.methods.documentation import options_of

RULES = {**{name: rule for name, rule in registry().items() if isinstance(rule, type)}, **rules()}


def test_every_option_has_a_type_a_default_and_a_line():
    for name, rule in RULES.items():
        options = options_of(rule)
        assert [option.name for option in options] == [field.name for field in fields(rule) if field.init]
        bare = [option.name for option in options if not (option.kind and option.default)]
        bare += [option.name for option in options if not option.meaning.endswith(".")]
        assert bare == [], f"options of {name} that need a type, a default and a docstring below their field"


@each("width", [80, 200])
def test_names_are_never_cut(monkeypatch, width):
    monkeypatch.setattr(console, "width", width)
    listed = done("methods")
    assert [name for name in registry() if name not in listed] == []
    shown = done("methods", "excess")
    assert all(option.name in shown for rule in rules().values() for option in options_of(rule))


def test_the_command_lists_the_options_of_a_method(monkeypatch):
    monkeypatch.setattr(console, "width", 200)
    shown = done("methods", "excess")
    assert "eta, how fast weights follow the excess risks." in shown
    assert "Literal['none', 'initial']" in shown
    assert "no options of its own" in done("methods", "uniform")
    refused(excessmtl("methods", "nope"), "unknown method 'nope'")


def test_a_rule_without_source_has_its_names_and_defaults():
    made = {"Rule": Rule, "dataclass": dataclass}
    exec("@dataclass(frozen=True)\nclass Mine(Rule):\n    power: float = 2.0", made)
    (option,) = options_of(made["Mine"])
    assert (option.name, option.default, option.meaning) == ("power", "2.0", "")
