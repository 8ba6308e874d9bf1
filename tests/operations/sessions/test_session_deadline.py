from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from roost.base.errors import Refused, UsageError
from roost.config.sections.limits import LimitSettings
from roost.operations.sessions import session_deadline
from roost.operations.sessions.session_deadline import deadline_of
from tests.messages import Messages

FREE = LimitSettings()


def squeue(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program of that name in the PATH; it counts its calls."""
    program = folder / "squeue"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    session_deadline._job_end.cache_clear()


def test_without_a_limit_there_is_none() -> None:
    assert deadline_of(FREE, {}) == (None, [], "")
    assert deadline_of(FREE, {}).seconds_left() is None


def test_the_time_that_is_asked_for_counts_from_now() -> None:
    before = time.time()
    found = deadline_of(LimitSettings(wall_time="11h30m"), {})
    assert found.at is not None and before + 41400 <= found.at <= time.time() + 41400
    assert found.notes == []
    left = found.seconds_left()
    assert left is not None and 41390 < left <= 41400


@pytest.mark.parametrize(
    ("source", "moments"),
    [
        ("ROOST_DEADLINE", {"ROOST_DEADLINE": 1000.0, "SLURM_JOB_END_TIME": 2000.0}),
        ("SLURM_JOB_END_TIME", {"ROOST_DEADLINE": 2000.0, "SLURM_JOB_END_TIME": 1000.0}),
    ],
)
def test_the_earliest_counts(source: str, moments: dict[str, float], messages: Messages) -> None:
    now = int(time.time())
    environment = {name: str(now + seconds) for name, seconds in moments.items()}
    found = deadline_of(LimitSettings(wall_time="1h"), {**environment, "SLURM_JOB_ID": "7"})
    assert found.at == now + 1000.0
    (note,) = found.notes
    assert source in note and not any(name in note for name in moments if name != source)
    messages.check(note)


def test_one_in_words(messages: Messages) -> None:
    later = time.time() + 3600
    iso = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(later))
    assert deadline_of(FREE, {"ROOST_DEADLINE": iso}).at == int(later)
    with pytest.raises(UsageError) as refused:
        deadline_of(FREE, {"ROOST_DEADLINE": "tonight"})
    assert refused.value.setting == "ROOST_DEADLINE"
    assert "'tonight'" in str(refused.value)
    messages.check(refused.value)


def test_one_that_is_past_is_refused(messages: Messages) -> None:
    with pytest.raises(Refused, match=r"1m 0\ds") as refused:
        deadline_of(FREE, {"SLURM_JOB_END_TIME": str(int(time.time()) - 60)})
    assert refused.value.setting == "SLURM_JOB_END_TIME"
    messages.check(refused.value.fix)
    with pytest.raises(Refused) as refused:
        deadline_of(LimitSettings(wall_time="1h"), {"ROOST_DEADLINE": "1000000000"})
    assert refused.value.setting == "ROOST_DEADLINE"
    messages.check(refused.value.fix)


def test_slurm_is_asked_where_it_did_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = int(time.time()) + 7200
    squeue(tmp_path, monkeypatch, f"[ $SLURM_TIME_FORMAT = standard ] && date -d @{end} +%Y-%m-%dT%H:%M:%S")
    for _ in range(2):
        found = deadline_of(FREE, {"SLURM_JOB_ID": "41_3"})
        assert found.at == end
        assert ["Slurm job 41_3" in note for note in found.notes] == [True]
    assert (tmp_path / "calls").read_text() == "--noheader --jobs 41_3 --format %e\n"


@pytest.mark.parametrize("script", ["echo N/A", "true"])
def test_a_job_without_a_limit(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(tmp_path, monkeypatch, script)
    assert deadline_of(FREE, {"SLURM_JOB_ID": "7"}) == (None, [], "")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo slurm_load_jobs error: Invalid job id >&2; exit 1", "slurm_load_jobs error: "),
        ("echo tomorrow", "'tomorrow'"),
        ("exec sleep 60", "0.2 s"),
    ],
)
def test_what_cannot_be_found_out_is_said(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    squeue(tmp_path, monkeypatch, script)
    if "sleep" in script:
        monkeypatch.setattr(session_deadline, "_ASK_SECONDS", 0.2)
    found = deadline_of(FREE, {"SLURM_JOB_ID": "7"})
    assert found.at is None
    (note,) = found.notes
    assert all(fact in note for fact in ("Slurm job 7", why, "--time-limit", "ROOST_DEADLINE"))
    messages.check(note)


def test_a_machine_without_squeue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    session_deadline._job_end.cache_clear()
    (note,) = deadline_of(LimitSettings(wall_time="1h"), {"SLURM_JOB_ID": "7"}).notes
    assert "Slurm job 7" in note and "squeue" in note
    messages.check(note)
