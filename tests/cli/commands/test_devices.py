from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.devices.sampling import sample_ring
from roost.display.device_table import _HEADER, format_devices
from roost.operations.devices.device_list import (
    CardStatus,
    DeviceList,
    ForeignProcess,
    HostStatus,
    LeaseOnCard,
    TaskOnCard,
)
from roost.operations.live_lab.card_cells import card_cells, host_cells
from tests.cli.programs import roost
from tests.devices.sampling import rings
from tests.messages import Messages


def card(**given: object) -> CardStatus:
    usual = {
        "number": 0, "id": "GPU-0", "name": "H100", "total_mb": 81920, "free_mb": 71680, "utilization": 93,
        "temperature": 61, "power": 300.0, "trouble": "", "part_of": "", "allowed": True, "drained": False,
        "windows": [], "exclusive": False,
        "tasks": [], "leases": [], "processes": [],
    }  # fmt: skip
    return CardStatus(**{**usual, **given})  # type: ignore[arg-type]


def allowed() -> list[bool]:
    """Whether tasks may have each card."""
    return [one["allowed"] for one in json.loads(roost("devices", "--json").stdout)["cards"]]


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ROOST_DEVICES", "sim:2x24GB")


def test_a_card_and_everybody_on_it(messages: Messages) -> None:
    cells = card_cells(
        card(
            tasks=[
                TaskOnCard("01abcd", "mnist", "running", 4000, "01ab"),
                TaskOnCard("01ac", "big", "starting", None),
            ],
            leases=[
                LeaseOnCard("ann", 7, None, 0.0, "/runs/a", ""),
                LeaseOnCard("cid", None, None, 0.0, "", "01ad"),
                LeaseOnCard("dora", None, None, 0.0, "", ""),
            ],
            processes=[ForeignProcess(8, None, None), ForeignProcess(9, "bob", 512)],
        )
    )
    assert cells[:-1] == ("0", "H100", "10.0 GB", "80.0 GB", "93%", "61 C", "")
    who = cells.users
    for line, parts in zip(
        who,
        [
            ("01ab", "mnist", "3.9 GB", "running"),
            ("01ac", "big", "starting"),
            ("ann", "pid 7", "/runs/a"),
            ("cid", "task"),
            ("dora",),
            ("pid 8",),
            ("bob", "pid 9", "512 MB"),
        ],
        strict=True,
    ):
        assert all(one in line for one in parts), line
    for line in (*who[:2], *who[5:]):
        messages.check(line)


def test_what_keeps_tasks_off_a_card(messages: Messages) -> None:
    row = card_cells(card(total_mb=0, free_mb=0, utilization=None, temperature=None, trouble="GPU is lost"))
    assert row == ("0", "H100", "", "", "", "", "GPU is lost", ())
    row = card_cells(card(drained=True, allowed=False))
    assert row[6].startswith("drained, ")
    messages.check(row[6])
    row = card_cells(card(exclusive=True))
    messages.check(row[6])


def test_a_list_is_changed_shown_and_a_wrong_one_changes_nothing(messages: Messages) -> None:
    assert allowed() == [True, True]
    done = roost("devices", "-d", "1", "--most-per-card", "2", "--foreign", "avoid")
    assert len(done.stdout.splitlines()[1]) > len(done.stdout.splitlines()[2]) and ": 2" in done.stderr
    messages.check(" ".join(done.stdout.splitlines()[1].split()))  # the columns have other widths under load
    wrong = roost("devices", "-d", "1,5")
    assert wrong.returncode == 2 and re.search("^error: -d: .*GPU 5", wrong.stderr)
    assert len(wrong.stderr.splitlines()) == 1 and not wrong.stdout
    found = json.loads(roost("devices", "--json").stdout)
    assert [one["allowed"] for one in found["cards"]] == [False, True]
    assert (found["most_per_card"], found["foreign"]) == (2, "avoid")


@pytest.mark.parametrize(
    "options",
    [
        ("--most-per-card", "0"),
        ("--most-per-card", "many"),
        ("--foreign", "hope"),
        ("--keep-free", "much"),
        ("--keep-free", "24GB"),
        ("--cores", "-1"),
    ],
)
def test_nonsense_is_refused(options: tuple[str, str]) -> None:
    done = roost("devices", *options)
    assert done.returncode == 2 and options[0] in done.stderr and not done.stdout


def test_a_machine_without_gpus(messages: Messages) -> None:
    done = roost("devices", ROOST_DEVICES="cpu")
    _, host = done.stdout.splitlines()
    assert done.returncode == 0 and host.startswith("host ")
    done = roost("devices", "--cores", "3", "--host-memory", "2GB", ROOST_DEVICES="cpu")
    assert "3 cores" in done.stdout.splitlines()[1]
    messages.check(done.stderr)
    assert ": 3 cores, 2.0 GB\n" in roost("devices").stderr
    shown = json.loads(roost("devices", "--host-memory", "any", "--json").stdout)
    assert shown["host"]["memory_mb"] == shown["host"]["total_memory_mb"] > 2048


def test_what_tasks_have_of_the_host(messages: Messages) -> None:
    usual = {
        "cores": 16, "cores_given": 0, "busy_cores": 4.0, "memory_mb": 60 * 1024, "memory_given_mb": 0,
        "memory_used_mb": 16 * 1024, "total_memory_mb": 64 * 1024,
    }  # fmt: skip
    row = host_cells(HostStatus(**usual))  # type: ignore[arg-type]
    assert row == ("host", "16 cores", "16.0 GB", "64.0 GB", "load 4.0", "", "", ())
    given = {
        **usual,
        "cores_given": 6,
        "memory_given_mb": 20 * 1024,
        "busy_cores": None,
        "memory_used_mb": None,
    }
    row = host_cells(HostStatus(**given))  # type: ignore[arg-type]
    assert row[2] == row[4] == "" and "6 cores, 20.0 GB" in row[6]
    messages.check(row[6])


def test_numbers_may_have_blanks_between_them_and_the_cpu_among_them(messages: Messages) -> None:
    for numbers, tasks_may in (
        (("1", "-1"), [False, True]),
        (("0", "1"), [True, True]),
        (("-1,0",), [True, False]),
    ):
        said = roost("devices", "-d", *numbers, "--most-per-card", "2")
        assert said.returncode == 0 and allowed() == tasks_may, said.stderr
        assert said.stderr.count("-1 is the CPU") == ("-1" in ",".join(numbers))
    refused = roost("devices", "-d", "-1")
    assert refused.returncode == 2 and allowed() == [True, False]
    messages.check(refused.stderr)
    assert roost("devices", "-d", "0", "x").returncode == 2


def test_a_list_that_is_given_twice_is_refused_and_nothing_is_changed() -> None:
    done = roost("devices", "-d", "0", "-d", "1")
    assert done.returncode == 2 and " -d 0,1" in done.stderr
    assert allowed() == [True, True]
    assert roost("devices", "-d", "0").returncode == 0
    assert allowed() == [True, False]


def test_on_a_terminal_no_line_is_broken_within_a_word() -> None:
    tasks = [TaskOnCard("01abcd", "try_lr-1e-3_seed-0", "running", 4000, "01ab")]
    processes = [ForeignProcess(9, "bob", 512)]
    busy = card(name="NVIDIA GeForce RTX 4090", drained=True, allowed=False, tasks=tasks, processes=processes)
    other = card(number=1, name="NVIDIA GeForce RTX 4090")
    host = HostStatus(
        cores=2, cores_given=0, busy_cores=None, memory_mb=None, memory_given_mb=0, memory_used_mb=None,
        total_memory_mb=None,
    )  # fmt: skip
    shown = DeviceList([busy, other], None, "fit", 512, 2, host)
    cells = [text for row in map(card_cells, shown.cards) for text in (row.state, *row.users)]
    words = {word for text in cells for word in text.split()}
    for width, header in (
        (80, [name for name in _HEADER if name not in ("TEMP", "BUSY")]),
        (101, [*_HEADER]),
    ):
        lines = format_devices(shown, width)
        assert lines[0].split() == header and all(len(line) <= width for line in lines)
        assert words <= {word for line in lines for word in line.split()}
        assert [line[0] for line in lines if not line.startswith(" ")] == ["G", "0", "1", "h"]
    assert format_devices(shown, 200) == format_devices(shown, None)


def test_the_history_of_a_machine_that_was_not_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    ended = roost("devices", "--history")
    assert ended.returncode == 0 and ended.stdout == ""
    messages.check(ended.stderr)
    found = json.loads(roost("devices", "--history", "--since", "2h", "--json").stdout)
    assert found["times"] == [] and found["until"] - found["since"] == pytest.approx(7200)
    refused = roost("devices", "--since", "2h")
    assert refused.returncode == 2
    messages.check(refused.stderr)


def test_the_picture_of_a_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    cards = [{"id": "SIM-0", "name": "H100\x1b[2J", "total_mb": 24_576}]
    ring, now = rings.writer(rings.shared_folder(tmp_path), cards), sample_ring.boot_seconds()
    for ago in range(120, -1, -1):
        busy = 100.0 * (120 - ago) / 120
        values = {
            "host/cpu": busy,
            "SIM-0/utilization": busy,
            "SIM-0/memory_mb": 12_288.0,
            "SIM-0/power": 300.0,
        }
        ring.add(rings.sample(ring, now - ago)._replace(values=tuple(map(values.get, ring.columns, nans()))))
    ended = roost("devices", "--history", "--since", "2min", PYTHONIOENCODING="utf-8", COLUMNS="80")
    lines = ended.stdout.splitlines()
    busy_line = next(line for line in lines if line.startswith("  busy"))
    bars = busy_line[10:54]
    assert bars == "".join(sorted(bars)) and set(bars) == set("▁▂▃▄▅▆▇█")
    assert busy_line.endswith("100 %, 300 W") and "\x1b" not in ended.stdout
    assert next(line for line in lines if line.startswith("  memory")).endswith("12.0 GB of 24.0 GB")
    assert max(map(len, lines)) <= 80
    plain = roost("devices", "--history", "--since", "2min", PYTHONIOENCODING="ascii")
    assert plain.returncode == 0 and plain.stdout.isascii() and "#" in plain.stdout


def nans() -> Iterator[float]:
    while True:
        yield float("nan")
