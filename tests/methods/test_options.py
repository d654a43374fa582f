"""A bad option is refused at once, with its name and its value."""

import pytest
import torch

import excessmtl.methods
from models import TASKS, batch, losses_of, mlp
from steps import host_state, with_host_state

BAD = [
    ("excess", {"estimator": "robust", "step_size": 0.1}, "step_size is not an option of estimator='robust'"),
    ("excess", {"estimator": "robust", "probe": "all"}, "probe must be one of"),
    ("excess", {"estimator": "papre"}, "estimator must be one of"),
    ("excess", {"estimator": "paper", "warmup_steps": 3}, "needs normalize='initial'"),
    ("excess", {"estimator": "paper", "step_size": 0.0}, "step_size must be positive"),
    ("excess", {"estimator": "paper", "accumulators": "factored"}, "accumulators must be one of"),
    ("excess", {"accumulators": "bf16"}, "accumulators is not an option of estimator='robust'"),
    ("excess", {"estimator": "paper", "probe": "representation", "accumulators": "bf16"}, "is not an option"),
    ("excess", {"decay": 1.0}, "decay must be at least 0 and below 1"),
    ("excess", {"trust": -1.0}, "trust must be at least 0"),
    ("excess", {"first_steps": 0}, "first_steps must be a whole number"),
    ("excess", {"cap": 0.5}, "cap must be at least 1"),
    ("static", {"weights": [1, -1]}, "weights.*-1"),
    ("static", {"weights": [1]}, "weights has 1 values for 2 tasks"),
    ("static", {"weights": {"a": 1, "x": 2}}, "x"),
    ("gradnorm", {"step_size": 0}, "step_size.*0"),
    ("gradnorm", {"initial_losses": [1, 0]}, "initial_losses"),
    ("mgda", {"normalize": "l1"}, "normalize.*l1"),
    ("mgda", {"solver": "exactly"}, "solver.*exactly"),
    ("mgda", {"probe": "layer"}, "probe.*layer"),
    ("groupdro", {"step_size": -1}, "step_size.*-1"),
    ("imtl_l", {"step_size": 0}, "step_size"),
    ("imtl_hybrid", {"step_size": 0}, "step_size"),
    ("moml", {"inner_step": 0}, "inner_step"),
    ("moml", {"step_size": -1}, "step_size"),
    ("moml", {"normalize": "loss+"}, "normalize.*loss\\+"),
    ("uw", {"kinds": "ranking"}, "kinds.*ranking"),
    ("uw", {"kinds": {"a": "regression"}}, "kinds"),
    ("dtp", {"rate": 0}, "rate"),
    ("dtp", {"gamma": -1.0}, "gamma.*-1"),
    ("dwa", {"temperature": 0}, "temperature"),
    ("dwa", {"window": 0}, "window"),
    ("cagrad", {"c": -0.1}, "c must.*-0.1"),
    ("cagrad", {"rescale": 3}, "rescale.*3"),
    ("graddrop", {"leak": 2}, "leak.*2"),
    ("nash", {"max_norm": 0}, "max_norm.*0"),
    ("nash", {"probe": "losses"}, "probe.*losses"),
    ("fairgrad", {"alpha": 0}, "alpha.*0"),
    ("fairgrad", {"max_norm": 0}, "max_norm.*0"),
    ("aligned_mtl", {"size": "max"}, "size.*max"),
    ("gradvac", {"rate": 2}, "rate.*2"),
    ("pcd", {"primary": "x"}, "primary.*'x'"),
    ("pcd", {"tau": 2}, "tau.*2"),
    ("krum", {"selected": 0}, "selected.*0"),
    ("sdmgrad", {"iterations": 0}, "iterations.*0"),
    ("modo", {"rho": -1}, "rho.*-1"),
    ("auto_lambda", {"primary": ["x"]}, "primary.*x"),
    ("moco", {"tracking": 0}, "tracking.*0"),
    ("db_mtl", {"decay": 1}, "decay.*1"),
    ("trimmed_mean", {"trim": -1}, "trim.*-1"),
    ("cosmos", {"preference": [1, 0]}, "preference.*0"),
    ("pbi", {"theta": -1}, "theta.*-1"),
    ("ldc_mtl", {"penalty": -1}, "penalty.*-1"),
    ("ldc_mtl", {"compare": "all"}, "compare.*all"),
    ("autoscale", {"windows": 0}, "windows.*0"),
    ("forum", {"rho": 0}, "rho.*0"),
    ("forum", {"power": -1}, "power.*-1"),
    ("forum", {"validation": ["x"]}, "validation.*'x'"),
    ("bayes_agg", {"prior_variance": 0}, "prior_variance.*0"),
    ("bayes_agg", {"power": -1}, "power.*-1"),
    ("bayes_agg", {"samples": 1}, "samples.*1"),
    ("bayes_agg", {"warmup_epochs": 0.5}, "warmup_epochs.*0.5"),
    ("bayes_agg", {"window": 0}, "window.*0"),
    ("forum", {"validation": ["a", "b"]}, "validation.*not all"),
    ("uw_so", {"temperature": 0}, "temperature.*0"),
    ("igb", {"base_epoch": -1}, "base_epoch.*-1"),
    ("stch", {"mu": 0}, "mu.*0"),
    ("stch", {"warmup_epochs": -1}, "warmup_epochs.*-1"),
    ("famo", {"decay": -1}, "decay.*-1"),
    ("famo", {"lower": [1]}, "lower has 1 values for 2 tasks"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD)
def test_bad_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        excessmtl.methods.registry()[name](**options).bind(["a", "b"])


def without_option(state_dict, name):
    """The state as a release wrote it that did not have the option."""
    told = host_state(state_dict)
    del told["options"][name]
    return with_host_state(state_dict, told)


@pytest.mark.parametrize(("name", "option", "meant"), [("moml", "normalize", "none"), ("fairgrad", "max_norm", None)])
def test_a_state_from_before_an_option_is_taken_where_the_option_says_what_was_done_then(name, option, meant):
    model = mlp()
    x, targets = batch()

    def balancer(**options):
        return excessmtl.create(name, tasks=TASKS, shared=model.trunk, **options)

    old = balancer(**{option: meant})
    old.backward(losses_of(model(x), targets))
    saved = without_option(old.state_dict(), option)
    again = balancer(**{option: meant})
    again.load_state_dict(saved)
    assert torch.equal(
        old.backward(losses_of(model(x), targets)).weights, again.backward(losses_of(model(x), targets)).weights
    )
    with pytest.raises(ValueError, match=f"state was saved with {option}={meant!r}, this balancer has {option}="):
        balancer().load_state_dict(saved)
