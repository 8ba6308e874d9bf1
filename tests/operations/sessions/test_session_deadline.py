from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from roost.base.errors import ConfigError, Refused, UsageError
from roost.base.session_end import platform_limit
from roost.config.sections.limits import LimitSettings
from roost.operations.sessions import session_deadline
from roost.operations.sessions.session_deadline import deadline_of, deadline_variables
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


def test_a_file_with_a_time_counts_as_the_others(tmp_path: Path) -> None:
    now, path, other = int(time.time()), tmp_path / "end", tmp_path / "other"
    limits = LimitSettings(wall_time="1h", deadline_file=str(path))
    environment = {"ROOST_DEADLINE_FILE": str(other)}
    assert deadline_of(limits, environment).source == "limits.wall_time"
    other.write_text(str(now + 900))
    assert deadline_of(limits, environment)[::2] == (now + 900, str(other))
    path.write_text(str(now + 600))
    assert deadline_of(limits, environment)[::2] == (now + 600, str(path))
    assert deadline_variables(limits, environment) == {"ROOST_DEADLINE_FILE": f"{path}:{other}"}
    assert deadline_variables(FREE, environment) == {}


def test_bad_files(tmp_path: Path, messages: Messages) -> None:
    path = tmp_path / "end"
    limits = LimitSettings(deadline_file=str(path))
    path.write_text("soon")
    (note,) = deadline_of(limits, {}).notes
    messages.check(note)
    path.write_text("1000000000")
    with pytest.raises(Refused) as refused:
        deadline_of(limits, {})
    assert refused.value.setting == str(path)
    messages.check(refused.value.fix)
    for file in ("end", "~no_such_user/end", "/run/a:b"):
        with pytest.raises(ConfigError) as wrong:
            deadline_of(LimitSettings(deadline_file=file), {})
        assert wrong.value.setting == "limits.deadline_file"
        messages.check(wrong.value)
    with pytest.raises(UsageError) as relative:
        deadline_of(FREE, {"ROOST_DEADLINE_FILE": f"{path}:end"})
    messages.check(relative.value)


def test_a_guess_about_the_platform_yields_to_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(platform_limit, "boot_time", lambda now: now - 36000.0)
    colab = {"COLAB_RELEASE_TAG": "x"}
    guess = deadline_of(FREE, colab)
    assert guess.at == pytest.approx(now + 7200, abs=60)
    (note,) = guess.notes
    assert "a guess: Colab" in note
    given = deadline_of(LimitSettings(wall_time="5h"), colab)
    assert given[1:] == ([], "limits.wall_time")
    assert deadline_of(FREE, {**colab, "ROOST_DEADLINE": str(now + 9000)}).at == pytest.approx(now + 9000)
    assert deadline_of(LimitSettings(session_length="24h"), colab).at == pytest.approx(
        now + 14 * 3600, abs=60
    )
    assert deadline_of(LimitSettings(session_length="never"), colab).at is None
    both = deadline_of(LimitSettings(wall_time="5h", session_length="11h"), colab)
    assert both.at == pytest.approx(now + 3600, abs=60)
