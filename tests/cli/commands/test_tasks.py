"""`roost tasks`, through the real program."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from roost.cli.commands.tasks import _STATES
from roost.devices import inventory
from roost.devices.resource_request import ResourceRequest
from roost.lab.background import daemon_presence
from roost.lab.queue.task import ENDED, LIVE, PENDING, RUNNING, STOP, SUCCEEDED
from roost.operations import lab as operations
from roost.package import live_progress
from tests.cli.programs import Terminal, roost
from tests.lab.labs import Lab
from tests.lab.queued import task
from tests.messages import Messages


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab


def cells(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in text.splitlines()]


def test_pending_tasks_are_shown_with_their_reason(lab: Lab, messages: Messages) -> None:
    sweep = [
        task(
            name=f"try_lr-1e-{n}_seed-0", sweep="7sweep", need=ResourceRequest(cards=1), reason="cards: none"
        )
        for n in (1, 2, 3)
    ]
    gang = task(
        name="b\x1b[2Jb",
        need=ResourceRequest(cards=4, memory_mb=9216),
        priority=3,
        reason="memory: too little",
    )
    with lab.store() as store:
        store.submit([*sweep, gang])
        store.transition(store.start(store.task(sweep[0].id), [], None), SUCCEEDED)
    said = roost("tasks")
    assert said.returncode == 0 and "\x1b" not in said.stdout
    assert "roost lab start" in said.stderr and said.stderr.count("\n") == 1
    messages.check(said.stderr)
    header, folded, other = cells(said.stdout)
    assert header == [
        "ID",
        "TASK",
        "NAME",
        "STATE",
        "CARDS",
        "MEMORY",
        "TIME",
        "PROGRESS",
        "PRIORITY",
        "REASON",
    ]
    assert folded[6] == "1/3 ended", folded
    assert folded[:5] == ["7sweep", "try_lr (3 tasks)", "2 pending, 1 succeeded", "1 card", "whole"]
    assert folded[-1] == "cards: none"
    assert gang.id.startswith(other[0]) and other[3:6] == ["pending", "4 cards", "9.0 GB"]
    assert other[-2:] == ["3", "memory: too little"]
    assert len(cells(roost("tasks", "--each").stdout)) == 5
    assert [row["id"] for row in json.loads(roost("tasks", "--json").stdout)] == [
        one.id for one in (*sweep, gang)
    ]
    assert len(json.loads(roost("tasks", "--state", "succeeded", "--json").stdout)) == 1
    assert re.fullmatch(r"try_lr \(2 \w+ 3 tasks\)", cells(roost("tasks", "--state", "pending").stdout)[1][1])


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (132, "ID TASK NAME STATE CARDS MEMORY TIME PRIORITY REASON"),
        (80, "ID TASK NAME STATE TIME REASON"),
        (50, "ID TASK NAME STATE REASON"),
    ],
)
def test_on_a_terminal_columns_go_and_the_reason_stays(lab: Lab, width: int, names: str) -> None:
    with lab.store() as store:
        asked = {"need": ResourceRequest(cards=1), "priority": 1}
        store.submit([task(name="one" * 30, reason="memory: " + "very " * 40, **asked)])
    terminal = Terminal("tasks", COLUMNS=str(width), NO_COLOR="1")
    try:
        code, shown = terminal.end()
    finally:
        terminal.kill()
    header, row, *_ = shown.splitlines()
    assert code == 0 and header.split() == names.split()
    assert re.search(r" one\S+…\S+ne  pending  ", row)
    assert shown.count("very") == 40 and all(len(line) <= width for line in shown.splitlines()[:-1])
    assert "memory:" in row


def test_the_host_is_no_card(lab: Lab) -> None:
    with lab.store() as store:
        need = ResourceRequest(cards=1, cores=4, host_memory_mb=2048)
        store.submit(
            [task(need=need, reason="a"), task(need=ResourceRequest(host_memory_mb=512), reason="b")]
        )
    header, first, second = cells(roost("tasks").stdout)
    assert header[4:7] == ["CARDS", "MEMORY", "HOST"]
    assert first[4:7] == ["1 card", "whole", "4 cores, 2.0 GB"] and second[4] == "512 MB"


def test_at_80_columns_a_sweep_shows_its_time(lab: Lab) -> None:
    with lab.store() as store:
        asked = {"need": ResourceRequest(cards=1), "reason": "cards: " + "all are taken " * 9}
        sweep = [task(name=f"try_lr-1e-{n}", sweep="7sweep", **asked) for n in (1, 2, 3)]
        store.submit(sweep)
        store.transition(store.start(store.task(sweep[0].id), [], None), SUCCEEDED)
    terminal = Terminal("tasks", COLUMNS="80", NO_COLOR="1")
    try:
        code, shown = terminal.end()
    finally:
        terminal.kill()
    header, row, *_ = shown.splitlines()
    assert code == 0 and header.split() == ["ID", "NAME", "STATE", "TIME", "REASON"]
    assert "2 pending, 1 succeeded" in row and "cards: all" in row


def test_the_user_as_squeue_names_it(lab: Lab) -> None:
    with lab.store() as store:
        store.submit([task(user="ada"), task(user="bob")])
    assert [row["user"] for row in json.loads(roost("tasks", "-u", "bob", "--json").stdout)] == ["bob"]


def test_which_tasks_make_room_for_others(lab: Lab) -> None:
    need = ResourceRequest(cards=1, opportunistic=True)
    with lab.store() as store:
        store.submit([task(need=need, reason="a"), task(need=need, priority=3, reason="b"), task(reason="c")])
    header, *rows = cells(roost("tasks").stdout)
    assert header[-2:] == ["PRIORITY", "REASON"]
    assert [row[-2:] for row in rows[:2]] == [["yields", "a"], ["3, yields", "b"]]
    assert "yields" not in rows[2]


def test_no_tasks(lab: Lab, messages: Messages) -> None:
    messages.check(roost("tasks").stderr)
    assert roost("tasks", "--json").stdout == "[]\n"
    assert "--all" in roost("tasks", "--user", "nobody").stderr
    said = roost("tasks", "--state", "odd")
    assert said.returncode == 2 and "'odd' is not one of 'pending'" in said.stderr


def test_the_states_are_those_of_tasks() -> None:
    assert (PENDING, *LIVE, *ENDED) == _STATES


def test_of_many_that_wait_the_first_are_shown(lab: Lab) -> None:
    with lab.store() as store:
        store.submit([task() for _ in range(60)])
    said = roost("tasks")
    assert len(said.stdout.splitlines()) == 51 and re.search(r"… .*\b10 .*--all\n", said.stderr)
    assert len(roost("tasks", "--all").stdout.splitlines()) == 61
    assert len(json.loads(roost("tasks", "--json").stdout)) == 60


def test_cards_by_number_and_one_that_is_gone_by_its_beginning(lab: Lab) -> None:
    one = task(need=ResourceRequest(cards=2))
    known = inventory.read_cards()[1]
    with lab.store() as store:
        store.submit([one])
        store.start(store.task(one.id), [known, replace(known, id="GPU-0123456789abcdef")], None)
    assert cells(roost("tasks").stdout)[1][4] == "GPU 1,GPU-01234567"


def test_the_json_of_a_part_says_how_many_ended_tasks_it_leaves_out(lab: Lab) -> None:
    with lab.store() as store:
        tasks = [task() for _ in range(9)]
        store.submit(tasks)
        for one in tasks:
            store.request_stop(one.id, STOP)
    said = roost("tasks", "--json")
    found = json.loads(said.stdout)
    left_out = {"pending": 0, "ended": 4, "fix": "roost tasks --all --json"}
    assert found[-1]["left_out"] == left_out and not any("left_out" in one for one in found[:-1])
    assert "4 more ended: --all" in said.stderr
    (lab.folder / "history").write_text(said.stdout)
    assert roost("simulate", lab.folder / "history", "--cards", "1x24GB").returncode == 0, "as before"
    whole = json.loads(roost("tasks", "--all", "--json").stdout)
    assert len(whole) == 9 and not any("left_out" in one for one in whole)


def test_a_daemon_that_was_killed_with_its_watchdog_is_started_for_what_waits(
    lab: Lab, messages: Messages
) -> None:
    lab.start()
    waits = lab.queue("true", begin=time.time() + 3600)
    for command in (["tasks"], ["tasks", "--json"], ["why", waits.id]):
        lab.kill_daemon()
        said = roost(*command)
        found = daemon_presence.find_daemon(lab.state)
        assert said.returncode == 0 and found is not None
        messages.check(said.stderr.replace(str(found.pid), "<pid>"))
    with lab.here():
        operations.stop()
    assert "roost lab start" in roost("tasks").stderr
    assert daemon_presence.find_daemon(lab.state) is None, "it was stopped on purpose"


def test_the_number_of_further_ended_tasks_is_shown(lab: Lab, messages: Messages) -> None:
    with lab.store() as store:
        tasks = [task() for _ in range(57)]
        store.submit(tasks)
        for one in tasks[:6]:
            store.transition(store.start(store.task(one.id), [], None), SUCCEEDED)
    said = roost("tasks").stderr
    assert re.search(r"… .*\b1 .*\b1 .*--all\n", said)
    messages.check(said)


def test_where_what_runs_is(lab: Lab, tmp_path: Path) -> None:
    one = task(package=str(tmp_path))
    live_progress.ProgressFile(tmp_path / "progress").publish(30, 1, 0, 1, 120, 30, 0, 900.0, 1.0, 0.25)
    with lab.store() as store:
        store.submit([one])
        store.transition(store.start(store.task(one.id), [], None), RUNNING, started=1.0)
    header, row = cells(roost("tasks").stdout)
    assert row[header.index("PROGRESS")].startswith("30/120 (25%), 45m 00s ")
