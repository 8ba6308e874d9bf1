"""One analysis, and what is written down of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roost.analysis import analysis_folder, analysis_run
from roost.analysis.analysis_folder import SavedFiles
from roost.analysis.analysis_run import AnalysisFunction, AnalysisRequest, run_analysis
from roost.base.errors import CheckpointError
from roost.base.traceback_frames import ProjectFiles
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.project.package_context import package_code
from tests.messages import Messages
from tests.project.projects import DATASET
from tests.project.trained import trained

SCRIPT = {"path": f"{__file__}:look", "sha256": "0" * 64}


def done(package: PackageFolder, function: AnalysisFunction, **asked: Any) -> tuple[Any, dict[str, Any]]:
    """What it gave, and its result.json; an error that it raises is the first of the two."""
    place = analysis_folder.create(package.path / analysis_folder.NAME)
    with package_code(package):
        try:
            value = run_analysis(
                package,
                place,
                AnalysisRequest(device="cpu", **asked),
                script=SCRIPT,
                function=lambda: function,
            )
        except BaseException as error:  # noqa: BLE001  - looked at by the test
            value = error
    return value, json.loads((place / analysis_folder.RESULT).read_bytes())


def state_of(package: PackageFolder) -> dict[str, str]:
    """Every file of a package but those of analyses, by its digest."""
    files = [path for path in package.path.rglob("*") if path.is_file()]
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if analysis_folder.NAME not in path.relative_to(package.path).parts
    }


def test_a_result_says_what_was_looked_at(tmp_path: Path) -> None:
    package = trained(tmp_path)
    before = state_of(package)

    def look(self: Any) -> Any:
        self.save("a", "text")
        return {"step": self.checkpoint.step, "x": torch.zeros(2)}

    value, result = done(package, look)
    assert value["x"].tolist() == [0.0, 0.0]
    assert result["script"] == SCRIPT and result["device"] == "cpu" and result["seconds"] > 0
    assert result["checkpoint"] == {"id": 2, "step": 6, "epoch": 1}
    assert result["saved"] == ["a.txt"] and result["value"] == {"step": 6, "x": [0.0, 0.0]}
    assert result["error"] is None and result["notes"] == []
    assert done(package, lambda self: self.checkpoint.id, checkpoint=0)[0] == 0
    _, untrained = done(package, lambda self: self.checkpoint, untrained=True)
    assert untrained["checkpoint"] is None and untrained["value"] is None
    assert state_of(package) == before, "an analysis changes nothing"


def test_twice_the_same(tmp_path: Path) -> None:
    package = trained(tmp_path)

    def draws(self: Any) -> Any:
        self.model.train()  # with dropout
        return self.model.net(torch.randn(4, 4)).flatten()

    torch.manual_seed(1)
    first, _ = done(package, draws)
    torch.manual_seed(2)
    second, _ = done(package, draws)
    assert torch.equal(first, second)


def test_a_damaged_newest_one_is_passed_over_aloud(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    package = trained(tmp_path)
    file = checkpoint.checkpoint_folder(package.checkpoints, 2) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    before = state_of(package)
    value, result = done(package, lambda self: self.checkpoint.id)
    assert value == 1 and result["checkpoint"]["id"] == 1
    said = capsys.readouterr().out
    assert said.startswith("state_2.ckpt: model.safetensors ") and said.count("\n") == 1
    messages.check(said)
    assert state_of(package) == before, "nothing is set aside"
    error, result = done(package, lambda self: None, checkpoint=2)
    assert isinstance(error, CheckpointError) and "state_2.ckpt" in result["error"]["message"]
    assert result["error"]["traceback"] is None and result["checkpoint"] is None


def test_an_error_is_kept_with_the_persons_part_of_its_traceback(tmp_path: Path) -> None:
    def look(self: Any) -> None:
        self.save("before", "text")
        raise KeyError("nope")

    error, result = done(trained(tmp_path), look)
    assert isinstance(error, KeyError)
    assert result["saved"] == ["before.txt"] and result["value"] is None
    assert result["error"]["type"] == "KeyError" and result["error"]["message"] == "'nope'"
    first, code, last = result["error"]["traceback"].splitlines()
    assert first.startswith(f"  {Path(__file__).name}:") and first.endswith(" in look")
    assert (code, last) == ('    raise KeyError("nope")', "KeyError: 'nope'")


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()])
def test_whatever_ends_it_is_kept(end: BaseException, tmp_path: Path) -> None:
    def look(self: Any) -> None:
        raise end

    error, result = done(trained(tmp_path), look)
    assert error is end and result["error"]["type"] == type(end).__name__


def test_data_that_stayed_with_the_project(tmp_path: Path) -> None:
    reads = DATASET.replace(
        "        x = ",
        "        open(self.args['data_file']) if self.args['data_file'] else None\n        x = ",
    )
    package = trained(tmp_path, dataset=reads, data_file="")
    for named, has_hint in (("${project}/data.csv", True), ("/elsewhere/data.csv", False)):
        args = package.path / "args.json"
        args.write_text(json.dumps({**json.loads(args.read_text()), "data_file": named}))
        error, result = done(package, lambda self: None, project="/gone/project")
        assert isinstance(error, FileNotFoundError)
        hints = [note for note in getattr(error, "__notes__", []) if "--project DIR" in note]
        assert len(hints) == has_hint and all("/gone/project" in hint for hint in hints)
        assert ("--project DIR" in result["error"]["message"]) == has_hint


def test_is_strict_json_with_everything_in_it(tmp_path: Path, messages: Messages) -> None:
    files = SavedFiles(tmp_path)
    files.write("note", "txt", b"x")
    info = Manifest(id=3, step=30, epoch=2, batch=0)
    value = {"loss": float("inf"), "map": np.zeros((40, 40)), "odd": object()}
    analysis_run.write_result(
        files,
        own=ProjectFiles([]),
        script={"path": "a.py"},
        checkpoint=info,
        device="cpu",
        seconds=1.23456,
        value=value,
    )

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    found = json.loads((tmp_path / analysis_folder.RESULT).read_bytes(), parse_constant=refuse)
    assert found["checkpoint"] == {"id": 3, "step": 30, "epoch": 2} and found["seconds"] == 1.235
    assert found["saved"] == ["note.txt", "value.map.npy"]
    assert found["value"]["loss"] is None and found["nonfinite"] == {"value.loss": "inf"}
    assert found["value"]["map"] == {"file": "value.map.npy", "shape": [40, 40], "dtype": "float64"}
    (note,) = found["notes"]
    assert note.startswith("value.odd ") and "object" in note and "repr" in note
    messages.check(note)
    assert found["script"] == {"path": "a.py"} and found["error"] is None and found["format"] == 1


def test_of_an_error(tmp_path: Path) -> None:
    error = ValueError("no")
    analysis_run.write_result(
        SavedFiles(tmp_path),
        own=ProjectFiles([]),
        script={},
        checkpoint=None,
        device=None,
        seconds=0.0,
        error=error,
    )
    found = analysis_folder.read_result(tmp_path)
    assert found["error"] == {"type": "ValueError", "message": "no", "traceback": None}
    assert found["checkpoint"] is None and found["device"] is None
