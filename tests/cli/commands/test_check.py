"""What `roost check` prints at its end; tests/system/test_check.py types it."""

from __future__ import annotations

from typing import Any

import msgspec

from roost.cli.commands.check import _plain, _ready
from roost.operations.check import Outcome
from roost.operations.estimate import Estimate
from roost.package.checked import Findings, Stage
from tests.cli.programs import roost

ESTIMATE = Estimate(
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


def came(**changed: Any) -> Outcome:
    said = changed.pop("said", [])
    measured = {"peak_host_mb": 512.0, "peak_gpu_mb": changed.pop("gpu", None)}
    stages = [Stage(name="data", state="done", seconds=0.1, seen="train 3")]
    given: dict[str, Any] = {
        "is_ready": True,
        "state": "succeeded",
        "exit_code": 0,
        "reason": "finished",
        "error": None,
        "failed": None,
        "findings": Findings(stages=stages, last="data", warnings=said, measured=measured),
        "warnings": said,
        "estimate": ESTIMATE,
    }
    return Outcome(**{**given, **changed})


def test_ready() -> None:
    ready, disk, memory = _ready(came(), ESTIMATE)
    assert ready == (
        "ready: 1,200 steps an epoch, about 12.3 ms each; an epoch takes about 15.0s, "
        "the whole run of 120,000 steps about 25m 04s"
    )
    assert disk == "disk: up to 5 checkpoints of 3 MB, 15 MB of the 70 GB that are free"
    assert memory == "memory: at most 512 MB on the host without loader workers"
    assert _ready(came(gpu=1280.0), ESTIMATE)[2].endswith("workers, 1.2 GB on the GPU")


def test_ready_with_warnings() -> None:
    """Those of the worker stand above already, that of the disk is not known to it."""
    assert _ready(came(said=["a"]), ESTIMATE)[0].startswith("ready (with 1 warning above): ")
    warning, ready, *_ = _ready(came(said=["a"], warnings=["a", "the disk"]), ESTIMATE)
    assert warning == "warning: the disk" and ready.startswith("ready (with 2 warnings above): ")


def test_one_of_each() -> None:
    estimate = msgspec.structs.replace(ESTIMATE, steps_per_epoch=1, total_steps=1, checkpoints=1)
    ready, disk, _ = _ready(came(estimate=estimate), estimate)
    assert ready.startswith("ready: 1 step an epoch, ") and "run of 1 step about" in ready
    assert disk.startswith("disk: up to 1 checkpoint of ")


def test_a_mode_that_saves_nothing_and_a_run_that_time_ends() -> None:
    estimate = msgspec.structs.replace(ESTIMATE, total_steps=None, checkpoints=0)
    ready, memory = _ready(came(estimate=estimate), estimate)
    assert "the whole run about 25m 04s" in ready and memory.startswith("memory")


def test_for_programs() -> None:
    found = _plain(came())
    assert found["stages"] == [{"name": "data", "state": "done", "seconds": 0.1, "seen": "train 3"}]
    assert found["measured"]["peak_host_mb"] == 512 and found["estimate"]["checkpoints"] == 5
    assert "findings" not in found


def test_without_a_config() -> None:
    said = roost("check")
    assert said.returncode == 2 and "roost check config.yaml" in said.stderr
