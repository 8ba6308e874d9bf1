"""The cells that a word names: a package, an evaluation or a cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import NotFound, UsageError
from roost.operations.evaluating.named_evaluations import find_cells
from tests.evaluation.made_evaluation import make_evaluation

CELL = "beam/best/test%clean"


def test_packages_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "runs" / "one"
    first = make_evaluation(package)
    (package / "request.json").write_text("{}")
    assert find_cells("one").path.samefile(first) and find_cells("one/beams").path.samefile(first)
    found = find_cells(str(package / "beams"))
    assert (found.path, len(found.cells), found.unfinished) == (first, 4, 1)
    assert find_cells(first / CELL).cells[0].path == first / CELL
    make_evaluation(package, "second")
    with pytest.raises(UsageError, match="2 evaluations"):
        find_cells("one")
    with pytest.raises(NotFound):
        find_cells("one/third")
