from __future__ import annotations

import os

from roost.train.data.workers.worker_status import WorkerContext, WorkerStatusTable


def test_what_a_worker_records_is_visible_here() -> None:
    status = WorkerStatusTable(3)
    assert [status.current_sample(worker) for worker in range(3)] == [None] * 3
    child = os.fork()
    if child == 0:
        context = WorkerContext(1, 3, status)
        for index in (7, 0):
            context.begin_sample(index)
        os._exit(0)
    os.waitpid(child, 0)
    assert [status.current_sample(worker) for worker in range(3)] == [None, 0, None]
    assert [status.progress_count(worker) for worker in range(3)] == [0, 2, 0]
    status.record_sample(1, -1)
    assert status.current_sample(1) is None and status.progress_count(1) == 3
    status.close()


def test_the_end_is_heard_everywhere() -> None:
    status = WorkerStatusTable(1)
    child = os.fork()
    if child == 0:
        status.request_end()
        os._exit(3 if status.is_end_requested else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert status.is_end_requested and status.progress_count(0) == 0 and status.current_sample(0) is None
    status.close()
