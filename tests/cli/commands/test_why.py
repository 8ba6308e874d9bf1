"""`roost why`, through the real program."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.programs import roost
from tests.lab.labs import Lab
from tests.lab.queued import task


def test_one_line_and_what_happened(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with lab.here():
        with lab.store() as store:
            store.submit([task(name="o\x1b[2Jne", id="01abc", package="/nowhere/p", reason="cards: none")])
        said = roost("why", "01abc")
        first, package, event = said.stdout.splitlines()
        assert said.returncode == 0 and "\x1b" not in said.stdout
        assert first.endswith("ne: cards: none; nobody looks after it: `roost lab start`")
        assert package == "  package  /nowhere/p"
        assert event.startswith("  20") and event.endswith("pending")
        (body,) = json.loads(roost("why", "01abc", "--json").stdout)
        assert body["state"] == "pending" and body["events"][0]["kind"] == "pending"
        assert roost("why", "02").returncode == 3
        command = lab.queue("echo a b")
        lines = roost("why", command.id).stdout.splitlines()
        assert (
            lines[0].startswith("/bin/sh -c 'echo a b': ") and lines[2] == "  command  /bin/sh -c 'echo a b'"
        )
