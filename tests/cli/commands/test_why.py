"""`roost why`, through the real program."""

from __future__ import annotations

import json
from pathlib import Path

from roost.lab.queue.task import CRASHED, RUNNING
from tests.cli.programs import roost
from tests.lab.labs import Lab
from tests.lab.queued import task
from tests.messages import Messages
from tests.operations.packages import package


def crashed(lab: Lab) -> str:
    """The package of a training that was killed, as it is typed."""
    made = package(lab.folder / "runs", "k1", state="crashed")
    one = task(name="k1", package=str(made.path))
    with lab.store() as store:
        store.submit([one])
        store.transition(
            store.transition(store.start(store.task(one.id), [], None), RUNNING, session=1), CRASHED
        )
    return "runs/k1"


def test_one_line_and_what_happened(tmp_path: Path, messages: Messages) -> None:
    lab = Lab(tmp_path)
    with lab.here():
        with lab.store() as store:
            store.submit([task(name="o\x1b[2Jne", id="01abc", package="/nowhere/p", reason="cards: none")])
        said = roost("why", "01abc")
        first, package, event = said.stdout.splitlines()
        assert said.returncode == 0 and "\x1b" not in said.stdout
        assert "ne: cards: none" in first and "`roost lab start`" in first
        assert package == "  package  /nowhere/p"
        messages.check(first)
        assert event.startswith("  20") and event.endswith("pending")
        (body,) = json.loads(roost("why", "01abc", "--json").stdout)
        assert body["state"] == "pending" and body["events"][0]["kind"] == "pending"
        assert roost("why", "02").returncode == 3
        made = crashed(lab)
        asked = (f" roost continue {made}", f" roost submit continue {made}")
        lines = roost("why", made).stdout.splitlines()
        assert any(all(one in line for one in asked) for line in lines)
        command = lab.queue("echo a b")
        lines = roost("why", command.id).stdout.splitlines()
        assert (
            lines[0].startswith("C_3 /bin/sh -c 'echo a b': ")
            and lines[2] == "  command  /bin/sh -c 'echo a b'"
        )
