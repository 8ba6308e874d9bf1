"""What a run can be found by."""

from __future__ import annotations

import json
import math
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roost.operations.listing import search_fields
from roost.package import records
from roost.package.records import RecordsWriter
from tests.operations.packages import package, record_rows


def test_settings_are_flat() -> None:
    nest = {"a": {"b": [1, {"c": None}], "d": {}}, "e": True}
    assert list(search_fields.flatten(nest)) == [("a.b", 1), ("a.b.c", None), ("e", True)]


@pytest.mark.parametrize(
    ("integer", "found"),
    [(2**64 - 1, 2**64 - 1), (2**64, 2.0**64), (-(2**63) - 1, -(2.0**63)), (-(10**400), -math.inf)],
)
def test_an_integer_that_no_index_holds_is_a_float(integer: int, found: float) -> None:
    assert [(value, type(value)) for _, value in search_fields.flatten({"a": [integer]})] == [
        (found, type(found))
    ]


def test_of_a_package(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    found = search_fields.read_search_fields(made.path)
    assert found.settings["optimizers.main.lr"] == [0.1] and found.settings["max_epochs"] == [3]
    assert found.metrics == {"train/loss": 0.5, "valid/loss": 0.75, "lr": 0.1, "test/loss": 0.7}


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    (made.path / "args.json").write_text("[")
    (made.path / "records" / "1.jsonl").write_bytes(b"\xff\n{")
    assert search_fields.read_search_fields(made.path) == ({}, {})
    assert search_fields.read_search_fields(tmp_path) == ({}, {})


@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # each example has a folder of its own
)
@given(draw=st.randoms(use_true_random=True))
def test_the_newest_values_of_a_long_run_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draw: random.Random
) -> None:
    monkeypatch.setattr(search_fields, "_WHOLE_BYTES", 600)
    monkeypatch.setattr(search_fields, "_PART_BYTES", 300)
    package_folder = Path(tempfile.mkdtemp(dir=tmp_path))
    folder = package_folder / "records"
    folder.mkdir()
    step = 0
    for number in range(1, draw.randint(2, 4)):
        start = draw.randint(0, step)
        writer = RecordsWriter(folder / f"{number}.jsonl", session=number, start_step=start)
        step = start
        writer.row(step, 0, {'od"d': 0.5, "rare": 1.0, "lr": 3.0})
        for _ in range(draw.randint(0, 60)):
            step += draw.randint(0, 3)
            values = {"loss": draw.random()}
            if draw.random() < 0.05:
                values |= {'od"d': draw.choice([math.nan, 1.5]), "rare": draw.random()}
            writer.row(step, 0, values)
            if draw.random() < 0.03:
                step = draw.randint(0, step)
                writer.go_back(step)
        writer.close()
    newest = search_fields.newest_metrics(package_folder)
    assert repr(newest) == repr(search_fields.newest_metrics(package_folder))
    whole = records.fold(folder).last()
    assert json.dumps(newest, sort_keys=True) == json.dumps(whole, sort_keys=True)


def test_what_was_validated_long_ago_is_found_by_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_fields, "_WHOLE_BYTES", 600)
    monkeypatch.setattr(search_fields, "_PART_BYTES", 300)
    made = package(tmp_path / "runs", state="new")
    losses = [{"step": step, "epoch": 0, "loss": float(step)} for step in range(1, 90)]
    losses[40]["valid/loss"] = 0.25
    record_rows(made, 1, 0, losses)
    assert "valid/loss" not in search_fields.newest_metrics(made.path)
    from tests.operations.packages import add_checkpoint

    add_checkpoint(made, 0, losses[40])
    assert search_fields.newest_metrics(made.path) == {"loss": 89.0, "valid/loss": 0.25}
