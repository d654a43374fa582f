"""What `engine=` takes, and options that the engine it was given does not have."""

from typing import Any

import pytest
from torch import nn

import excessmtl
from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.gradients.one_pass import Fastest
from excessmtl.recording.recorded import Recorded


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": None}, "engine must be"),
        ({"engine": AnyGraph}, "engine must be"),
        ({"engine": Recorded(), "record": False}, "record=False has no effect"),
        ({"engine": Fastest(), "tasks_at_once": 2}, "tasks_at_once has no effect"),
    ],
)
def test_an_option_without_effect_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        excessmtl.create("excess", tasks=["a"], shared=nn.Linear(2, 2), estimator="paper", **options)


def test_an_engine_that_has_the_option_is_taken() -> None:
    engine = Fastest()
    balancer = excessmtl.create(
        "excess", tasks=["a"], shared=nn.Linear(2, 2), estimator="paper", engine=engine, record=False
    )
    assert balancer.engine is engine
