"""The output of `--explain` and `--print-config`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from roost.base.config_files import read_config_file
from roost.cli.options.config_display import to_yaml
from tests.cli.programs import roost
from tests.messages import Messages
from tests.operations.packages import project

TRICKY = [
    *(
        "no",
        "1e-3",
        "010",
        "0o17",
        "2026-01-01",
        "~",
        "null",
        "",
        " x ",
        "a: b",
        "#x",
        "*.bias",
        "[1",
        "1_000",
    ),
    *(
        "0x1f",
        ".5",
        "yes",
        "${total_steps}",
        "two\nlines",
        "it's",
        '"quoted"',
        "-",
        "?",
        ".nan",
        "12:30",
        "=",
    ),
]
"""Texts that a YAML reader of some version would take for something else."""


@pytest.mark.parametrize(
    "value", [*TRICKY, 1e-5, 1e22, float("inf"), True, None, [], {}, [{"a": [1, "no"]}], -0.0]
)
def test_our_reader_reads_back_what_was_printed(tmp_path: Path, value: Any) -> None:
    (tmp_path / "again.yaml").write_text(to_yaml({"key": value, "list": [value]}))
    assert read_config_file(tmp_path / "again.yaml").values == {"key": value, "list": [value]}


def test_what_is_printed_is_a_config(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    printed = roost("run", config, "--print-config").stdout
    (tmp_path / "p" / "again.yaml").write_text(printed)
    assert roost("run", tmp_path / "p" / "again.yaml", "--print-config").stdout == printed


def test_explanations(tmp_path: Path, messages: Messages) -> None:
    config = project(tmp_path / "p")
    messages.check(roost("run", config, "--explain", "max_steps").stdout)
    messages.check(roost("run", config, "~model", "--explain", "model.features").stdout)
    explained = roost("run", config, "--explain", "step_mode").stdout
    assert re.search("\n  .*'eager' .*'compile' .*'dry' .*'no_optim'\n", explained)
    said = json.loads(roost("run", config, "seed=2", "--explain", "seed", "--json").stdout)
    assert " >= 0" in said["values"]
    assert said["key"] == "seed" and said["layers"][-1] == {"layer": "command line", "value": 2, "set": True}
