"""Every option of every method says what it is for."""

from dataclasses import dataclass, fields

from typer.testing import CliRunner

from choices import each
from excessmtl.excess.method import rules
from excessmtl.lab.cli.app import app
from excessmtl.lab.cli.terminal import console
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


def invoke(*arguments):
    return CliRunner().invoke(app, ["methods", *arguments])


@each("width", [80, 200])
def test_names_are_never_cut(monkeypatch, width):
    monkeypatch.setattr(console, "width", width)
    listed = invoke().stdout
    assert [name for name in registry() if name not in listed] == []
    shown = invoke("excess").stdout
    assert all(option.name in shown for rule in rules().values() for option in options_of(rule))


def test_the_command_lists_the_options_of_a_method(monkeypatch):
    monkeypatch.setattr(console, "width", 200)
    shown = invoke("excess").stdout
    assert "eta, how fast weights follow the excess risks." in shown
    assert "Literal['none', 'initial']" in shown
    assert "no options of its own" in invoke("uniform").stdout
    refused = invoke("nope")
    assert refused.exit_code == 2
    assert "unknown method 'nope'" in refused.stderr


def test_a_rule_without_source_has_its_names_and_defaults():
    made = {"Rule": Rule, "dataclass": dataclass}
    exec("@dataclass(frozen=True)\nclass Mine(Rule):\n    power: float = 2.0", made)
    (option,) = options_of(made["Mine"])
    assert (option.name, option.default, option.meaning) == ("power", "2.0", "")
