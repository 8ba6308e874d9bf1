"""Leases between processes, and between users. No card is needed for it."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.devices import lease as leases
from roost.devices import lease_files
from roost.devices.lease import CardsBusy, LeaseHolder
from roost.devices.lease_files import live_leases
from tests.devices.leasing import NEEDS_ROOT, NOBODY, SOMEBODY, Child, at_once, card, shared_root, take
from tests.messages import Messages
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases"


def test_a_whole_card_is_not_shared() -> None:
    whole = take(card())
    name = lease_files.user_name(os.geteuid())
    with pytest.raises(CardsBusy) as busy:
        take(card(), mb=1)
    assert all(fact in str(busy.value) for fact in ("1 MB", "GPU 0 (RTX 4090, 24.0 GB)", name, "/runs/a"))
    assert [one.token for one in busy.value.leases["GPU-0"]] == [whole.token]
    with pytest.raises(CardsBusy):
        take(card())
    whole.close()
    part = take(card(), mb=1)
    with pytest.raises(CardsBusy, match=f"{name}: 1 MB "):
        take(card())
    part.close()
    take(card()).close()


def test_parts_fit_as_long_as_the_memory_reaches() -> None:
    held_by = [take(card(), mb=8192, reserve_mb=512), take(card(), mb=8192, reserve_mb=512)]
    with pytest.raises(CardsBusy):
        take(card(), mb=7681, reserve_mb=512)
    held_by.append(take(card(), mb=7680, reserve_mb=512))
    with pytest.raises(CardsBusy):
        take(card(), mb=513, reserve_mb=0)
    held_by.append(take(card(), mb=512))
    assert len(live_leases("GPU-0")) == 4
    for one in held_by:
        one.close()


def test_a_request_larger_than_the_card_is_refused_with_its_numbers(messages: Messages) -> None:
    with pytest.raises(Refused) as no:
        take(card(), mb=24576, reserve_mb=512)
    assert all(fact in str(no.value) for fact in ("24.0 GB", "GPU 0", "512 MB", "23.5 GB"))
    messages.check(no.value)
    assert not isinstance(no.value, CardsBusy)


def test_of_a_card_of_unknown_size_no_two_parts_are_given() -> None:
    unified = card(total_mb=0)
    part = take(unified, mb=1 << 20)
    with pytest.raises(CardsBusy):
        take(unified, mb=1)
    part.close()


def test_of_a_card_of_one_process_at_a_time_no_two_parts_are_given() -> None:
    exclusive = dataclasses.replace(card(), exclusive=True)
    part = take(exclusive, mb=1)
    assert leases.cards_with_capacity([exclusive], 1) == []
    with pytest.raises(CardsBusy):
        take(exclusive, mb=1)
    part.close()
    take(exclusive, mb=1).close()


def test_all_cards_or_none(root: Path) -> None:
    one = take(card(1))
    with pytest.raises(CardsBusy) as busy:
        take(card(2), card(1), card(0))
    assert all(
        fact in str(busy.value) for fact in ("GPU 1 (RTX 4090, 24.0 GB)", lease_files.user_name(os.geteuid()))
    )
    assert list(busy.value.leases) == ["GPU-1"]
    assert live_leases("GPU-0") == live_leases("GPU-2") == []
    one.close()
    all_three = take(card(2), card(1), card(0))
    assert len(all_three.fds) == 3
    assert {held.token for number in range(3) for held in live_leases(f"GPU-{number}")} == {all_three.token}
    assert leases.unleased_cards([card(0), card(3)]) == [card(3)]
    all_three.close()


def test_with_room_are_those_where_it_fits() -> None:
    small, large = card(0, total_mb=8000), card(1)
    held_there = take(large, mb=20_000)
    assert leases.cards_with_capacity([small, large], 4000) == [small, large]
    assert leases.cards_with_capacity([small, large], 4000, reserve_mb=1000) == [small]
    assert leases.cards_with_capacity([small, large], None) == [small]
    held_there.close()


def test_a_lease_that_cannot_be_written_leaves_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    """Here something is in the way on the second card."""
    num_before = len(list(Path("/proc/self/fd").iterdir()))
    tokens = iter(["first", "first"])
    monkeypatch.setattr(leases.secrets, "token_hex", lambda size: next(tokens))
    for folder in (root, root / "GPU-1"):
        lease_files.make_shared_folder(folder)
    in_the_way = root / "GPU-1" / f"{os.geteuid()}-first.json"
    in_the_way.mkdir()
    with pytest.raises(Refused, match=r"GPU 1 .*File exists") as refused:
        take(card(0), card(1))
    assert refused.value.where == root / "GPU-1"
    messages.check(refused.value)
    assert list((root / "GPU-0").iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == num_before


def test_a_copy_of_the_descriptor_keeps_the_lease() -> None:
    """Guard and supervisor have copies: closing the own descriptor does not end their lease."""
    lease = take(card())
    child = Child(lambda: None)
    lease.close()
    lease.close()
    assert len(live_leases("GPU-0")) == 1
    os.kill(child.pid, signal.SIGKILL)
    assert child.end() == -signal.SIGKILL
    assert live_leases("GPU-0") == []


def test_only_what_is_handed_on_is_inherited() -> None:
    lease = take(card())
    assert not any(os.get_inheritable(fd) for fd in lease.fds)
    lease.close()


def test_what_is_left_of_our_own_is_removed_at_the_next_admission(root: Path) -> None:
    for _ in range(3):
        take(card(), mb=1).close()
    live = take(card(), mb=1)
    assert [path.name for path in (root / "GPU-0").iterdir()] == [f"{os.geteuid()}-{live.token}.json"]
    live.close()


def test_what_is_asked_for_under_a_lease_is_not_kept_off_by_it() -> None:
    """As a command that is typed in a shell that has leased a card."""
    outer = take(card())
    inner = take(card(), parent_token=outer.token)
    with pytest.raises(CardsBusy) as busy:
        take(card(), parent_token=outer.token)
    assert [one.token for one in busy.value.leases["GPU-0"]] == [inner.token]
    inner.close()
    outer.close()


def test_twenty_processes_race_for_four_cards(root: Path) -> None:
    """Each takes one of them again and again. That it is alone there it proves by a folder, which only one
    can make."""
    cards = [card(number) for number in range(4)]
    (root.parent / "alone").mkdir()

    def compete(seed: int) -> None:
        order = random.Random(seed)
        taken = 0
        while taken < 5:
            one = order.choice(cards)
            with suppress(CardsBusy):
                lease = leases.take([one], None, LeaseHolder.this_process())
                mine = root.parent / "alone" / one.id
                mine.mkdir()
                live_leases(order.choice(cards).id)
                mine.rmdir()
                lease.close()
                taken += 1

    assert at_once(20, compete) == [0] * 20
    assert all(live_leases(one.id) == [] for one in cards)


def test_gangs_lock_their_cards_in_one_order(root: Path) -> None:
    """A process that waits for one card does not block others from the next card."""
    take(card(0), card(1)).close()

    def opened(pid: int) -> list[str]:
        found = []
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(fd.readlink().name)
        return found

    with lease_files.locked_folder(root / "GPU-0", fcntl.LOCK_EX, deadline=0.0):
        if (pid := os.fork()) == 0:
            take(card(1), card(0))
            os._exit(0)
        wait_for(lambda: opened(pid).count("GPU-0") == 2)  # one is a copy of ours
        assert "GPU-1" not in opened(pid)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@NEEDS_ROOT
def test_two_users_never_have_one_whole_card(tmp_path: Path, root: Path) -> None:
    shared_root(tmp_path)
    first = Child(lambda: take(card()), uid=NOBODY)
    assert first.is_done
    assert not (second := Child(lambda: take(card()), uid=SOMEBODY)).is_done
    assert second.end() == 1
    with pytest.raises(CardsBusy, match=" nobody: "):
        take(card())
    assert first.end() == 0
    second = Child(lambda: take(card()), uid=SOMEBODY)
    assert second.is_done
    assert {path.name.partition("-")[0] for path in (root / "GPU-0").iterdir()} == {
        str(NOBODY),
        str(SOMEBODY),
    }
    with pytest.raises(CardsBusy, match=f" {SOMEBODY}: "):
        take(card())
    assert second.end() == 0
    take(card()).close()
    assert len(list((root / "GPU-0").iterdir())) == 3, "what is left of others is theirs to remove"
