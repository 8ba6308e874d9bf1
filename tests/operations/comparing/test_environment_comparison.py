"""The software and hardware in which runs differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.operations.comparing.environment_comparison import compare_environments, describe_environment
from tests.operations.comparing.runs import ENVIRONMENT, STACK, make


def test_only_what_differs(tmp_path: Path) -> None:
    other = {
        **ENVIRONMENT, "driver": "570.2", "gpus": [{"name": "H100"}], "seed": 5, "variables": {},
        "stack": {**STACK, "torch": "2.12.1"}, "packages": {"numpy": "2.1", "torch": "2.12.1", "x": "1"},
    }  # fmt: skip
    one = make(tmp_path / "runs", "a", environment=ENVIRONMENT)
    two = make(tmp_path / "runs", "b", environment=other)
    git = {"commit": "c1", "dirty": False}
    found = compare_environments(
        [
            describe_environment(one.path, {"git": git}),
            None,
            describe_environment(two.path, {"git": {**git, "dirty": True}}),
        ]
    )
    assert {each.name: each.values for each in found} == {
        "driver": ["580.1", None, "570.2"],
        "GPUs": ["2 x A100", None, "1 x H100"],
        "torch": ["2.13.0", None, "2.12.1"],
        "uncommitted changes": ["no", None, "yes"],
        "variable OMP_NUM_THREADS": ["4", None, None],
        "package torch": ["2.13.0", None, "2.12.1"],
        "package x": [None, None, "1"],
    }
    assert [each.name for each in found][-2:] == ["package torch", "package x"]


def test_a_package_that_was_not_installed(tmp_path: Path) -> None:
    several = [
        {"packages": {"numpy": "2.1", "x": "1"}}, {"packages": {"numpy": "2.1"}}, {"packages": {}}, None
    ]  # fmt: skip
    found = compare_environments(
        [
            None
            if one is None
            else describe_environment(
                make(tmp_path / "runs", f"r{at}", environment={**ENVIRONMENT, **one}).path, {}
            )
            for at, one in enumerate(several)
        ]
    )
    by_name = {each.name: each for each in found}
    assert by_name["package x"].values == ["1", None, None, None]
    assert by_name["package x"].not_installed == [1], "nothing is known where no package is listed"
    assert by_name["package numpy"].not_installed == []


def test_all_facts(tmp_path: Path) -> None:
    found = describe_environment(make(tmp_path / "runs", "a", environment=ENVIRONMENT).path, {})
    every = compare_environments([found, found], is_all=True)
    assert compare_environments([found, found]) == []
    assert {each.name: each.values for each in every}["number of threads"] == ["4", "4"]


def test_a_package_that_no_worker_has_begun_and_a_damaged_one(tmp_path: Path) -> None:
    made = make(tmp_path / "runs", "a")
    assert describe_environment(made.path, {}) is None
    (made.path / "environment.json").write_text("{")
    with pytest.raises(Refused):
        describe_environment(made.path, {})


def test_values_of_any_kind_do_no_harm(tmp_path: Path) -> None:
    strange = {
        "gpus": ["x", 3],
        "packages": 7,
        "variables": [1],
        "driver": {"a": [1]},
        "stack": {"threads": 1},
    }
    found = describe_environment(
        make(tmp_path / "runs", "a", environment=strange).path, {"git": "no mapping"}
    )
    assert found == {"driver": "{'a': [1]}", "GPUs": "1 x x, 1 x 3", "number of threads": "1"}
