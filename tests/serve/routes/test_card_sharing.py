"""A memory, DDP, several cards and the CPU of DLNest, in roost's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import Refused, UsageError
from roost.operations import lab
from roost.serve.routes import card_sharing
from roost.serve.routes.card_sharing import SharedCardParameters
from tests.messages import Messages

ROOM = 24576 - 512


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    monkeypatch.setenv("ROOST_DEVICES", "sim:3x24GB")


@pytest.mark.parametrize(
    ("asked", "usual", "cards", "memory_mb", "strategy"),
    [
        (SharedCardParameters(), True, 0, None, None),
        (SharedCardParameters(memory_consumption=9000), True, 0, 9000, None),
        (SharedCardParameters(CPU=True), False, 0, None, None),
        (SharedCardParameters(CPU=True, memory_consumption=9000), False, 0, None, None),
        (SharedCardParameters(DDP=True), False, 3, None, "ddp"),
        (SharedCardParameters(DDP=True, memory_consumption=9000), False, 1, 9000, "ddp"),
        (SharedCardParameters(DDP=True, memory_consumption=ROOM + 1), False, 2, ROOM // 2 + 1, "ddp"),
        (SharedCardParameters(DDP=True, multi_GPU=True, memory_consumption=3 * ROOM), False, 3, ROOM, "ddp"),
        (SharedCardParameters(multi_GPU=True), True, 0, None, None),
        (SharedCardParameters(multi_GPU=True, memory_consumption=ROOM), False, 1, ROOM, None),
        (SharedCardParameters(multi_GPU=True, memory_consumption=ROOM + 1),
         False, 2, ROOM // 2 + 1, "single"),
    ],
)  # fmt: skip
def test_the_resource_request_of_the_parameters(
    asked: SharedCardParameters, usual: bool, cards: int, memory_mb: int | None, strategy: str | None
) -> None:
    found = card_sharing.task_options(asked)
    need = found.need
    assert (found.gpus is None, need.cards, need.memory_mb) == (usual, cards, memory_mb)
    assert found.strategy == strategy


def test_contradictions_are_refused(messages: Messages) -> None:
    with pytest.raises(Refused) as refused:
        card_sharing.task_options(SharedCardParameters(multi_GPU=True, memory_consumption=3 * ROOM + 1))
    messages.check(refused.value)
    for both in (SharedCardParameters(CPU=True, DDP=True), SharedCardParameters(CPU=True, multi_GPU=True)):
        with pytest.raises(UsageError) as excluded:
            card_sharing.task_options(both)
        messages.check(excluded.value)
    with pytest.raises(UsageError, match="memory_consumption"):
        card_sharing.task_options(SharedCardParameters(memory_consumption=0))


def test_only_cards_that_tasks_may_have_count(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    with lab.open_queue() as store:
        store.set_setting("rules", {"allowed": []})
    with pytest.raises(Refused) as refused:
        card_sharing.task_options(SharedCardParameters(DDP=True))
    messages.check(refused.value)


def test_names() -> None:
    assert card_sharing.requested_name("a b", no_save=False, use_description=False) is None
    assert card_sharing.requested_name("a b", no_save=True, use_description=True) == "NOSAVE"
    assert "/" not in (card_sharing.requested_name("a/../b", no_save=False, use_description=True) or "/")
    with pytest.raises(UsageError, match="use_description"):
        card_sharing.requested_name("", no_save=False, use_description=True)
