"""What `roost check` prints at its end; tests/system/test_check.py types it."""

from __future__ import annotations

from typing import Any

import msgspec

from roost.cli.commands.check import _lines, _ready_lines, _to_json
from roost.operations.lifecycle.check import CheckOutcome
from roost.operations.lifecycle.run_estimate import RunEstimate
from roost.package.results.check_findings import CheckFindings, CheckStage
from tests.cli.programs import roost
from tests.messages import Messages

ESTIMATE = RunEstimate(
    steps_per_epoch=1200,
    total_steps=120_000,
    seconds_per_step=0.0123,
    seconds_per_epoch=15.04,
    total_seconds=1504.0,
    checkpoint_bytes=3_000_000,
    checkpoints=5,
    disk_bytes=15_000_000,
    free_bytes=70_000_000_000,
)


def came(**changed: Any) -> CheckOutcome:
    said = changed.pop("said", [])
    measured = {"peak_host_mb": 512.0, "peak_gpu_mb": changed.pop("gpu", None)}
    stages = [CheckStage(name="data", state="done", seconds=0.1, seen="train 3")]
    given: dict[str, Any] = {
        "is_ready": True,
        "state": "succeeded",
        "exit_code": 0,
        "reason": "finished",
        "error": None,
        "failed": None,
        "findings": CheckFindings(stages=stages, last="data", warnings=said, measured=measured),
        "unmet": [],
        "warnings": said,
        "estimate": ESTIMATE,
    }
    return CheckOutcome(**{**given, **changed})


def test_ready(messages: Messages) -> None:
    ready, disk, memory = _ready_lines(came(), ESTIMATE)
    assert ready.startswith("ready: ")
    assert all(one in ready for one in ("1,200 steps", "12.3 ms", "15.0s", "120,000 steps", "25m 04s"))
    assert disk.startswith("disk: ") and all(one in disk for one in ("5 ", "3 MB", "15 MB", "70 GB"))
    assert memory.startswith("memory: ") and "512 MB" in memory
    with_gpu = _ready_lines(came(gpu=1280.0), ESTIMATE)[2]
    assert "512 MB" in with_gpu and "1.2 GB" in with_gpu
    for line in (ready, disk, memory, with_gpu):
        messages.check(line)


def test_ready_with_warnings(messages: Messages) -> None:
    """The worker has printed its own warnings; it does not know the one about the disk."""
    assert next(_lines(came(said=["a"]))).startswith("ready (with 1 ")
    warning, ready, *_ = _lines(came(said=["a"], warnings=["a", "the disk"]))
    assert warning == "warning: the disk" and ready.startswith("ready (with 2 ")
    messages.check(ready)


def test_one_of_each(messages: Messages) -> None:
    estimate = msgspec.structs.replace(ESTIMATE, steps_per_epoch=1, total_steps=1, checkpoints=1)
    ready, disk, _ = _ready_lines(came(estimate=estimate), estimate)
    assert ready.count("1 step ") == 2 and "1 checkpoint " in disk
    messages.check(ready)
    messages.check(disk)


def test_a_mode_that_saves_nothing_and_a_run_that_time_ends(messages: Messages) -> None:
    estimate = msgspec.structs.replace(ESTIMATE, total_steps=None, checkpoints=0)
    ready, memory = _ready_lines(came(estimate=estimate), estimate)
    assert "25m 04s" in ready and "120,000" not in ready and memory.startswith("memory")
    messages.check(ready)


def test_for_programs() -> None:
    found = _to_json(came())
    assert found["stages"] == [{"name": "data", "state": "done", "seconds": 0.1, "seen": "train 3"}]
    assert found["measured"]["peak_host_mb"] == 512 and found["estimate"]["checkpoints"] == 5
    assert "findings" not in found


def test_without_a_config() -> None:
    said = roost("check")
    assert said.returncode == 2 and "roost check config.yaml" in said.stderr
