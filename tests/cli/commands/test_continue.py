"""`roost continue`, as far as no training is needed."""

from __future__ import annotations

from pathlib import Path

from tests.cli.programs import roost
from tests.messages import Messages
from tests.operations.packages import package


def test_the_device_of_a_session_that_failed_at_its_start_does_not_stick(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    (made.path / "Model" / "Runner.py").write_text("class Runner: pass\n")  # it ends as soon as it has begun
    for arguments in (["-CPU"], [], ["--device", "auto"]):
        assert roost("continue", made.path, "--force", *arguments).returncode != 0
    devices = [one.request["device"] for one in made.sessions()]
    assert devices == ["auto", "cpu", "auto", "auto"], "none of them took a step"


def test_a_package_must_be_named(messages: Messages) -> None:
    for arguments in ([], ["max_epochs=3"], ["~model.features"]):
        said = roost("continue", *arguments)
        assert said.returncode == 2 and "roost continue runs/NAME" in said.stderr
        messages.check(said.stderr)
