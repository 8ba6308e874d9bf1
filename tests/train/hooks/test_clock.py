from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.train.parts import Recipe, StopAt


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        ({"validate": "10min"}, ["wall clock: validation comes every 10min"]),
        ({"log": ["5", "1h"]}, ["wall clock: a row comes every 5 or 1h"]),
        ({"save": "10min"}, []),
        ({"validate": ["3", "1ep"], "log": "10/ep"}, []),
    ],
)
def test_rows_and_validations_by_the_clock_are_named(
    options: dict[str, Any], reasons: list[str], tmp_path: Path
) -> None:
    trainer = Recipe(**options).make(tmp_path, StopAt(2))
    trainer.fit()
    assert trainer.inexact == reasons
