"""A memory, DDP, several cards and the CPU of document 000, in roost's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import Refused, UsageError
from roost.operations import lab
from roost.serve.routes import card_sharing
from roost.serve.routes.card_sharing import Shared
from tests.messages import Messages

ROOM = 24576 - 512


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    monkeypatch.setenv("ROOST_DEVICES", "sim:3x24GB")


@pytest.mark.parametrize(
    ("asked", "usual", "cards", "memory_mb", "strategy"),
    [
        (Shared(), True, 0, None, None),
        (Shared(memory_consumption=9000), True, 0, 9000, None),
        (Shared(CPU=True), False, 0, None, None),
        (Shared(CPU=True, memory_consumption=9000), False, 0, None, None),
        (Shared(DDP=True), False, 3, None, "ddp"),
        (Shared(DDP=True, memory_consumption=9000), False, 1, 9000, "ddp"),
        (Shared(DDP=True, memory_consumption=ROOM + 1), False, 2, ROOM // 2 + 1, "ddp"),
        (Shared(DDP=True, multi_GPU=True, memory_consumption=3 * ROOM), False, 3, ROOM, "ddp"),
        (Shared(multi_GPU=True), True, 0, None, None),
        (Shared(multi_GPU=True, memory_consumption=ROOM), False, 1, ROOM, None),
        (Shared(multi_GPU=True, memory_consumption=ROOM + 1), False, 2, ROOM // 2 + 1, "single"),
    ],
)  # fmt: skip
def test_what_is_asked_of_cards(
    asked: Shared, usual: bool, cards: int, memory_mb: int | None, strategy: str | None
) -> None:
    found = card_sharing.wanted(asked)
    need = found.need
    assert (found.cards_from_settings, need.cards, need.memory_mb) == (usual, cards, memory_mb)
    assert found.strategy == strategy


def test_what_cannot_be(messages: Messages) -> None:
    with pytest.raises(Refused) as refused:
        card_sharing.wanted(Shared(multi_GPU=True, memory_consumption=3 * ROOM + 1))
    messages.check(refused.value)
    for both in (Shared(CPU=True, DDP=True), Shared(CPU=True, multi_GPU=True)):
        with pytest.raises(UsageError) as excluded:
            card_sharing.wanted(both)
        messages.check(excluded.value)
    with pytest.raises(UsageError, match="memory_consumption"):
        card_sharing.wanted(Shared(memory_consumption=0))


def test_only_cards_that_tasks_may_have_count(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    with lab.opened() as store:
        store.set_setting("rules", {"allowed": []})
    with pytest.raises(Refused) as refused:
        card_sharing.wanted(Shared(DDP=True))
    messages.check(refused.value)


def test_names() -> None:
    assert card_sharing.name("a b", no_save=False, use_description=False) is None
    assert card_sharing.name("a b", no_save=True, use_description=True) == "NOSAVE"
    assert "/" not in (card_sharing.name("a/../b", no_save=False, use_description=True) or "/")
    with pytest.raises(UsageError, match="use_description"):
        card_sharing.name("", no_save=False, use_description=True)
