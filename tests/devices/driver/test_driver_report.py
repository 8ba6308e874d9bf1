"""What a driver has answered, as cards. Captured: two, of which one is cut into three, and who uses them."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path

import pytest

from roost.devices.card import Card, CardProcess
from roost.devices.driver.driver_report import DriverError, parse_cards, process_owner
from tests.messages import Messages

CAPTURED = Path(__file__).with_name("captured.json").read_bytes()
OWNERS = {41207: "ann", 2171: "bob"}
PARTED = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"


def test_the_cards_of_a_machine() -> None:
    found = parse_cards(CAPTURED, OWNERS.get)
    assert [card.number for card in found] == [0, 1, 2, 3]
    assert found[3] == Card(
        number=3,
        id="GPU-b8ea3855-276c-c9cb-b366-c6fa655957c5",
        name="NVIDIA A100-SXM4-80GB",
        total_mb=81920,
        free_mb=21024,
        users=(CardProcess(2171, "bob", 58368), CardProcess(3090112, None, None)),
        utilization=100,
        temperature=61,
        power=391.204,
    )


def test_the_parts_of_a_card_stand_in_its_place() -> None:
    whole, small, half = parse_cards(CAPTURED, OWNERS.get)[:3]
    assert [part.name.removeprefix("NVIDIA A100-SXM4-80GB ") for part in (whole, small, half)] == [
        "MIG 3g.40gb",
        "MIG 1g.10gb",
        "MIG 1c.3g.40gb",
    ]
    assert whole.id == "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
    assert (whole.total_mb, whole.free_mb, whole.users) == (40192, 30904, (CardProcess(41207, "ann", 9216),))
    assert {part.part_of for part in (whole, small, half)} == {PARTED}
    # Of the whole card, so it says nothing of what a part does.
    assert (small.utilization, small.power, small.temperature, small.users) == (None, None, 34, ())


def test_a_card_that_is_cut_into_nothing_is_none() -> None:
    assert (
        parse_cards(
            json.dumps({"gpus": [{"index": 0, "uuid": "GPU-a", "name": "A100", "parts": []}]}).encode()
        )
        == []
    )


def test_a_card_that_fails_alone_is_in_trouble() -> None:
    gpus = [
        {"index": 0, "uuid": "GPU-a", "name": "H100", "error": "GPU is lost"},
        {"index": 1, "error": "Unknown Error"},
        {"index": 2, "uuid": "GPU-c", "name": "H100"},
    ]
    lost, never_seen, well = parse_cards(json.dumps({"gpus": gpus}).encode())
    assert (lost.id, lost.name) == ("GPU-a", "H100") and lost.trouble.endswith(": GPU is lost")
    assert never_seen.id == "1" and never_seen.trouble.endswith(": Unknown Error")
    assert well == Card(2, "GPU-c", "H100", 0, 0)


def test_a_card_of_one_process_at_a_time_and_one_of_none() -> None:
    modes = enumerate([0, 1, 2, 3, None])
    gpus = [{"index": at, "uuid": f"GPU-{at}", "compute_mode": mode} for at, mode in modes]
    found = parse_cards(json.dumps({"gpus": gpus}).encode())
    assert [card.exclusive for card in found] == [False, True, False, True, False]
    assert [card.number for card in found if card.trouble] == [2] and "PROHIBITED" in found[2].trouble


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"NVIDIA-SMI has failed",
        b"[]",
        b'{"gpus": 3}',
        b'{"gpus": [{"uuid": "GPU-a"}]}',
        b'{"gpus": [{',
        b"\xff",
    ],
    ids=repr,
)
def test_garbage_is_no_answer(line: bytes, messages: Messages) -> None:
    with pytest.raises(DriverError) as refused:
        parse_cards(line)
    messages.check(refused.value)


def test_a_driver_that_fails_as_a_whole() -> None:
    with pytest.raises(DriverError, match=r"^RM has detected an NVML/RM version mismatch"):
        parse_cards(b'{"error": "RM has detected an NVML/RM version mismatch."}')


def test_whose_a_process_is() -> None:
    assert process_owner(os.getpid()) == getpass.getuser()
    assert process_owner(2**22 + 1) is None
