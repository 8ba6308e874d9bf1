"""What the lab would have made of a history."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import ConfigError, NotFound, UsageError
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue.task import SUCCEEDED
from roost.operations.queue.list_tasks import list_tasks
from roost.operations.simulation.simulate import HistoryTask, SimulateRequest, read_history, simulate
from tests.lab.labs import Lab
from tests.lab.queued import card, task
from tests.messages import Messages


def history(folder: Path, *lines: str) -> Path:
    path = folder / "history.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_a_history_is_run_through_the_policy(tmp_path: Path, messages: Messages) -> None:
    path = history(
        tmp_path,
        '{"submitted": 1000, "seconds": 100, "user": "ann", "name": "first"}',
        '{"submitted": 1000, "seconds": 100, "user": "bob", "name": "second", "limit": 60}',
        "",
        '{"submitted": 1010, "seconds": 40, "user": "bob", "cards": 0}',
        '{"submitted": 1010, "seconds": 40, "user": "eve", "memory_mb": 99999}',
    )
    shown = simulate(SimulateRequest(history=path, cards="1x24GB"))
    assert (shown.tasks, shown.cards, shown.makespan, shown.used) == (4, 1, 160.0, 1.0)
    assert shown.longest is not None and (shown.longest.name, shown.longest.waited) == ("second", 100.0)
    assert shown.longest.reason.startswith("cards: ") and shown.longest.reason.endswith("(GPU 0: first)")
    messages.check(shown.longest.reason)
    ann, bob, eve = shown.users
    assert (ann.wait_max, ann.share, bob.wait_p50, bob.wait_max) == (0.0, 0.625, 0.0, 100.0)
    assert (eve.tasks, eve.wait_max, eve.gpu_seconds) == (1, None, 0.0)
    assert [one.reason.partition(":")[0] for one in shown.never] == ["impossible"]
    reported: list[str] = []
    two = simulate(SimulateRequest(history=path, cards="2x24GB"), report=reported.append)
    assert len(reported) == two.decisions and re.findall(r"\d+", reported[-1])[-1] == "4"
    assert two.longest is None and two.makespan == 100.0


def test_ones_own_queue_is_a_history(tmp_path: Path, messages: Messages) -> None:
    lab = Lab(tmp_path / "lab")
    first, second, waits = (
        task(user="ann", name=name, need=ResourceRequest(cards=1, memory_mb=mb, time_limit=9e8), begin=begin)
        for name, mb, begin in (("first", None, None), ("second", 1000, 500.0), ("waits", None, None))
    )
    with lab.here(), lab.store() as store:
        store.submit([msgspec.structs.replace(one, submitted=100.0) for one in (first, second, waits)])
        for one in (first, second):
            started = store.start(store.task(one.id), [card()], one.need.memory_mb)
            store.transition(started, SUCCEEDED, started=1000.0, ended=1060.0)
        path = tmp_path / "mine.json"
        path.write_bytes(msgspec.json.encode(list_tasks(all_tasks=True)))
    shown = simulate(SimulateRequest(history=path, cards="1x24GB"))
    assert (shown.tasks, shown.left_out, shown.makespan) == (2, 1, 460.0)
    assert read_history(path).entries[1] == HistoryTask(
        submitted=500.0, seconds=60.0, user="ann", name="second", memory_mb=1000, limit=9e8
    )
    for wrong in (b'[{"name": 1}]', b"[1", path.read_bytes().replace(b'"num_cards":1', b'"num_cards":-1')):
        path.write_bytes(wrong)
        with pytest.raises(ConfigError) as refused:
            simulate(SimulateRequest(history=path))
        assert refused.value.where == path
    messages.check(refused.value.fix)


def test_tasks_of_the_cpu_take_their_cores(tmp_path: Path, messages: Messages) -> None:
    path = history(
        tmp_path,
        *(f'{{"submitted": {n}, "seconds": 100, "cards": 0, "name": "{n}", "cores": 3}}' for n in range(2)),
        '{"submitted": 2, "seconds": 50, "cards": 0}',
    )
    shown = simulate(SimulateRequest(history=path, cores=4))
    assert shown.longest is not None and (shown.longest.name, shown.longest.waited) == ("1", 99.0)
    assert shown.longest.reason.startswith("cores: ")
    assert all(fact in shown.longest.reason for fact in ("3 cores", "1 of 4"))
    (never, *_) = simulate(SimulateRequest(history=path, cores=2)).never
    assert never.reason.startswith("impossible: ") and "3 cores" in never.reason and " 2 " in never.reason
    messages.check(never.reason)
    lab = Lab(tmp_path / "lab")
    with lab.here(), lab.store() as store:
        store.submit([one := task(name="cpu", need=ResourceRequest(cores=3))])
        store.transition(store.start(store.task(one.id), [], None), SUCCEEDED, started=1000.0, ended=1060.0)
        rows = list_tasks(all_tasks=True)
    path.write_bytes(listed := msgspec.json.encode(rows))
    assert [entry.cores for entry in read_history(path).entries] == [3]
    path.write_bytes(listed.replace(b'"cores":3,', b""))
    assert [entry.cores for entry in read_history(path).entries] == [None], "an older list"


def test_what_is_made_up_is_the_same_for_the_same_seed() -> None:
    first, again, other = (simulate(SimulateRequest(tasks=80, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert first.tasks == 80 and not first.never and sum(one.tasks for one in first.users) == 80
    assert sum(one.share for one in first.users) == pytest.approx(1.0) and 0 < first.used <= 1
    alone = simulate(SimulateRequest(tasks=80, seed=1, most_per_card=1))
    assert alone.used != first.used


def test_nothing_is_nothing(tmp_path: Path) -> None:
    shown = simulate(SimulateRequest(history=history(tmp_path)))
    assert (shown.tasks, shown.makespan, shown.users, shown.longest) == (0, 0.0, [], None)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"submitted": 0}',
        '{"submitted": 0, "seconds": -1}',
        '{"submitted": 0, "seconds": 1e300}',
        '{"submitted": 0, "seconds": 1, "gpu": 1}',
        '{"submitted": 0, "seconds": 1, "cards": 1.5}',
        '{"submitted": 0, "seconds": 1, "limit": 0}',
        '{"submitted": 0, "seconds": 1, "memory_mb": 0}',
        '{"submitted": 0, "seconds": 1, "cards": 0, "cores": 0}',
        '{"submitted": 0, "seconds": 1, "cores": 0}',
    ],
)
def test_a_line_that_is_no_task_is_named(line: str, tmp_path: Path) -> None:
    path = history(tmp_path, '{"submitted": 0, "seconds": 1}', line)
    with pytest.raises(ConfigError, match=r"history\.jsonl:2"):
        simulate(SimulateRequest(history=path))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        simulate(SimulateRequest(history=tmp_path / "none.jsonl"))
    with pytest.raises(ConfigError):
        simulate(SimulateRequest(history=tmp_path))
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ConfigError, match=r"bytes\.jsonl:1"):
        simulate(SimulateRequest(history=tmp_path / "bytes.jsonl"))


@pytest.mark.parametrize("asked", [{"cards": "four"}, {"tasks": 0}, {"tasks": 10**7}])
def test_nonsense_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        simulate(SimulateRequest(**asked))  # type: ignore[arg-type]
