"""Starting an analysis: what is refused before anything is started, and one for real."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from roost.analysis import analysis_folder
from roost.base import durable
from roost.base.errors import (
    CheckpointError,
    ConfigError,
    ContractError,
    NotFound,
    Refused,
    RoostError,
    UsageError,
)
from roost.operations.models.analyze import AnalyzeRequest, analyze, outcome
from roost.operations.reading.package_schema import DamagedPackage
from roost.operations.reading.show import show
from roost.operations.sessions.running_session import follow
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.sessions import Session
from tests.messages import Messages
from tests.operations.packages import package

GOOD = (
    "def experience(self):\n    print('looking')\n    self.save('note', 'x')\n    return self.checkpoint.id\n"
)


def look(tmp_path: Path, text: str = GOOD) -> str:
    """A script's path."""
    (tmp_path / "look.py").write_text(text)
    return str(tmp_path / "look.py")


def analysed(made: PackageFolder, script: str, **asked: Any) -> dict[str, Any]:
    """Everything that came of it, and what was printed."""
    started = analyze(AnalyzeRequest(package=made.path, script=script, device="cpu", **asked))
    assert started.running is not None and started.process is not None
    printed = b""
    for event in follow(started.running):
        if isinstance(event, Session):
            break
        printed += event
    code = started.process.wait(100)
    found = outcome(started.running, event)  # type: ignore[arg-type]
    assert found["exit_code"] == code
    return {**found, "printed": printed.decode(), "notes": started.notes}


def contents(made: PackageFolder) -> dict[str, str]:
    """Every file and link of a package but those of analyses."""
    found = {}
    for path in sorted(made.path.rglob("*")):
        inside = path.relative_to(made.path)
        if inside.parts[0] != analysis_folder.NAME and path.is_file():
            found[str(inside)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_of_a_package_that_is_elsewhere_now(finished: PackageFolder, tmp_path: Path) -> None:
    """Its project was deleted, and it was copied to another path."""
    before = contents(finished)
    found = analysed(finished, look(tmp_path))
    newest = checkpoint.ids(finished.checkpoints)[-1]
    assert (found["state"], found["exit_code"], found["error"]) == ("succeeded", 0, None), found["printed"]
    assert found["printed"] == "looking\n"
    (note,) = found["notes"]
    assert note.endswith(str(tmp_path / "look.py"))
    assert found["result"]["value"] == newest and found["result"]["saved"] == ["note.txt"]
    place = finished.path / "analysis" / "1"
    assert found["folder"] == str(place) and (place / "note.txt").read_text() == "x"
    assert (place / "script.py").read_text() == GOOD
    request = json.loads((place / "request.json").read_bytes())
    assert request["script"]["sha256"] == hashlib.sha256(GOOD.encode()).hexdigest()
    assert contents(finished) == before, "the package itself is as it was"
    assert not list(finished.path.rglob("__pycache__"))
    (shown,) = show(finished.path).analyses
    assert (shown.number, shown.state, shown.checkpoint, shown.script) == (
        1,
        "succeeded",
        newest,
        str(tmp_path / "look.py"),
    )
    os.close(finished.lock())


def test_of_one_that_is_locked_and_elsewhere_stored(finished: PackageFolder, tmp_path: Path) -> None:
    held = finished.lock()
    before = contents(finished)
    try:
        for number in (1, 2):
            found = analysed(finished, look(tmp_path), out=tmp_path / "out", checkpoint=0)
            assert found["folder"] == str(tmp_path / "out" / str(number)) and found["result"]["value"] == 0
    finally:
        os.close(held)
    assert contents(finished) == before and not (finished.path / "analysis").exists()


def test_the_one_before_a_truncated_one(finished: PackageFolder, tmp_path: Path) -> None:
    newest = checkpoint.ids(finished.checkpoints)[-1]
    file = checkpoint.checkpoint_folder(finished.checkpoints, newest) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    before = contents(finished)
    found = analysed(finished, look(tmp_path))
    assert found["result"]["value"] == newest - 1
    said, looking = found["printed"].splitlines()
    assert said.startswith(f"state_{newest}.ckpt: model.safetensors ") and looking == "looking"
    assert contents(finished) == before
    found = analysed(finished, look(tmp_path), checkpoint=newest)
    assert (found["state"], found["exit_code"]) == ("failed", 1) and f"state_{newest}.ckpt" in found["error"]


def test_by_its_name_from_the_project_or_else_from_the_package(
    finished: PackageFolder, tmp_path: Path
) -> None:
    own, project = finished.path / "AnalyzeScripts", tmp_path / "project"
    own.mkdir(exist_ok=True)
    (own / "look.py").write_text("def experience(self): return 'of the package'")
    found = analysed(finished, "look")
    assert found["result"]["value"] == "of the package"
    assert [note.endswith(str(own / "look.py")) for note in found["notes"]] == [True]
    (project / "AnalyzeScripts").mkdir(parents=True)
    (project / "AnalyzeScripts" / "look.py").write_text(
        "from beside import x\nfrom Model import Runner\ndef experience(self): return x, Runner.__file__"
    )
    (project / "AnalyzeScripts" / "beside.py").write_text("x = 'of the project'")
    (project / "Model").mkdir()
    (project / "Model" / "Runner.py").write_text("raise SystemExit('the live code must not run')")
    found = analysed(finished, "look.py", project=project)
    assert found["result"], found["printed"]
    assert found["result"]["value"] == ["of the project", str(finished.path / "Model" / "Runner.py")]


def test_a_script_that_fails(tmp_path: Path, finished: PackageFolder) -> None:
    found = analysed(finished, look(tmp_path, "def experience(self): raise ValueError('no')"))
    assert (found["state"], found["exit_code"], found["error"]) == ("failed", 1, "ValueError: no")
    assert "ValueError: no" in found["printed"] and "look.py:1" in found["printed"]
    assert "src/roost/" not in found["printed"], "no frame of roost's own"
    assert found["result"]["error"]["traceback"].splitlines()[0] == "  look.py:1 in experience"


# --- what is refused before anything is started -----------------------------------------------------------


def refused(kind: type[RoostError], made: Path, script: str, **asked: Any) -> RoostError:
    with pytest.raises(kind) as caught:
        analyze(AnalyzeRequest(package=made, script=script, **asked))
    assert not (made / "analysis").exists()
    return caught.value


def test_scripts_that_cannot_be(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs").path
    for text, where in (
        ("x = 1", "look.py"),
        ("def experience(): ...", "look.py:1"),
        ("def experience(self", "look.py:1"),
    ):
        error = refused(ContractError, made, look(tmp_path, text))
        assert str(error.where) == str(tmp_path / where)
        messages.check(error)
    for name in ("nothing", "../look"):
        error = refused(NotFound, made, name)
        assert error.setting == "-s" and f"'{name}'" in str(error)
        messages.check(error)


def test_packages_that_cannot_be(tmp_path: Path, messages: Messages) -> None:
    script = look(tmp_path)
    messages.check(refused(NotFound, tmp_path / "nowhere", script))
    messages.check(refused(NotFound, tmp_path, script))
    half = package(tmp_path / "runs", "half").path
    (half / "request.json").unlink()
    error = refused(NotFound, half, script)
    assert error.where == half and "request.json" in error.message
    messages.check(error)
    (half / "args.json").unlink()
    assert refused(NotFound, half, script).where == half
    data = package(tmp_path / "runs", "data", values={"mine": 1}).path
    error = refused(Refused, data, script)
    assert error.where == data and "roost.open_package" in str(error.fix)
    messages.check(error)
    torn = package(tmp_path / "runs", "torn").path
    (torn / "args.json").write_text('{"runner": ')
    error = refused(DamagedPackage, torn, script)
    assert error.where == torn and "args.json" in error.message
    (tmp_path / "model.pt").write_bytes(b"\x80\x04N.")
    error = refused(Refused, tmp_path / "model.pt", script)
    assert error.setting == "PACKAGE"
    messages.check(error)
    wrong = package(tmp_path / "runs", "wrong", values={"runner": "a.py:A", "max_stepz": 3})
    assert "'max_stepz'" in str(refused(ConfigError, wrong.path, script))


def test_checkpoints_that_cannot_be(tmp_path: Path, messages: Messages) -> None:
    script = look(tmp_path)
    empty = package(tmp_path / "runs", "empty", checkpoints=False).path
    error = refused(NotFound, empty, script)
    assert error.where == empty and "--untrained" in str(error.fix)
    messages.check(error)
    made = package(tmp_path / "runs").path
    error = refused(NotFound, made, script, checkpoint=9)
    assert " 9" in error.message and "0, 1, 2" in error.message
    messages.check(error)
    messages.check(refused(UsageError, made, script, checkpoint=1, untrained=True))
    for path in (made / "Checkpoints").iterdir():
        shutil.rmtree(path)
        path.write_bytes(b"\x80\x04N.")
    error = refused(CheckpointError, made, script)
    assert error.where == made and all(f"state_{id}.ckpt" in error.message for id in (0, 1, 2))
    messages.check(error)


def test_places_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    made, script = package(tmp_path / "runs").path, look(tmp_path)
    error = refused(NotFound, made, script, project=tmp_path / "gone")
    assert error.setting == "--project" and str(tmp_path / "gone") in str(error)
    messages.check(error)

    def read_only(operation: str, path: str) -> None:
        if operation == "mkdir" and path.startswith(str(made)):
            raise OSError(30, "Read-only file system", path)

    monkeypatch.setattr(durable, "fault", read_only)
    error = refused(Refused, made, script)
    assert "Read-only file system" in error.message and "-o DIR" in str(error.fix)
    messages.check(error)


def test_links_to_data_that_stayed_behind(tmp_path: Path, messages: Messages) -> None:
    made, script = package(tmp_path / "runs"), look(tmp_path)
    manifest = {**made.manifest, "links": {"data": "/gone/data"}}
    (made.path / "manifest.json").write_text(json.dumps(manifest))
    (made.path / "data").symlink_to("/gone/data")

    def notes(**asked: Any) -> list[str]:
        started = analyze(AnalyzeRequest(package=made.path, script=script, untrained=True, **asked))
        assert started.process is not None
        started.process.kill()
        started.process.wait()
        return started.notes[1:]

    (note,) = notes()
    assert note.startswith("data ") and "--project DIR" in note and not (made.path / "data").exists()
    messages.check(note)
    (tmp_path / "moved" / "data").mkdir(parents=True)
    assert notes(project=tmp_path / "moved") == []
    assert (made.path / "data").readlink() == tmp_path / "moved" / "data"
