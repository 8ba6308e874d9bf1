"""Cores and memory of the host: a real daemon, real supervisors and processes, simulated cards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.devices.resource_request import ResourceRequest, TaskOptions
from roost.lab.queue.task import FAILED, RUNNING, SUCCEEDED, Task
from roost.operations.devices import devices
from roost.operations.queue import submit
from roost.operations.queue.submit import SubmitRequest
from roost.operations.queue.why import why
from tests.lab.labs import Lab, record_of
from tests.project.projects import DATASET
from tests.waiting import wait_for

EATS = "python3 -c 'import time; kept = b\"1\" * (300 << 20); time.sleep(600)'"
RUNNER = """
import os
from pathlib import Path
import torch
from torch import nn
import roost
from roost.base.system import cpu_cores

class Runner(roost.Runner):
    def build(self):
        self.net = nn.Linear(4, 1)
        found = [torch.get_num_threads(), cpu_cores.usable_cores(), os.environ.get("OMP_NUM_THREADS")]
        Path(self.args["writes"]).write_text(repr(found))

    def loss(self, batch):
        x, y = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(x).squeeze(1), y)
"""
CONFIG = """
runner: runner.py:Runner
dataset: dataset.py:Dataset
max_steps: 2
writes: {folder}/found
data: {{batch_size: 10, num_workers: 0}}
optimizers: {{main: {{class: torch.optim.SGD, lr: 0.1}}}}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, "sim:4x24GB")
    yield lab
    lab.close()


def request(**wanted: int) -> ResourceRequest:
    return ResourceRequest(cards=1, memory_mb=1000, **wanted)


def explanation(lab: Lab, id: str) -> str:
    with lab.here():
        (found,) = why(id)
    return found.why


def test_tasks_of_cards_wait_for_cores_and_memory_of_the_host(lab: Lab) -> None:
    forever, cores = "exec sleep 600", len(os.sched_getaffinity(0))
    with lab.here():
        devices.change(devices.DeviceChange(host_memory_mb=1000))
    first = lab.submit(forever, need=request(cores=cores, host_memory_mb=600))
    lab.wait_for(first, RUNNING)
    second = lab.submit(forever, need=request(cores=1))
    third = lab.submit("true", need=request(host_memory_mb=500))
    free = lab.submit(forever, need=request())
    lab.wait_for(free, RUNNING)
    for id, code in ((second, "cores: "), (third, "host: ")):
        wait_for(lambda id=id, code=code: lab.one(id).reason.startswith(code))  # type: ignore[misc]
    assert "600 MB" in explanation(lab, first)
    with lab.here():
        host = devices.show().host
    assert (host.cores_given, host.memory_given_mb, host.memory_mb) == (cores, 600, 1000)
    lab.ask(first, "kill")
    assert lab.wait_for(third).state == SUCCEEDED
    lab.wait_for(second, RUNNING)


def test_a_task_that_takes_more_of_the_host_than_requested_is_ended(lab: Lab) -> None:
    task = lab.submit(EATS, need=request(host_memory_mb=100))
    ended = lab.wait_for(task)
    assert (ended.state, record_of(ended)["reason"]) == (FAILED, "oom_host")
    advised = re.search(r"--host-memory (\d+)MB", explanation(lab, task))
    assert "out of host memory" in ended.reason and advised and int(advised[1]) > 300, "more than it took"
    with lab.store() as store:
        (measured,) = (one.text for one in store.events(task=task) if one.kind == "measured")
    assert "of host memory" in measured


@pytest.mark.parametrize("cpus", [None, 1])
def test_a_training_has_its_share_of_the_threads(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, cpus: int | None
) -> None:
    """One of four cards: a quarter of the cores, one at least."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    project = lab.folder / "project"
    project.mkdir()
    for name, text in (("runner.py", RUNNER), ("dataset.py", DATASET)):
        (project / name).write_text(text)
    (project / "config.yaml").write_text(CONFIG.format(folder=lab.folder))
    with lab.here():
        wanted = SubmitRequest(config=project / "config.yaml", options=TaskOptions(gpus=1, cpus=cpus))
        (task,) = submit.submit(wanted).tasks
    ended: Task = lab.wait_for(task.id, timeout_seconds=120)
    assert ended.state == SUCCEEDED, ended.reason
    cores = len(os.sched_getaffinity(0))
    share = max(1, cores // 4) if cpus is None else cpus
    assert (lab.folder / "found").read_text() == repr([share, cores if cpus is None else cpus, str(share)])
