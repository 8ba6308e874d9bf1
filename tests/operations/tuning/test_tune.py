"""What `tune` refuses before it measures; tests/system/test_tune.py measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, NotFound, Refused, RoostError, UsageError
from roost.operations.tuning.tune import TuneRequest, parse_targets, tune
from tests.dlnest_project import dlnest_project
from tests.messages import Messages
from tests.operations.packages import project


def refused(error: type[RoostError], **request: Any) -> RoostError:
    with pytest.raises(error) as found, tune(TuneRequest(device="cpu", **request)):
        raise AssertionError("it must not start")
    return found.value


def test_requests_that_are_refused(tmp_path: Path, messages: Messages) -> None:
    config = project(tmp_path / "project")
    output = tmp_path / "tuned.yaml"
    given: dict[str, Any] = {"config": config, "output": output}
    assert refused(UsageError, **given, seconds=0.5).setting == "--seconds"
    assert refused(UsageError, **given, seconds=float("nan")).setting == "--seconds"
    assert refused(UsageError, **given, targets=["workers"], apply=["lr"]).setting == "--apply"
    assert refused(UsageError, config=config, output=tmp_path / "tuned.txt").setting == "-o"
    assert refused(NotFound, config=config, output=tmp_path / "none" / "tuned.yaml").setting == "-o"
    messages.check(str(refused(Refused, config=config, output=config)).replace(str(tmp_path), ""))
    assert refused(Refused, **given, overrides=["step_mode=dry"]).setting == "step_mode"
    refused(ConfigError, **given, overrides=["max_epochs=x"])
    refused(NotFound, config=tmp_path / "none.yaml", output=output)
    (tmp_path / "tuned.lr.png").write_bytes(b"a picture of the user")
    assert refused(Refused, **given).setting == "-o"
    assert not output.exists()


def test_a_project_of_dlnest_is_refused(tmp_path: Path, messages: Messages) -> None:
    config = dlnest_project(tmp_path / "project")
    found = refused(Refused, config=config, output=tmp_path / "tuned.yaml")
    messages.check(found.message)


def test_names_of_targets(messages: Messages) -> None:
    assert parse_targets("lr, workers", setting="--what") == ["lr", "workers"]
    for text in ("worker", "batchsize", "all", ","):
        with pytest.raises(UsageError) as found:
            parse_targets(text, setting="--what")
        messages.check(str(found.value))
