"""result.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from roost.analysis import analysis_folder, result_file
from roost.analysis.saved_files import SavedFiles
from roost.base.traceback_frames import ProjectFiles
from roost.package.checkpoints.checkpoint import Manifest
from tests.messages import Messages


def test_is_strict_json_with_everything_in_it(tmp_path: Path, messages: Messages) -> None:
    files = SavedFiles(tmp_path)
    files.write("note", "txt", b"x")
    info = Manifest(id=3, step=30, epoch=2, batch=0)
    value = {"loss": float("inf"), "map": np.zeros((40, 40)), "odd": object()}
    result_file.write(
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
    result_file.write(
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
