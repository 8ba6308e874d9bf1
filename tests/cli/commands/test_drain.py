from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.programs import roost


def test_cards_are_drained_and_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ROOST_DEVICES", "sim:2x24GB")
    done = roost("drain", "all")
    assert (done.returncode, done.stderr) == (0, "GPU 0, GPU 1: no more tasks begin there\n")
    done = roost("drain", "1", "--off")
    assert (done.returncode, done.stderr) == (0, "GPU 1: tasks begin there again\n")
    lines = roost("devices").stdout.splitlines()
    assert lines[1].endswith("drained") and not lines[2].endswith("drained")
    done = roost("drain", "2")
    assert done.returncode == 2 and "there is no GPU 2, and nothing was changed" in done.stderr


def test_for_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ROOST_DEVICES", "sim:1x24GB")
    done = roost("drain", "0", "--from", "2100-01-01T22:00", "--until", "08:00")
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "GPU 0: nothing runs there from 2100-01-01 22:00:00 to 2100-01-02 08:00:00, over midnight, "
        "10h 00m in all, but what runs already\n"
    )
    assert roost("devices").stdout.splitlines()[1].endswith("drained 2100-01-01 22:00 to 2100-01-02 08:00")
    for typed, said in [
        (["--from", "22:00"], "--from needs an end"),
        (["--until", "soon"], "--until: is no moment; received 'soon'"),
        (["--from", "soon", "--until", "+1h"], "--from: is no moment"),
        (["--off", "--until", "+1h"], "--off takes all of it back"),
        (["--from", "2100-01-03", "--until", "2100-01-02"], "--until: is not after --from 2100-01-03"),
        (["--until", "2020-01-01"], "--until: is over, and nothing was changed; received '2020-01-01'"),
        (["--from", "2020-01-01", "--until", "2020-01-02"], "--until: is over"),
    ]:
        done = roost("drain", "0", *typed)
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert "2100-01-01 22:00" in roost("devices").stdout
    within = roost("drain", "0", "--from", "2100-03-01T08:00", "--until", "+2h").stderr
    assert "from 2100-03-01 08:00:00 to 2100-03-01 10:00:00, but what" in within
