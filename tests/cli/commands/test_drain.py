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
