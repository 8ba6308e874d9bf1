from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from roost.project.dlnest.log_rows import LogRows


def test_values_appended_to_a_list_are_recorded_once_as_their_mean() -> None:
    rows, log = LogRows(), {"loss": [1.0]}
    assert rows.new_values(log) == {"loss": 1.0}
    assert rows.new_values(log) == {}
    log["loss"] += [2.0, 4.0]
    assert rows.new_values(log) == {"loss": 3.0}


def test_a_number_is_recorded_when_it_changes() -> None:
    rows, log = LogRows(), {"acc": 0.5}
    assert rows.new_values(log) == {"acc": 0.5}
    assert rows.new_values(log) == {}
    log["acc"] = math.nan
    assert math.isnan(rows.new_values(log)["acc"])
    assert rows.new_values(log) == {}, "not a number is the same as before"
    log["acc"] = 0.75
    assert rows.new_values(log) == {"acc": 0.75}


def test_a_list_that_was_cleared_is_new() -> None:
    rows, log = LogRows(), {"loss": [1.0, 2.0, 3.0]}
    rows.new_values(log)
    log["loss"] = [5.0]
    assert rows.new_values(log) == {"loss": 5.0}
    log["loss"].append(7.0)
    assert rows.new_values(log) == {"loss": 7.0}


def test_dictionaries_are_paths_and_what_is_no_number_is_left_out() -> None:
    log: dict[str, Any] = {
        "loss": {"d": [torch.tensor(1.5)], "g": [np.float32(2.5), np.array([3.5])]},
        "name": "x",
        "flag": True,
        "picture": [torch.zeros(3, 3)],
        "complex": 1j,
        "none": None,
        "epochs": {1: 0.25},
    }
    assert LogRows().new_values(log) == {"loss/d": 1.5, "loss/g": 3.0, "epochs/1": 0.25}


def test_what_is_not_finite_is_kept() -> None:
    found = LogRows().new_values({"a": [1.0, math.inf], "b": [math.inf, -math.inf], "c": [10**400, 1.0]})
    assert found["a"] == math.inf and math.isnan(found["b"]) and found["c"] == math.inf


def test_a_restored_log_makes_no_doubles() -> None:
    rows, log = LogRows(), {"loss": [1.0, 2.0], "acc": 0.5}
    rows.new_values(log)
    other = LogRows()
    other.load_state_dict(rows.state_dict())
    log["loss"].append(9.0)
    assert other.new_values(log) == {"loss": 9.0}


def test_what_is_no_real_number_is_left_out() -> None:
    text, objects = np.array(["a"]), np.array([object()], dtype=object)
    nothing = torch.ones(1, device="meta")
    log = {"text": text, "objects": [objects, 3.0], "time": np.array(["2026-01-01"], "M8"), "meta": nothing}
    assert LogRows().new_values(log) == {"objects": 3.0}


def test_a_log_that_contains_itself() -> None:
    log: dict[str, Any] = {"loss": [1.0], "inner": {}}
    log["self"] = log["inner"]["outer"] = log
    assert LogRows().new_values(log) == {"loss": 1.0}
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"in": deep, "loss": 2.0}
    assert set(LogRows().new_values(deep).values()) == {2.0}
