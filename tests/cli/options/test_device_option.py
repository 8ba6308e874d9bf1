"""`--device` and `-CPU`."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import UsageError
from roost.cli.options.device_option import take_device
from tests.cli.programs import roost
from tests.operations.packages import package, project


@pytest.mark.parametrize(
    ("cpu", "device", "asked"),
    [(False, None, None), (True, None, "cpu"), (True, "cpu", "cpu"), (False, "auto", "auto")],
)
def test_what_was_asked(cpu: bool, device: str | None, asked: str | None) -> None:
    options = {"cpu": cpu, "device": device, "name": "a"}
    assert take_device(options) == asked and options == {"name": "a"}


def test_a_contradiction() -> None:
    with pytest.raises(UsageError, match="--device cuda"):
        take_device({"cpu": True, "device": "cuda"})


def test_both_commands_take_it(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    for arguments in (["run", config], ["continue", package(tmp_path / "runs").path]):
        assert roost(*arguments, "--device", "tpu").returncode == 2
        assert roost(*arguments, "-CPU", "--device", "cuda").returncode == 2
