"""What `roost evaluate` prints: a line for each cell, or JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roost.cli.evaluations.evaluation_view import print_evaluation
from tests.evaluation.made_evaluation import make_cell, write_cells


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An evaluation with a finished cell, one of whose samples was skipped, and one that waits."""
    rows = [
        {"id": 0, "wer": 0.25},
        {"id": 1, "wer": 0.75},
        {"id": 2, "skipped/error": "ValueError: no sound"},
    ]
    make_cell(tmp_path / "beam=1" / "best" / "test", rows)
    cells = [
        {
            "variant": variant,
            "checkpoint": "best",
            "dataset": "test",
            "folder": f"{variant}/best/test",
            "state": state,
        }
        for variant, state in (("beam=1", "finished"), ("beam=5", "waiting"))
    ]
    write_cells(tmp_path, cells)
    return tmp_path


def test_a_line_for_each_cell(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_evaluation(folder, as_json=False)
    header, one, other = capsys.readouterr().out.splitlines()
    assert header.split() == ["checkpoint", "variant", "dataset", "samples", "skipped", "wer"]
    assert one.split() == ["best", "beam=1", "test", "2", "1", "0.5"]
    assert other.split() == ["best", "beam=5", "test", "waiting", "0"]


def test_json_has_the_summaries(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_evaluation(folder, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [cell["state"] for cell in found["cells"]] == ["finished", "waiting"]
    assert found["cells"][0]["summary"]["metrics"]["wer"]["mean"] == 0.5
    assert found["cells"][1]["summary"] is None
