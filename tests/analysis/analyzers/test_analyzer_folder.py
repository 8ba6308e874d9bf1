"""What a reader sees of a call that has not begun."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from roost.analysis import analysis_folder
from roost.analysis.analyzers import analyzer_folder, call_record
from roost.analysis.analyzers.call_record import CallEnd
from roost.package import sessions


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
