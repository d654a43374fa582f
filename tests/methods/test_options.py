"""A bad option is refused at once, with its name and its value."""

import pytest
import torch

import excessmtl.methods
from excessmtl.excess.method import rules
from excessmtl.methods.documentation import options_of
from models import TASKS, batch, losses_of, mlp
from steps import host_state, with_host_state

BAD = [
    ("excess", {"estimator": "robust", "step_size": 0.1}, "step_size is not an option of estimator='robust'"),
    ("excess", {"estimator": "robust", "probe": "all"}, "probe must be one of"),
    ("excess", {"estimator": "papre"}, "estimator must be one of"),
    ("excess", {"estimator": "paper", "warmup_steps": 3}, "needs normalize='initial'"),
    ("excess", {"accumulators": "bf16"}, "accumulators is not an option of estimator='robust'"),
    ("excess", {"estimator": "paper", "probe": "representation", "accumulators": "bf16"}, "is not an option"),
    ("excess", {"decay": 1.0}, "decay must be at least 0 and below 1"),
    ("excess", {"cap": 0.5}, "cap must be at least 1"),
    ("static", {"weights": [1, -1]}, "weights.*-1"),
    ("static", {"weights": [1]}, "weights has 1 values for 2 tasks"),
    ("static", {"weights": {"a": 1, "x": 2}}, "x"),
    ("gradnorm", {"initial_losses": [1, 0]}, "initial_losses"),
    ("groupdro", {"adjustment": 1.0}, "adjustment and sizes .* go together"),
    ("moml", {"normalize": "loss+"}, "normalize.*loss\\+"),
    ("uw", {"kinds": "ranking"}, "kinds.*ranking"),
    ("uw", {"kinds": {"a": "regression"}}, "kinds"),
    ("uw", {"kinds": -1}, "kinds has 1 values for 2 tasks"),
    ("dtp", {"rate": 0}, "rate.*0"),
    ("cagrad", {"rescale": 3}, "rescale.*3"),
    ("graddrop", {"leak": 2}, "leak.*2"),
    ("fairgrad", {"alpha": 0}, "alpha.*0"),
    ("gradvac", {"rate": 2}, "rate.*2"),
    ("pcd", {"primary": "x"}, "primary.*'x'"),
    ("pcd", {"tau": 2}, "tau.*2"),
    ("auto_lambda", {"primary": ["x"]}, "primary.*x"),
    ("db_mtl", {"decay": 1}, "decay.*1"),
    ("cosmos", {"preference": [1, 0]}, "preference.*0"),
    ("forum", {"rho": 0}, "rho.*0"),
    ("forum", {"validation": ["x"]}, "validation.*'x'"),
    ("bayes_agg", {"samples": 1}, "samples.*1"),
    ("bayes_agg", {"warmup_epochs": 0.5}, "warmup_epochs.*0.5"),
    ("forum", {"validation": ["a", "b"]}, "validation.*not all"),
    ("famo", {"lower": [1]}, "lower has 1 values for 2 tasks"),
]

RULES = {**{name: rule for name, rule in excessmtl.methods.registry().items() if isinstance(rule, type)}, **rules()}
IN_THE_TABLE = {"kinds", "primary", "validation", "adjustment", "sizes", "lower"}
ANY_NUMBER = {"seed", "batch_dim", "feature_dim"}
MORE_THAN_ZERO = {"cap", "damping", "first_steps", "inner_step", "iterations", "max_norm", "mu", "prior_variance"}
MORE_THAN_ZERO |= {"samples", "selected", "step_size", "temperature", "tracking", "width", "window", "windows"}


@pytest.mark.parametrize("name", RULES)
def test_every_option_refuses_what_it_cannot_mean(name):
    for option in (option.name for option in options_of(RULES[name])):
        if option not in IN_THE_TABLE | ANY_NUMBER:
            for wrong in (-1.0, float("nan"), *([0] if option in MORE_THAN_ZERO else [])):
                with pytest.raises(ValueError, match=rf"\b{option}\b.*{wrong}"):
                    RULES[name](**{option: wrong}).bind(["a", "b"])


@pytest.mark.parametrize(("name", "options", "message"), BAD)
def test_bad_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        excessmtl.methods.registry()[name](**options).bind(["a", "b"])


@pytest.mark.parametrize(("name", "option", "meant"), [("moml", "normalize", "none"), ("fairgrad", "max_norm", None)])
def test_a_state_from_before_an_option_is_taken_where_the_option_says_what_was_done_then(name, option, meant):
    model = mlp()
    x, targets = batch()

    def balancer(**options):
        return excessmtl.create(name, tasks=TASKS, shared=model.trunk, **options)

    old = balancer(**{option: meant})
    old.backward(losses_of(model(x), targets))
    told = host_state(old.state_dict())
    del told["options"][option]
    saved = with_host_state(old.state_dict(), told)  # as a release wrote it that did not have the option
    again = balancer(**{option: meant})
    again.load_state_dict(saved)
    assert torch.equal(*(one.backward(losses_of(model(x), targets)).weights for one in (old, again)))
    with pytest.raises(ValueError, match=f"state was saved with {option}={meant!r}, this balancer has {option}="):
        balancer().load_state_dict(saved)
