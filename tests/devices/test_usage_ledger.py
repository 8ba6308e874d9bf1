"""What each user has used of the cards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import Refused
from roost.devices import lease_files, usage_ledger
from roost.devices.lease_files import CardLease, LeaseRecord
from roost.devices.usage_ledger import UsageRow
from tests.devices.leasing import NEEDS_ROOT, NOBODY, Child, at_once, card, shared_root, take

DAY = 86400.0
ME = lease_files.user_name(os.geteuid())


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    return lease_files.make_shared_folder(tmp_path / "leases")


def ended(start: float, end: float, *, share: float = 1.0, token: str = "a", id: str = "GPU-0") -> CardLease:
    said = LeaseRecord(
        pid=1, start_ticks=None, boot_id="", user=ME, mb=None, share=share, since=start, package="/runs/a"
    )
    return CardLease(id, os.geteuid(), token, False, end, said)


def ledger(root: Path) -> Path:
    return root / "usage" / f"{os.geteuid()}.jsonl"


def rows(root: Path) -> list[UsageRow]:
    return [msgspec.json.decode(line, type=UsageRow) for line in ledger(root).read_bytes().splitlines()]


def decayed(now: float) -> dict[str, float]:
    return usage_ledger.decayed_usage(now, leases=lease_files.all_leases(lease_files.leases_folder()))


def test_a_row_has_what_was_used(root: Path) -> None:
    before = os.umask(0o077)
    try:
        usage_ledger.record_usage(root, ended(1000, 1060, share=0.25))
    finally:
        os.umask(before)
    (row,) = rows(root)
    assert row == UsageRow(
        start=1000, end=1060, cards=("GPU-0",), share=0.25, gpu_seconds=15, lease="a/GPU-0"
    )
    assert (root / "usage").stat().st_mode & 0o7777 == 0o1777
    assert ledger(root).stat().st_mode & 0o7777 == 0o644


def test_what_was_used_a_half_life_ago_counts_half(root: Path) -> None:
    usage_ledger.record_usage(root, ended(0, 60))
    assert decayed(60)[ME] == pytest.approx(60, rel=1e-4)
    assert decayed(60 + 7 * DAY)[ME] == pytest.approx(30, rel=1e-4)


def test_a_long_use_decays_while_it_lasts_and_what_is_to_come_does_not_count(root: Path) -> None:
    usage_ledger.record_usage(root, ended(0, 700 * DAY))
    steady = 7 * DAY / usage_ledger.math.log(2)
    assert decayed(700 * DAY)[ME] == pytest.approx(steady)
    assert decayed(60)[ME] == pytest.approx(60, rel=1e-4)
    assert decayed(0) == {}


def test_what_is_held_counts_as_far_as_it_has_come(root: Path) -> None:
    lease = take(card(0), card(1), mb=6144)
    (one,) = lease_files.live_leases("GPU-0")
    assert decayed(one.record.since + 100)[ME] == pytest.approx(2 * 0.25 * 100, rel=1e-3)
    os.utime(lease.fds[0], (one.record.since + 40,) * 2)  # as a supervisor does at the end
    os.utime(lease.fds[1], (one.record.since + 40,) * 2)
    lease.close()
    so_far = decayed(one.record.since + 100)[ME]
    assert so_far == pytest.approx(2 * 0.25 * 40, rel=1e-3), "its file has the same"
    usage_ledger.record_usage(root, lease_files.all_leases(root)[0])
    assert decayed(one.record.since + 100)[ME] == pytest.approx(so_far, rel=1e-3), "the row and the file"
    take(card(0)).close()
    row, again = rows(root)
    assert row == again and (row.cards, row.gpu_seconds) == (("GPU-0",), pytest.approx(10, abs=0.01))
    assert not any(file.name.endswith(f"{lease.token}.json") for file in (root / "GPU-0").iterdir())
    assert decayed(one.record.since + 100)[ME] == pytest.approx(so_far, rel=1e-3), "the row has the same"


def test_a_lease_that_was_written_down_twice_counts_once(root: Path) -> None:
    """A process was killed between writing the row and removing the file."""
    usage_ledger.record_usage(root, ended(0, 60))
    usage_ledger.record_usage(root, ended(0, 60))
    usage_ledger.record_usage(root, ended(0, 60, id="GPU-1"))
    assert decayed(60)[ME] == pytest.approx(120, rel=1e-4)


def test_a_lease_of_no_length_is_no_row(root: Path) -> None:
    usage_ledger.record_usage(root, ended(60, 60))
    usage_ledger.record_usage(root, ended(60, 0))
    assert not ledger(root).exists()


def test_torn_and_senseless_lines_are_no_rows(root: Path) -> None:
    usage_ledger.record_usage(root, ended(0, 60))
    with ledger(root).open("ab") as file:
        file.write(b'{"start": 5}\nnull\n')
        for start, end, seconds in ((60, 0, 60), (0, 60, -1e9), (0, 60, float("inf"))):
            row = UsageRow(start=start, end=end, cards=(), share=1, gpu_seconds=seconds)
            file.write(msgspec.json.encode(row) + b"\n")
        file.write(b'{"start": 0, "end": 60, "ca')
    assert decayed(60)[ME] == pytest.approx(60, rel=1e-4)
    usage_ledger.record_usage(root, ended(0, 60, token="b"))
    assert decayed(60)[ME] == pytest.approx(120, rel=1e-4), "the torn line does not take this one with it"


@pytest.mark.parametrize(
    "row",
    ['"start": 0, "end": 60, "gpu_seconds": 1e308', '"start": 0, "end": 1e-300, "gpu_seconds": 1e12',
     '"start": -1e308, "end": 60, "gpu_seconds": 1', '"start": 0, "end": 1e308, "gpu_seconds": 1'],
)  # fmt: skip
def test_numbers_beyond_sense_spoil_nobodys_sums(root: Path, row: str) -> None:
    usage_ledger.record_usage(root, ended(0, 60))
    with ledger(root).open("ab") as file:
        file.write(f'{{{row}, "cards": [], "share": 1}}\n'.encode() * 2)
    assert decayed(60) == {ME: pytest.approx(60, rel=1e-4)}


def test_only_what_is_new_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = usage_ledger._parsed

    def parsed(data: bytes, start: int) -> Iterator[tuple[str, UsageRow]]:
        read.append(len(data))
        return whole(data, start)

    monkeypatch.setattr(usage_ledger, "_parsed", parsed)
    for number in range(3):
        usage_ledger.record_usage(root, ended(0, 60, token=f"{number}"))
        assert decayed(60)[ME] == pytest.approx(60 * (number + 1), rel=1e-4)
        assert decayed(120)[ME] < decayed(60)[ME], "also back in time"
    assert len(read) == 3 and sum(read) == ledger(root).stat().st_size


def test_a_ledger_that_is_written_anew_is_read_anew(root: Path) -> None:
    for number in range(3):
        usage_ledger.record_usage(root, ended(0, 60, token=f"{number}"))
    assert decayed(60)[ME] == pytest.approx(180, rel=1e-4)
    first = ledger(root).read_bytes().splitlines(keepends=True)[0]
    ledger(root).write_bytes(first)
    assert decayed(60)[ME] == pytest.approx(60, rel=1e-4)
    other = ledger(root).with_name("other")
    other.write_bytes(first * 5 + b'{"start": 0, "end": 120, "cards": [], "share": 1, "gpu_seconds": 120}\n')
    other.rename(ledger(root))
    assert decayed(60)[ME] == pytest.approx(120, rel=1e-4), "of the second one half is yet to come"
    assert decayed(120)[ME] == pytest.approx(180, rel=1e-3)
    ledger(root).unlink()
    assert decayed(120) == {}


def test_as_time_goes_on_it_is_what_it_would_be_at_once(root: Path) -> None:
    for number in range(20):
        usage_ledger.record_usage(root, ended(number * DAY, (number + 0.5) * DAY, token=f"{number}"))
        so_far = decayed((number + 0.25) * DAY)
    at_once_ = decayed(30 * DAY)[ME]
    usage_ledger._ledgers.clear()
    assert decayed(30 * DAY)[ME] == pytest.approx(at_once_) and so_far[ME] > 0


def test_a_large_ledger_is_compacted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_ledger, "_COMPACT_BYTES", 2**14)
    now, weeks = 200 * DAY, 25
    before = os.umask(0o077)
    try:
        for number in range(300):
            start = now - weeks * 7 * DAY * number / 300
            usage_ledger.record_usage(root, ended(start, start + 600, token=str(number)))
            assert ledger(root).stat().st_mode & 0o7777 == 0o644
    finally:
        os.umask(before)
    assert ledger(root).stat().st_size <= 2**14 + 200
    exact = sum(600 * 0.5 ** ((now - start) / (7 * DAY)) for start in (row.start for row in rows(root)))
    everything = sum(600 * 0.5 ** (weeks * number / 300) for number in range(300))
    assert exact < everything, "some are joined"
    assert decayed(now + 600)[ME] == pytest.approx(everything, rel=0.05)


def test_three_who_write_at_once_lose_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_ledger, "_COMPACT_BYTES", 2**13)

    def write(who: int) -> None:
        for number in range(50):
            usage_ledger.record_usage(root, ended(number * 10, number * 10 + 5, token=f"{who}-{number}"))

    assert at_once(3, write) == [0] * 3
    assert decayed(1000)[ME] == pytest.approx(3 * 50 * 5, rel=1e-2)


def test_a_file_of_another_user_does_not_count(root: Path) -> None:
    usage_ledger.record_usage(root, ended(0, 60))
    data = ledger(root).read_bytes()
    (root / "usage" / "4321.jsonl").write_bytes(data)
    (root / "usage" / "garbage").write_bytes(data)
    (root / "usage" / "5.jsonl").symlink_to(ledger(root))
    assert decayed(60) == {ME: pytest.approx(60, rel=1e-4)}


@NEEDS_ROOT
def test_each_user_writes_an_own_ledger(tmp_path: Path, root: Path) -> None:
    shared_root(tmp_path)
    take(card()).close()

    def use() -> None:
        lease = take(card())
        (one,) = lease_files.live_leases("GPU-0")
        os.utime(lease.fds[0], (one.record.since + 40,) * 2)
        lease.close()
        take(card()).close()

    assert Child(use, uid=NOBODY).end() == 0
    later = decayed(lease_files.time.time() + 60)
    assert later["nobody"] == pytest.approx(40, rel=1e-3)


@NEEDS_ROOT
def test_a_foreign_ledger_is_reported_and_costs_no_lease(tmp_path: Path, root: Path) -> None:
    shared_root(tmp_path)
    lease_files.make_shared_folder(root / "usage")
    (root / "usage" / f"{NOBODY}.jsonl").touch()

    def add() -> None:
        with pytest.raises(Refused, match=rf"\bmv .*{NOBODY}\.jsonl"):
            usage_ledger.record_usage(root, CardLease("GPU-0", NOBODY, "a", False, 60, ended(0, 60).record))
        lease = take(card())
        os.utime(lease.fds[0], (4e9, 4e9))
        lease.close()
        take(card()).close()
        assert len(list((root / "GPU-0").iterdir())) == 2, "the file that could not be written down stays"

    assert Child(add, uid=NOBODY).end() == 0


def test_what_others_have_written_is_no_trouble(root: Path) -> None:
    usage_ledger.record_usage(root, ended(1000, 1060))
    bad = [
        b'{"cards": ["\xff"]}',
        b'{"a":' * 10_000,
        msgspec.json.encode(rows(root)[0]).replace(b"60.0", b"1e308"),
    ]
    ledger(root).write_bytes(b"\n".join([*bad, ledger(root).read_bytes()]))
    assert decayed(1060) == {ME: pytest.approx(60, rel=1e-4)}


def test_a_ledger_that_is_far_too_large_is_not_read(root: Path) -> None:
    usage_ledger.record_usage(root, ended(1000, 1060))
    with ledger(root).open("r+b") as file:
        file.truncate(usage_ledger._MAX_BYTES + 1)
    assert decayed(1060) == {}
