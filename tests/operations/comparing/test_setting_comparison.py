"""The settings in which runs differ."""

from __future__ import annotations

import math
from pathlib import Path

from roost.operations.comparing.setting_comparison import compare_settings
from tests.operations.comparing.runs import make, optimizer, read


def test_only_what_differs_what_changes_the_weights_first(tmp_path: Path) -> None:
    one = make(tmp_path / "runs", "a", max_epochs=3, description="x", optimizers=optimizer(0.1))
    two = make(tmp_path / "runs", "b", max_epochs=4, description="x", optimizers=optimizer(0.01), extra=None)
    found = compare_settings(read(one, two))
    assert [(each.name, each.values, each.absent, each.changes_weights) for each in found] == [
        ("optimizers.main.lr", [0.1, 0.01], [], True),
        ("extra", [None, None], [0], True),
        ("max_epochs", [3, 4], [], False),
    ]


def test_numbers_are_compared_as_numbers_and_true_is_none(tmp_path: Path) -> None:
    one = make(tmp_path / "runs", "a", x=1, y=math.nan, z=1, w=[1, {"k": 2}])
    two = make(tmp_path / "runs", "b", x=1.0, y=math.nan, z=True, w=[1, {"k": 3}])
    assert [each.name for each in compare_settings(read(one, two))] == ["w", "z"]


def test_a_section_against_a_value(tmp_path: Path) -> None:
    runs = read(make(tmp_path / "runs", "a", model="net"), make(tmp_path / "runs", "b"))
    found = {each.name: (each.values, each.absent) for each in compare_settings(runs)}
    assert found == {"model": (["net", None], [1]), "model.features": ([None, 8], [0])}


def test_all_settings_and_where_they_were_set(tmp_path: Path) -> None:
    one, two = (make(tmp_path / "runs", name) for name in "ab")
    two.new_session({"overrides": ["optimizers.main.lr=0.5"], "kind": "train"})
    (found,) = compare_settings(read(one, two))
    assert found.values == [0.1, 0.5] and found.origins == [None, "command line of session 2"]
    every = {each.name: each.values for each in compare_settings(read(one, two), is_all=True)}
    assert every["model.features"] == [8, 8] and every["optimizers.main.lr"] == [0.1, 0.5]


def test_many_runs(tmp_path: Path) -> None:
    runs = read(*(make(tmp_path / "runs", f"r{n}", seed=n % 3, only=1) for n in range(11)))
    (found,) = compare_settings(runs)
    assert found.name == "seed" and found.values == [n % 3 for n in range(11)] and found.origins == []
    runs[4].settings = None
    runs[4].__dict__.pop("flat_settings", None)
    (found,) = compare_settings(runs)
    assert found.values[4] is None and found.absent == [4]
