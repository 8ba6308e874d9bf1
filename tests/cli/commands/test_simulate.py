"""`roost simulate`, through the real program."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.programs import roost
from tests.messages import Messages


def test_waits_and_shares_are_shown(tmp_path: Path, messages: Messages) -> None:
    path = tmp_path / "history.jsonl"
    lines = [{"submitted": 0, "seconds": 60, "user": user} for user in ("ann", "b\x1b[2Jb")]
    lines.append({"submitted": 0, "seconds": 60, "cards": 9})
    path.write_text("\n".join(map(json.dumps, lines)))
    said = roost("simulate", path, "--cards", "1x24GB")
    assert said.returncode == 0 and "\x1b" not in said.stdout
    first = said.stdout.splitlines()[0]
    assert first.startswith("3 tasks ") and "1 card" in first and "2m 00s" in first and "100%" in first
    messages.check(said.stdout)
    body = json.loads(roost("simulate", path, "--cards", "1x24GB", "--json").stdout)
    assert body["makespan"] == 120 and len(body["never"]) == 1


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{")
    for arguments, code, text in (
        (["bad.jsonl"], 4, "bad.jsonl:1"),
        (["none.jsonl"], 3, "`roost tasks --all --json`"),
        (["--cards", "many"], 2, "--cards"),
        (["bad.jsonl", "--tasks", "4"], 2, "--tasks"),
    ):
        said = roost("simulate", *arguments, cwd=tmp_path)
        assert said.returncode == code and text in said.stderr and len(said.stderr.splitlines()) == 1
