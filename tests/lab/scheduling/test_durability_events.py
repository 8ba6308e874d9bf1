"""A remote copy that does not get further is an event of the queue, once."""

from __future__ import annotations

import time
from pathlib import Path

from roost.lab.notices import notice_events, notice_text
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import RUNNING
from roost.lab.scheduling.durability_events import NOT_DURABLE, DurabilityEvents
from tests.lab.queued import package, task
from tests.package.remote import statuses


def test_it_is_noted_once_for_each_time_that_it_begins(tmp_path: Path) -> None:
    path = package(tmp_path / "run")
    with QueueStore.open(tmp_path / "lab") as store:
        one = task(package=str(path))
        store.submit([one])
        store.transition(store.start(store.tasks()[0], [], None), RUNNING, session=1, started=1.0)
        now = time.time()

        def noted() -> list[str]:
            return [event.text for event in store.events(task=one.id, kind=NOT_DURABLE)]

        watch = DurabilityEvents(store)
        watch.record_new(0.0, wall=now)
        statuses.failing(path, seconds=60)
        watch.record_new(100.0, wall=now)
        assert not noted(), "a store may not answer for a moment"
        statuses.failing(path, seconds=700, step=10)
        watch.record_new(110.0, wall=now)
        assert not noted(), "it looks once a minute"
        watch.record_new(200.0, wall=now)
        (text,) = noted()
        assert "s3://bucket/runs" in text and "NOT durable since step 10: the store does not answer" in text
        watch.record_new(300.0, wall=now)
        DurabilityEvents(store).record_new(0.0, wall=now)
        assert noted() == [text]
        statuses.write(path, step=20)
        watch.record_new(400.0, wall=now)
        assert noted() == [text]
        statuses.failing(path, seconds=650)
        watch.record_new(500.0, wall=now)
        assert len(noted()) == 2

        (event,) = store.events(task=one.id, kind=NOT_DURABLE)[:1]
        assert notice_events.EVENT_BY_KIND[event.kind] == notice_events.STALL
        notice = notice_text.compose([(event, store.tasks()[0])])
        assert notice.title.endswith("not durable") and text in notice.text
        assert notice_text.duration_seconds(event, store.tasks()[0]) is not None
