"""Nested dicts of settings: values by paths, merging, comparing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.config.values.nested_values import (
    ABSENT,
    ConfigDifference,
    differences,
    dotted_keys,
    has_nul,
    leaves,
    merge,
    nested,
    value_at,
    without,
)

VALUES: dict[str, Any] = {"a": {"b": 1, "c": [{"d": 2}, None]}, "e": {}, "f": None}


@pytest.mark.parametrize(
    ("key", "value"),
    [("a.b", 1), ("a", VALUES["a"]), ("a.c.0.d", 2), ("a.c.1", None), ("f", None), ("a.c.2", ABSENT),
     ("a.c.d", ABSENT), ("a.b.x", ABSENT), ("f.x", ABSENT), ("g", ABSENT)],
)  # fmt: skip
def test_a_value_by_its_path(key: str, value: object) -> None:
    found = value_at(VALUES, tuple(key.split(".")))
    assert found is value or found == value


def test_the_keys_of_nested_values() -> None:
    assert leaves(VALUES) == [("a", "b"), ("a", "c"), ("e",), ("f",)]
    assert dotted_keys(VALUES) == ["a", "a.b", "a.c", "e", "f"]


def test_a_key_is_added_and_removed_without_a_change_of_the_old_values() -> None:
    before = repr(VALUES)
    assert nested(("x", "y"), 1) == {"x": {"y": 1}}
    assert without(merge(VALUES, nested(("a", "z"), 1)), ("a", "z")) == VALUES
    assert without(VALUES, ("a",)) == {"e": {}, "f": None}
    assert repr(VALUES) == before


def test_nul_is_found_in_the_depth() -> None:
    assert has_nul({"a": [1, {"b": "x\0"}]}) and not has_nul({"a": [1, {"b": "x"}]})


# --- merging and comparing ----------------------------------------------------------------------------

names = st.sampled_from("abcd")
single_values = st.integers(0, 3) | st.none() | st.lists(st.integers(0, 1), max_size=2)
trees = st.dictionaries(
    names,
    st.recursive(single_values, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=6),
    max_size=4,
)


@given(trees)
def test_merging_with_nothing_changes_nothing(tree: dict[str, Any]) -> None:
    assert merge(tree, {}) == merge({}, tree) == merge(tree, tree) == tree


@given(trees, trees)
def test_the_upper_side_wins_and_both_stay_untouched(low: dict[str, Any], high: dict[str, Any]) -> None:
    before = repr((low, high))
    merged = merge(low, high)
    assert repr((low, high)) == before
    assert merged.keys() == low.keys() | high.keys()
    for key, value in high.items():
        if isinstance(value, dict) and isinstance(low.get(key), dict):
            assert merged[key] == merge(low[key], value)
        else:
            assert merged[key] == value
    assert merge(merged, high) == merged


@given(trees, trees)
def test_differences_are_empty_only_for_equal_settings(old: dict[str, Any], new: dict[str, Any]) -> None:
    found = differences(old, new)
    assert (found == []) == (old == new)
    assert [item.key for item in found] == sorted(item.key for item in found)
    assert [(item.key, item.new, item.old) for item in differences(new, old)] == [
        (item.key, item.old, item.new) for item in found
    ]


def test_differences_are_dotted_sorted_and_typed() -> None:
    old = {
        "b": 1,
        "a": {"x": 1, "y": [1, 2]},
        "gone": {"k": 1},
        "t": True,
        "f": 1,
        "n": math.nan,
        "s": {"q": 1},
    }
    new = {"b": 2, "a": {"x": 1, "y": [1, 3]}, "new": None, "t": 1, "f": 1.0, "n": math.nan, "s": 4}
    assert differences(old, new) == [
        ConfigDifference("a.y", [1, 2], [1, 3]),
        ConfigDifference("b", 1, 2),
        ConfigDifference("gone.k", 1, ABSENT),
        ConfigDifference("new", ABSENT, None),
        ConfigDifference("s", ABSENT, 4),
        ConfigDifference("s.q", 1, ABSENT),
        ConfigDifference("t", True, 1),
    ]
