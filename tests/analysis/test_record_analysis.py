"""DLNest's function for one analysis."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.analysis.record_analysis import analyze
from roost.base.errors import UsageError
from tests.project.dlnest import loops


def test_a_function_and_a_script(tmp_path: Path) -> None:
    made = loops.package(tmp_path, epochs=2)
    loops.run(made)
    record = str(made.path)
    assert analyze(record, devices=[-1], expFunc=lambda self: self.checkpoint.id) == 1
    assert analyze(record, 0, devices=[-1], expFunc=lambda self: len(self.log["acc"])) == 1
    assert analyze(record, -2, devices=[-1], expFunc=lambda self: self.checkpoint) is None
    script = tmp_path / "look.py"
    script.write_text("import near\n\ndef experience(self):\n    return near.VALUE, self.args['epochs']\n")
    (tmp_path / "near.py").write_text("VALUE = 5\n")
    assert analyze(record, scriptPath=str(script), devices=[-1]) == (5, 2)


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="either"):
        analyze(str(tmp_path))
    with pytest.raises(UsageError, match="one device"):
        analyze(str(tmp_path), devices=[0, 1], expFunc=print)
