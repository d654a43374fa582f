"""What `engine=` takes, and options that the engine it was given does not have."""

import pytest
from torch import nn

from choices import PAPER, UNIFORM
from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.gradients.one_pass import Fastest
from excessmtl.recording.recorded import Recorded


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": None}, "engine must be"),
        ({"engine": AnyGraph}, "engine must be"),
        ({"engine": "quick"}, "engine must be 'fast', 'reference' or an engine, found 'quick'"),
        ({"engine": Recorded(), "record": False}, "record=False has no effect"),
        ({"engine": Fastest(), "tasks_at_once": 2}, "tasks_at_once has no effect"),
        ({"engine": "reference", "tasks_at_once": 2}, "is an option of engine='fast'"),
    ],
)
def test_an_option_without_effect_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        PAPER.create(nn.Linear(2, 2), **options)


def test_an_engine_that_has_the_option_is_taken():
    engine = Fastest()
    assert PAPER.create(nn.Linear(2, 2), engine=engine, record=False).engine is engine
    UNIFORM.create(nn.Linear(2, 2), engine="reference", record=True)  # without a warning
