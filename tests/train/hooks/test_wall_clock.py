from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.messages import Messages
from tests.train.parts import Recipe, StopAt


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"validate": "10min"}, ["validation", "10min"]),
        ({"log": ["5", "1h"]}, ["row", "5", "1h"]),
        ({"save": "10min"}, []),
        ({"validate": ["3", "1ep"], "log": "10/ep"}, []),
    ],
    ids=["validations", "rows", "saves", "steps"],
)
def test_rows_and_validations_by_the_clock_are_named(
    options: dict[str, Any], facts: list[str], tmp_path: Path, messages: Messages
) -> None:
    trainer = Recipe(**options).make(tmp_path, StopAt(2))
    trainer.fit()
    assert len(trainer.inexact) == bool(facts)
    for reason in trainer.inexact:
        assert reason.startswith("wall clock: ") and all(fact in reason for fact in facts)
        messages.check(reason)
