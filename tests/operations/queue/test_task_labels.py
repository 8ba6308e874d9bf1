"""What the lab says of its tasks, by their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.lab.queue.queue_store import QueueStore
from roost.operations.queue.task_labels import TaskLabels
from tests.lab.queued import task

ONE, OTHER, UNKNOWN = (f"01m7ybz8{letter}0000000000000000{letter}" for letter in "bcd")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with QueueStore.open(tmp_path / "lab") as store:
        yield store


def said(store: QueueStore, text: str) -> str:
    return TaskLabels(store, [text]).replace_ids(text)


def test_a_unique_name_replaces_the_id(store: QueueStore) -> None:
    store.submit([task(id=ONE, name="first", package="/runs/first"), task()])
    assert said(store, f"kept for first ({ONE}) until {ONE} ends") == "kept for first until first ends"
    assert said(store, f"until it is released (roost release {ONE})").endswith("(roost release first)")


def test_a_name_of_several_tasks_is_followed_by_a_short_id(store: QueueStore) -> None:
    store.submit([task(id=id, name="first", package=f"/{id}/first") for id in (ONE, OTHER)])
    assert said(store, f"kept for first ({ONE}); {OTHER}") == "kept for first (01m7ybz8b); first (01m7ybz8c)"
    assert said(store, f"(roost release {ONE})") == "(roost release 01m7ybz8b)", "it can be copied"


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("train", "/runs/2026-11-22_07-33-13_481"),
        ("2026-11-22_07-33-13_481_1", "/runs/2026-11-22_07-33-13_481_1"),
    ],
)
def test_a_task_without_a_name_of_the_user_has_a_short_id(store: QueueStore, name: str, package: str) -> None:
    store.submit([task(id=ONE, name=name, package=package)])
    assert said(store, f"until {ONE} ends") == "until 01m7ybz8 ends"


def test_a_name_of_two_words_is_not_put_into_a_command(store: QueueStore) -> None:
    store.submit([task(id=ONE, name="my run", package="/runs/my run")])
    assert said(store, f"{ONE} is held (roost release {ONE})") == "my run is held (roost release 01m7ybz8)"


def test_an_unknown_task(store: QueueStore) -> None:
    store.submit([task(id=ONE, name="first", package="/runs/first")])
    assert said(store, f"{UNKNOWN} and {ONE}x and {ONE}") == f"01m7ybz8d and {ONE}x and first"
    assert said(store, "") == ""
