"""The process that does one analysis."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.analysis import analysis_folder
from roost.base.errors import NotFound
from roost.package.package import PackageFolder
from roost.worker import analyze_task
from roost.worker.__main__ import main
from tests.messages import Messages
from tests.project.projects import DATASET
from tests.project.trained import trained


def asked(package: PackageFolder, script: str, **changed: Any) -> Path:
    """The folder of an analysis, as the operation makes it."""
    place = analysis_folder.create(package.path / analysis_folder.NAME)
    (place / analysis_folder.SCRIPT).write_text(script)
    body = {"checkpoint": None, "untrained": False, "device": "cpu", "project": "/nowhere"}
    entry = {"path": str(package.path / "AnalyzeScripts" / "look.py"), "sha256": "0"}
    analysis_folder.write_request(place, {**body, "script": entry, **changed})
    return place


def test_does_what_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = trained(tmp_path)
    monkeypatch.chdir(package.path)
    script = "import torch\ndef experience(self):\n    return self.checkpoint.id, torch.get_num_threads()"
    first = asked(package, script, checkpoint=1)
    assert analyze_task.analyze(package, first) == "finished"
    assert analysis_folder.read_result(first)["value"] == [1, 1]
    # As many threads as the first session had: another number adds up in another order.
    (package.path / "environment.json").write_text(json.dumps({"stack": {"threads": 2}}))
    second = asked(package, script)
    analyze_task.analyze(package, second)
    assert analysis_folder.read_result(second)["value"] == [2, 2]
    torch.set_num_threads(1)
    for damaged in ("", "[]", '{"stack": {"threads": "x"}}', '{"stack": 3}'):
        (package.path / "environment.json").write_text(damaged)
        place = asked(package, script)
        analyze_task.analyze(package, place)
        assert analysis_folder.read_result(place)["value"] == [2, 1], "nothing here is worth less for it"


def test_a_folder_without_a_request(tmp_path: Path, messages: Messages) -> None:
    place = analysis_folder.create(tmp_path)
    with pytest.raises(NotFound) as refused:
        analyze_task.analyze(PackageFolder(tmp_path), place)
    messages.check(refused.value)


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("import sys\ndef experience(self): sys.exit(7)", 7, "sys.exit(7)"),
        ("import sys\ndef experience(self): sys.exit()", 1, "sys.exit()"),
        ("import sys\nsys.exit(75)\ndef experience(self): ...", 1, "sys.exit(75)"),
        ("import sys\ndef experience(self): sys.exit('why')", 1, "why"),
        ("experience = 3", 1, "`experience`"),
        ("import no_such_module_at_all\ndef experience(self): ...", 1, "no_such_module_at_all"),
        ("def experience(self): self.save('../x', 'y')", 1, "'../x'"),
        ("def experience(self): self.batches('tets')", 3, "'test'"),
        ("def experience(self): return 1 / 0", 1, "ZeroDivisionError"),
    ],
)
def test_scripts_that_fail(
    text: str,
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    package = trained(tmp_path, dataset=DATASET.replace("valid=data", "valid=data, test=data"))
    monkeypatch.chdir(package.path)
    for name in ("stdout", "stderr"):  # main puts its own in their place
        monkeypatch.setattr(sys, name, getattr(sys, name))
    place = asked(package, text)
    assert main([str(package.path), str(place)]) == code
    printed = capfd.readouterr().err
    assert says in printed and "look.py" in printed
    assert "src/roost/" not in printed, "no frame of roost's own"
    error = analysis_folder.read_result(place)["error"]
    assert error["traceback"] is None or "look.py" in error["traceback"].splitlines()[0]
