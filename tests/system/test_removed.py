"""A package that is removed while its training runs stays away. Fault F25."""

from __future__ import annotations

import shutil
from pathlib import Path

import exact
import pytest

from tests.processes import living_in
from tests.waiting import wait_for

WRITES_ALL = [
    *exact.KINDS["watched"],
    "log_every=1",
    "visualize_every=2",
    "+profile={start_step: 14, steps: 2}",
    "mirrors={csv: true, tensorboard: true}",
]
"""Every part that makes folders of its own does so again and again."""


def remove(package: Path) -> None:
    """As ``rm -rf``, once more where something new was in its way."""
    wait_for(lambda: (shutil.rmtree(package, ignore_errors=True), not package.exists())[1])


@pytest.mark.parametrize(
    "phase", ["training", *(pytest.param(one, marks=pytest.mark.soak) for one in ("saving", "resumed"))]
)
def test_a_training_does_not_make_its_package_again(tmp_path: Path, phase: str) -> None:
    started = exact.start(tmp_path / "runs", WRITES_ALL)
    moment = exact.at_phase("saving" if phase == "saving" else "training", 9)
    if phase == "resumed":
        assert exact.kill_when(started, moment)
        started = exact.go_on(started.package, [])
        moment = exact.after_seconds(0.0)
    assert exact.kill_when(started, moment, lambda begun: remove(begun.package)), "it ended before"
    assert exact.wait(started) != 0
    wait_for(lambda: not living_in(tmp_path))
    assert list((tmp_path / "runs").iterdir()) == []
