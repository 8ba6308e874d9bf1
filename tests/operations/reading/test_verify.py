"""Every byte against what was written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from roost.base import durable
from roost.base.errors import NotFound
from roost.operations.reading.verify import Finding, verify
from roost.package import snapshot
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.seals import session_seal
from tests.messages import Messages
from tests.operations.packages import package, session


def bad(made: PackageFolder) -> list[Finding]:
    return [finding for finding in verify(made.path) if finding.is_bad]


def test_all_is_good(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    found = list(verify(made.path))
    assert not any(finding.is_bad for finding in found)
    assert [finding.path for finding in found if finding.what == "checkpoint"] == [
        "Checkpoints/state_0.ckpt",
        "Checkpoints/state_1.ckpt",
        "Checkpoints/state_2.ckpt",
    ]


@pytest.mark.parametrize("file", ["model.json", "MANIFEST.json"])
def test_one_flipped_bit(tmp_path: Path, file: str) -> None:
    made = package(tmp_path / "runs")
    path = made.checkpoints / "state_1.ckpt" / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert [(finding.what, finding.path) for finding in bad(made)] == [
        ("checkpoint", "Checkpoints/state_1.ckpt")
    ]
    assert path.exists()  # nothing is set aside by looking


def test_a_lost_file(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    (made.checkpoints / "state_2.ckpt" / "MANIFEST.json").unlink()
    assert [finding.path for finding in bad(made)] == ["Checkpoints/state_2.ckpt"]


def test_changed_and_lost_code(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    (made.path / "Model" / "Runner.py").write_text("pass")
    (made.path / "config.yaml").unlink()
    found = sorted(bad(made), key=lambda finding: finding.path)
    assert [finding.path for finding in found] == ["Model/Runner.py", "config.yaml"]
    for finding in found:
        messages.check(finding.reason)


def test_changed_code_that_a_session_was_forced_to_go_on_with(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="stopped")
    file = made.path / "Model" / "Runner.py"
    file.write_text("pass")
    request = made.path / "sessions" / f"{session(made, 'stopped')}.request.json"
    changed = {"Model/Runner.py": snapshot.file_digest(file)}
    request.write_text(json.dumps({**json.loads(request.read_text()), "changed": changed}))
    (found,) = [finding for finding in verify(made.path) if finding.path == "Model/Runner.py"]
    assert not found.is_bad and "inexact" in found.reason
    messages.check(found.reason)
    file.write_text("pass  # once more")
    assert [finding.path for finding in bad(made)] == ["Model/Runner.py"]


def test_a_session_that_was_killed_may_leave_half_a_line(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    with (made.path / "records" / "1.jsonl").open("a") as file:
        file.write('{"step": 31, "ep')
    assert bad(made) == []
    with (made.path / "records" / "1.jsonl").open("a") as file:
        file.write('\n{"step": 32, "ep\n')
    assert [finding.what for finding in bad(made)] == ["records"]


@pytest.mark.parametrize("when", ["before its manifest is read", "while its files are read"])
def test_a_checkpoint_that_its_run_removes_meanwhile_is_not_bad(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    made = package(tmp_path / "runs")
    name = "read_manifest" if when.startswith("before") else "_checked_bytes"
    read = getattr(checkpoint, name)

    def reads(path: Path, *rest: object) -> object:
        if path.name == "state_1.ckpt":
            durable.remove_folder(path)
        return read(path, *rest)

    monkeypatch.setattr(checkpoint, name, reads)
    (gone,) = [finding for finding in verify(made.path) if finding.path.endswith("state_1.ckpt")]
    assert not gone.is_bad
    messages.check(gone.reason)


def test_what_tells_of_the_package_is_damaged(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    (made.path / "sessions" / "1.json").write_text("{}")
    (made.path / "manifest.json").write_text('{"files": {"a.py": {}}, "links": {}}')
    assert [(finding.what, finding.path) for finding in bad(made)] == [
        ("settings", "manifest.json"),
        ("session", "sessions/1.json"),
    ]


@pytest.mark.parametrize(
    "content",
    ["", "nonsense", "[]", '{"sha256": 1, "files": {"a": {"bytes": Infinity, "sha256": ""}}}', None],
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_damaged_seal_is_no_missing_one(
    tmp_path: Path, content: str | None, number: int, messages: Messages
) -> None:
    made = package(tmp_path / "runs")
    session(made, "succeeded")
    for one in (1, 2):
        session_seal.write(session_seal.seal_path(made.path, one))
    path = session_seal.seal_path(made.path, number)
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    found = {one.path: one for one in verify(made.path)}
    assert found[f"sessions/{number}.seal.json"].verdict == "damaged"
    unsealed = [one.reason for one in found.values() if one.verdict == "unsealed"]
    assert unsealed and all(f"the seal of session {number} is damaged" in reason for reason in unsealed)
    messages.check(sorted(set(unsealed)))


def test_a_session_without_a_seal_names_what_may_have_happened(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    reasons = {one.reason for one in verify(made.path) if one.verdict == "unsealed"}
    assert any("it could not be written (then the end of its output says so)" in one for one in reasons)


def test_a_missing_folder_is_named_and_all_the_rest_is_checked(tmp_path: Path) -> None:
    for name in ("sessions", "records", "Checkpoints"):
        made = package(tmp_path / f"without {name}")
        shutil.rmtree(made.path / name)
        (made.path / "Model" / "Runner.py").write_text("pass")
        found = {one.path: one.verdict for one in verify(made.path)}
        assert found[f"{name}/"] == "missing" and found["Model/Runner.py"] == "changed"
        others = {"sessions", "records", "Checkpoints"} - {name}
        assert all(any(path.startswith(f"{other}/") for path in found) for other in others)


def test_sessions_whose_records_remain_are_missing(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    (made.path / "records" / "7.jsonl.strange").write_text('{"start_step": 0}\n')
    assert bad(made) == []
    shutil.rmtree(made.path / "sessions")
    (made.path / "sessions").mkdir()
    assert [(one.path, one.verdict) for one in bad(made)] == [("sessions/1.request.json", "missing")]


def test_overrides_that_do_not_fit(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    made.new_session({"overrides": ["nonsense"]})
    assert [finding.path for finding in bad(made)] == ["args.json"]


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(verify(tmp_path / "nowhere"))
