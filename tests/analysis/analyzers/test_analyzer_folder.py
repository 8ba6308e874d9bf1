"""What a reader sees of a call that has not begun."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from roost.analysis import analysis_folder
from roost.analysis.analyzers import analyzer_folder, call_record
from roost.analysis.analyzers.call_record import CallEnd
from roost.base.errors import Refused
from roost.package import session_folder, sessions
from roost.package.kinds import TaskKind


@pytest.fixture
def call(tmp_path: Path) -> Path:
    """A call of the analyzer 1, from a process that is gone."""
    place = analysis_folder.create(tmp_path / "analysis")
    with subprocess.Popen(["true"]) as gone:
        pass
    body = {"kind": "analyze", **sessions.own_identity(), "pid": gone.pid, "start_ticks": 1, "analyzer": 1}
    (place / "request.json").write_text(json.dumps({**body, "script": {"path": "/x/look.py"}}))
    (place / "script.py").write_text("")
    return place


def test_a_call_depends_on_its_analyzer_alone(call: Path, tmp_path: Path) -> None:
    home = tmp_path / "analyzers" / "1"
    (home / "sessions").mkdir(parents=True)
    assert analysis_folder.read(call).state == "crashed", "the process was killed before it had asked"
    inbox = analyzer_folder.inbox(home)
    inbox.add_analysis(1)
    assert analysis_folder.read(call).state == "starting", "it waits, whoever asked is gone"
    (request,) = inbox.waiting()
    inbox.begin(request)
    assert analysis_folder.read(call).state == "starting"
    record = call_record.begin(call, output_begin=3)
    assert analysis_folder.read(call).state == "running"
    call_record.end(call, record, CallEnd("failed", 7, "exit", "why"), output_end=5)
    found = analysis_folder.read(call)
    assert (found.state, found.recorded.exit_code, found.recorded.output_end) == ("failed", 7, 5)
    assert (call / "seal.json").exists()


def test_a_call_whose_analyzer_has_ended_never_runs(call: Path, tmp_path: Path) -> None:
    home = tmp_path / "analyzers" / "1"
    (home / "sessions").mkdir(parents=True)
    analyzer_folder.inbox(home).add_analysis(1)
    (home / "sessions" / "1.request.json").write_text(json.dumps({"session": 1, **sessions.own_identity()}))
    (home / "sessions" / "1.json").write_text(json.dumps({"session": 1, "state": "failed"}))
    found = analysis_folder.read(call)
    assert found.state == "crashed" and "analyzer" in (found.error or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_sees_an_analyzer_and_cannot_use_it(call: Path, tmp_path: Path) -> None:
    home = tmp_path / "analyzers" / "1"
    (home / "sessions").mkdir(parents=True)
    analyzer_folder.inbox(home).add_analysis(1)
    later = analysis_folder.create(tmp_path / "analysis")
    (later / "request.json").write_bytes((call / "request.json").read_bytes())
    call_record.begin(call, output_begin=0)  # of this process
    tmp_path.chmod(0o755)
    said, report = os.pipe()
    if (child := os.fork()) == 0:
        lines: list[str] = []
        try:
            os.chdir(tmp_path)  # whose parents are closed to others
            os.setgid(65534)
            os.setuid(65534)
            states = [one.state for one in analysis_folder.read_all(Path("analysis"))]
            lines.append(f"{states} {len(analyzer_folder.inbox(Path('analyzers/1')).waiting())}")
            inbox = analyzer_folder.inbox(Path("analyzers/1"))
            for write in (
                lambda: inbox.add_analysis(1),
                lambda: inbox.request_interrupt(1),
                lambda: inbox.withdraw(inbox.waiting()[0]),
                lambda: analysis_folder.create(Path("analysis")),
                lambda: session_folder.create(Path(), TaskKind.ANALYZE, {}),
            ):
                try:
                    write()
                    lines.append("done")
                except (PermissionError, Refused) as error:
                    lines.append(type(error).__name__)
        except BaseException as error:  # noqa: BLE001  - a child must not go on as pytest
            lines.append(repr(error))
        finally:
            os.write(report, "\n".join(lines).encode())
            os._exit(0)
    os.close(report)
    os.waitpid(child, 0)
    found = os.read(said, 1 << 16).decode().splitlines()
    os.close(said)
    assert found == ["['running', 'crashed'] 1", *["PermissionError"] * 3, "Refused", "Refused"]
    assert [one.analysis for one in analyzer_folder.inbox(home).waiting()] == [1]
