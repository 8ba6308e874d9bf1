"""What the lab learns of a task's memory, and does when it runs out: a real daemon, real supervisors and
workers, and simulated cards of which the trainings act what they take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base import durable
from roost.devices.resource_request import ResourceRequest, TaskOptions
from roost.lab.queue.history import QueueEvent
from roost.lab.queue.task import PENDING, RUNNING, SUCCEEDED, Task
from roost.operations.queue import submit
from roost.operations.queue.submit import SubmitRequest
from tests.lab.labs import Lab, record_of
from tests.messages import Messages
from tests.project.projects import DATASET
from tests.waiting import wait_for

RUNNER = """
import time
from pathlib import Path
from torch import nn
import roost
from roost.train.model import simulated_memory

class Runner(roost.Runner):
    def build(self):
        self.net = nn.Linear(4, 1)
        simulated_memory.allocate(1_000)

    def loss(self, batch):
        if self.progress.step == 4 and simulated_memory.usage.now_mb == 1_000:
            simulated_memory.allocate(float(Path(self.args["takes"]).read_text()) - 1_000)
            while not Path(self.args["go"]).exists():
                time.sleep(0.01)
        x, y = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(x).squeeze(1), y)
"""
CONFIG = """
runner: runner.py:Runner
dataset: dataset.py:Dataset
max_steps: 8
takes: {folder}/takes
go: {folder}/go
data: {{batch_size: 10, num_workers: 0}}
checkpoint: {{every: 2}}
optimizers: {{main: {{class: torch.optim.SGD, lr: 0.1}}}}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, "sim:1x24GB")
    project = tmp_path / "project"
    project.mkdir()
    for name, text in (("runner.py", RUNNER), ("dataset.py", DATASET), ("config.yaml", CONFIG)):
        (project / name).write_text(text.format(folder=tmp_path) if name == "config.yaml" else text)
    yield lab
    lab.close()


def train(lab: Lab, mb: int | None = None) -> Task:
    """Submits the training."""
    wanted = TaskOptions(gpus=1, memory_mb=mb)
    with lab.here():
        request = SubmitRequest(config=lab.folder / "project" / "config.yaml", options=wanted)
        (task,) = submit.submit(request).tasks
    return task


def events(lab: Lab, id: str) -> list[QueueEvent]:
    with lab.store() as store:
        return store.events(task=id)


def test_a_task_that_takes_more_than_predicted_continues_with_more_and_disturbs_no_other(
    lab: Lab, messages: Messages
) -> None:
    (lab.folder / "takes").write_text("5000")
    (lab.folder / "go").touch()
    neighbour = lab.submit(
        "until [ -e ended ]; do sleep 0.05; done", need=ResourceRequest(cards=1, memory_mb=9_000)
    )
    task = train(lab, 4_000)
    ended = lab.wait_for(task.id)
    assert (ended.state, ended.attempt, ended.session) == (SUCCEEDED, 2, 2), ended.reason
    assert (ended.need.least_mb, ended.need.ran_out, ended.need.whole) == (6_000, 1, False)
    (why,) = [one.text for one in events(lab, task.id) if one.kind == PENDING and "memory" in one.text]
    assert all(one in why for one in ("attempt 1 ", "3.9 GB", "1.4 GB", "5.9 GB", "1 of 3"))
    messages.check(why)
    memory = record_of(ended)["memory"]
    assert (memory["peak_mb"], memory["driver_mb"], memory["ooms"]) == (5_000, 400, 0)
    with lab.store() as store:
        (peak,) = store.peaks()
    assert (peak.peak_mb, peak.overhead_mb, peak.scale, peak.ranks) == (5_000, 400, 10.0, 1)
    assert lab.one(neighbour).attempt == 1 and lab.one(neighbour).state == RUNNING
    (lab.folder / "ended").touch()
    assert lab.wait_for(neighbour).state == SUCCEEDED


@pytest.mark.soak
def test_the_first_has_the_whole_card_and_the_next_ones_share_it(lab: Lab) -> None:
    (lab.folder / "takes").write_text("6000")
    (lab.folder / "go").touch()
    first = train(lab)
    whole = lab.wait_for(first.id, RUNNING)
    assert whole.reserved_mb is None
    assert lab.wait_for(first.id).state == SUCCEEDED
    (lab.folder / "go").unlink()
    (lab.folder / "takes").write_text("7100")
    breaker, keeper = train(lab), train(lab)
    assert {breaker.profile, keeper.profile} == {first.profile}

    def both_live() -> bool:
        return [lab.one(one.id).reserved_mb for one in (breaker, keeper)] == [7_300, 7_300]

    wait_for(both_live)
    wait_for(lambda: lab.one(breaker.id).need.ran_out == lab.one(keeper.id).need.ran_out == 1)
    (lab.folder / "go").touch()
    for one in (breaker, keeper):
        ended = lab.wait_for(one.id)
        assert (ended.state, ended.attempt, ended.need.least_mb) == (SUCCEEDED, 2, 10_950)


@pytest.mark.soak
def test_who_finds_what_was_promised_taken_by_others_is_not_charged(lab: Lab) -> None:
    """Somebody without a lease comes to the card while the task runs, and leaves again."""
    scenario = lab.folder / "scenario.json"

    def show(*processes: dict[str, object]) -> None:
        durable.write(scenario, json.dumps({"cards": "1x24GB", "processes": processes}).encode())

    show()
    other = Lab(lab.folder, f"sim:{scenario}")
    (lab.folder / "takes").write_text("5000")
    task = train(other, 8_000)
    lab.wait_for(task.id, RUNNING)
    show({"card": "SIM-0", "pid": 1, "user": "eve", "memory": "20GB"})
    lab.wait_for(task.id, PENDING)
    (why,) = [one.text for one in events(lab, task.id) if one.kind == PENDING and "memory" in one.text]
    assert "attempt 1 " in why and "1 of 3" not in why
    assert (lab.one(task.id).need.ran_out, lab.one(task.id).need.least_mb) == (0, 8_000)
    show()
    (lab.folder / "go").touch()
    ended = lab.wait_for(task.id)
    assert (ended.state, ended.attempt, ended.need.ran_out) == (SUCCEEDED, 2, 0)
