from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import RUNNING
from roost.lab.scheduling.stall_events import STALLED, StallEvents
from roost.supervisor.monitoring.stall_watch import Stall, stall_as_json
from tests.lab.queued import package, task
from tests.messages import Messages


def stall(time: float, **given: Any) -> dict[str, Any]:
    """As a supervisor writes it."""
    return stall_as_json(Stall(time, 1800.5, 12, "training", 3, False, "/run/stacks.txt")) | given


def test_each_stall_is_noted_once_whichever_daemon_looks(tmp_path: Path, messages: Messages) -> None:
    path = package(tmp_path / "run")
    record = path / "sessions" / "1.json"
    with QueueStore.open(tmp_path / "lab") as store:
        one = task(package=str(path))
        store.submit([one])
        store.transition(store.start(store.tasks()[0], [], None), RUNNING, session=1, started=1.0)

        def noted() -> list[str]:
            return [event.text for event in store.events(task=one.id, kind=STALLED)]

        stalls = StallEvents(store)
        stalls.record_new(0.0)
        record.write_text(json.dumps({"stalls": [stall(1_700_000_000.0)]}))
        stalls.record_new(1.0)
        assert not noted(), "it looks from time to time"
        stalls.record_new(100.0)
        assert len(noted()) == 1 and "1800.5 s" in noted()[0]
        assert "step 12" in noted()[0] and "training" in noted()[0]
        stalls.record_new(200.0)
        StallEvents(store).record_new(0.0)
        assert len(noted()) == 1
        more = [stall(1_700_000_000.0), stall(1_700_009_000.0, step=None, stopped=True)]
        record.write_text(json.dumps({"stalls": more}))
        stalls.record_new(300.0)
        assert len(noted()) == 2
        messages.check(noted()[0])
        messages.check(noted()[1])


def test_a_record_that_makes_no_sense_tells_of_no_stall(tmp_path: Path) -> None:
    path = package(tmp_path / "run")
    record = path / "sessions" / "1.json"
    with QueueStore.open(tmp_path / "lab") as store:
        store.submit([task(package=str(path))])
        store.transition(store.start(store.tasks()[0], [], None), RUNNING, session=1, started=1.0)
        stalls = StallEvents(store)
        for turn, found in enumerate((1, [1], [{}], [stall(1e300)], [stall(1.0, step="x")])):
            record.write_text(json.dumps({"stalls": found}))
            os.utime(record, (turn, turn))
            stalls.record_new(100.0 * turn)
        assert not store.events(kind=STALLED)
