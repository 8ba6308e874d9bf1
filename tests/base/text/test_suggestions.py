"""Suggestions for misspelled names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.text.suggestions import closest_match, did_you_mean, edit_distance
from tests.messages import Messages

words = st.text(alphabet="abc_", max_size=8)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("", "", 0),
        ("seed", "seed", 0),
        ("sed", "seed", 1),
        ("sede", "seed", 1),
        ("need", "seed", 1),
        ("epohcs", "epochs", 1),
        ("", "abc", 3),
        ("kitten", "sitting", 3),
    ],
)
def test_distance_counts_slips(a: str, b: str, expected: int) -> None:
    assert edit_distance(a, b) == expected


@given(words, words)
def test_distance_is_symmetric_and_bounded(a: str, b: str) -> None:
    steps = edit_distance(a, b)
    assert steps == edit_distance(b, a)
    assert (steps == 0) == (a == b)
    assert abs(len(a) - len(b)) <= steps <= max(len(a), len(b))


@given(words.filter(bool), st.data())
def test_one_removed_letter_is_one_slip(word: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(word) - 1))
    assert edit_distance(word, word[:place] + word[place + 1 :]) == 1


def test_nearest_finds_slips_case_and_parts() -> None:
    names = ["batch_size", "num_workers", "shuffle"]
    assert closest_match("bach_size", names) == "batch_size"
    assert closest_match("Shuffle", names) == "shuffle"
    assert closest_match("batch", names) == "batch_size"
    assert closest_match("workers", names) == "num_workers"
    assert closest_match("sed", ["fused", "seed"]) == "seed"
    assert closest_match("learning_rate", names) is None
    assert closest_match("sed", ["fused", "seed"]) == "seed"  # one letter less, before a part of another
    assert closest_match("x", []) is None


def test_nearest_within_counts_every_slip() -> None:
    assert closest_match("sed", ["seed"], max_distance=1) == "seed"
    assert closest_match("sd", ["seed"], max_distance=1) is None
    assert closest_match("see", ["seed_everything"], max_distance=1) is None
    assert closest_match("Seed", ["seed"], max_distance=1) == "seed"


def test_a_tie_always_gives_the_same_name() -> None:
    assert closest_match("b", ["c", "a"]) == closest_match("b", ["a", "c"]) == "a"


def test_a_name_of_absurd_length_is_not_compared() -> None:
    assert closest_match("a" * 10_000_000, ["a"]) is None
    assert closest_match("a", ["a" * 10_000_000]) is None


def test_proposal_is_a_question_or_nothing(messages: Messages) -> None:
    messages.check(did_you_mean("sed", ["seed"]))
    assert "'seed'" in did_you_mean("sed", ["seed"])
    assert did_you_mean("zzz", ["seed"]) == ""
