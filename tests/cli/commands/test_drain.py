from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.programs import roost
from tests.messages import Messages


def test_cards_are_drained_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ROOST_DEVICES", "sim:2x24GB")
    done = roost("drain", "all")
    assert done.returncode == 0 and done.stderr.startswith("GPU 0, GPU 1: ")
    messages.check(done.stderr)
    done = roost("drain", "1", "--off")
    assert done.returncode == 0 and done.stderr.startswith("GPU 1: ")
    messages.check(done.stderr)
    lines = roost("devices").stdout.splitlines()
    assert lines[1].endswith("drained") and not lines[2].endswith("drained")
    done = roost("drain", "2")
    assert done.returncode == 2 and "GPU 2" in done.stderr
    messages.check(done.stderr)
    assert roost("devices").stdout.splitlines()[:3] == lines[:3]  # the rest is the load of the machine


def test_for_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ROOST_DEVICES", "sim:1x24GB")
    done = roost("drain", "0", "--from", "2100-01-01T22:00", "--until", "08:00")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("GPU 0: ")
    at = [done.stderr.index(one) for one in ("2100-01-01 22:00:00", "2100-01-02 08:00:00", "10h 00m")]
    assert at == sorted(at)
    messages.check(done.stderr)
    listed = roost("devices").stdout.splitlines()[1]
    assert re.search(r" drained 2100-01-01 22:00 .*2100-01-02 08:00$", listed)
    for typed, said in [
        (["--from", "22:00"], "--from"),
        (["--until", "soon"], "--until: .*'soon'"),
        (["--from", "soon", "--until", "+1h"], "--from: .*'soon'"),
        (["--off", "--until", "+1h"], "--off"),
        (["--from", "2100-01-03", "--until", "2100-01-02"], "--until: .* --from 2100-01-03"),
        (["--until", "2020-01-01"], "--until: .*'2020-01-01'"),
        (["--from", "2020-01-01", "--until", "2020-01-02"], "--until: .*2020-01-02"),
    ]:
        done = roost("drain", "0", *typed)
        assert done.returncode == 2 and re.search(said, done.stderr) and len(done.stderr.splitlines()) == 1
        messages.check(done.stderr)
    assert "2100-01-01 22:00" in roost("devices").stdout
    within = roost("drain", "0", "--from", "2100-03-01T08:00", "--until", "+2h").stderr
    assert "2100-03-01 08:00:00" in within and "2100-03-01 10:00:00" in within and "2h 00m" not in within
    messages.check(within)
