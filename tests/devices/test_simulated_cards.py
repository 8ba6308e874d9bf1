"""Cards that are not there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from roost.base import durable
from roost.base.errors import ConfigError, NotFound, UsageError
from roost.devices import simulated_cards
from roost.devices.card import Card, CardProcess
from roost.devices.simulated_cards import (
    SimulatedFailure,
    SimulatedProcess,
    SimulationScenario,
    cards_at,
    parse_cards,
)
from tests.messages import Messages

GB = 1024


def test_how_many_of_how_much_of_what() -> None:
    assert parse_cards("2x80GB:H100,1x512MB", setting="--cards") == [
        Card(0, "SIM-0", "H100", 80 * GB, 80 * GB),
        Card(1, "SIM-1", "H100", 80 * GB, 80 * GB),
        Card(2, "SIM-2", "simulated", 512, 512),
    ]
    assert [card.total_mb for card in parse_cards("1x1.5GB:RTX 4090, 1x2GB", setting="x")] == [1536, 2048]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4",
        "4x",
        "0x24GB",
        "4x0GB",
        "4x24",
        "4x24TB",
        "-1x24GB",
        "4x24GB,",
        "4x24GB:",
        "6000x1GB,6000x1GB",
    ],
)
def test_what_is_no_number_of_cards(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_cards(text, setting="--cards")
    assert refused.value.setting == "--cards" and "4x24GB" in str(refused.value)


def test_processes_come_and_go() -> None:
    ann = SimulatedProcess(card="SIM-1", pid=7, user="ann", memory="10GB", begin=60, end=600)
    unknown = SimulatedProcess(card="SIM-1", pid=8)
    scenario = SimulationScenario(cards="2x24GB", start=1000.0, processes=[ann, unknown])

    def seen(now: float) -> tuple[int, list[int]]:
        other, card = cards_at(scenario, now)
        assert other == Card(0, "SIM-0", "simulated", 24 * GB, 24 * GB)
        return card.free_mb, [user.pid for user in card.users]

    assert seen(1059.9) == (24 * GB, [8])
    assert seen(1060.0) == (14 * GB, [7, 8])
    assert seen(1600.0) == (24 * GB, [8])
    assert cards_at(scenario, 1100.0)[1].users == (CardProcess(7, "ann", 10 * GB), CardProcess(8, None, None))


def test_no_memory_is_less_than_none() -> None:
    both = [SimulatedProcess(card="SIM-0", pid=pid, memory="20GB") for pid in (1, 2)]
    (card,) = cards_at(SimulationScenario(cards="1x24GB", processes=both), 0.0)
    assert card.free_mb == 0 and len(card.users) == 2


def test_a_card_fails_and_is_well_again() -> None:
    busy = SimulatedProcess(card="SIM-0", pid=7, memory="1GB")
    lost = SimulatedFailure(card="SIM-0", begin=5, end=10, trouble="ECC error")
    scenario = SimulationScenario(cards="1x24GB:H100", processes=[busy], failures=[lost])
    before, failed, after = (cards_at(scenario, now)[0] for now in (4.0, 5.0, 10.0))
    assert failed == Card(0, "SIM-0", "H100", 24 * GB, 0, trouble=failed.trouble)
    assert failed.trouble.endswith(": ECC error")
    assert before == after and before.trouble == "" and before.free_mb == 23 * GB


def test_the_same_time_gives_the_same(tmp_path: Path) -> None:
    file = tmp_path / "lab.json"
    scenario = SimulationScenario(cards="1x24GB", processes=[SimulatedProcess(card="SIM-0", pid=7, begin=5)])
    file.write_bytes(msgspec.json.encode(scenario))
    read = simulated_cards.cards(str(file), 5.0, setting="ROOST_DEVICES")
    assert read == cards_at(scenario, 5.0) != simulated_cards.cards(str(file), 4.0, setting="ROOST_DEVICES")


def test_a_file_may_change_while_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "lab.json"
    for number in (1, 3):
        durable.write(file, msgspec.json.encode(SimulationScenario(cards=f"{number}x24GB")))
        assert len(simulated_cards.cards(str(file), 0.0, setting="ROOST_DEVICES")) == number


def test_the_scenario_of_the_docs() -> None:
    """The module contains the same text."""
    page = Path(__file__).parents[2].joinpath("docs", "devices.md").read_text()
    (shown,) = (block.partition("```")[0] for block in page.split("```json\n")[1:])
    scenario = msgspec.json.decode(shown, type=SimulationScenario)
    assert [card.name for card in cards_at(scenario, scenario.start)] == [
        "H100",
        "H100",
        "RTX4090",
        "RTX4090",
    ]
    assert simulated_cards.__doc__ is not None
    written = simulated_cards.__doc__.partition("::\n\n")[2].partition("\n\n")[0]
    assert msgspec.json.decode(written, type=SimulationScenario) == scenario


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", r"lab\.json.*docs/devices\.md"),
        ("[]", "Expected `object`"),
        ('{"processes": []}', "missing required field `cards`"),
        ('{"cards": "1x24GB", "card": 1}', "unknown field `card`"),
        ('{"cards": "1x24GB", "start": "now"}', r"Expected `float`.*\$\.start"),
        (
            '{"cards": "1x24GB", "failures": [{"card": "SIM-1"}]}',
            r"failures\[0\]\.card: .*'SIM-1' \(at .*lab\.json\).*SIM-0",
        ),
        (
            '{"cards": "1x24GB", "processes": [{"card": "SIM-0", "pid": 1, "begin": 5, "end": 5}]}',
            r"processes\[0\]\.end: .*\b5\.0",
        ),
        (
            '{"cards": "1x24GB", "processes": [{"card": "SIM-0", "pid": 1, "memory": "much"}]}',
            r"processes\[0\]\.memory: .*'much'",
        ),
    ],
)
def test_what_is_no_scenario(text: str, says: str, tmp_path: Path, messages: Messages) -> None:
    file = tmp_path / "lab.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says) as refused:
        simulated_cards.cards(str(file), 0.0, setting="ROOST_DEVICES")
    messages.check(refused.value)


def test_cards_of_a_scenario_that_mean_nothing(tmp_path: Path, messages: Messages) -> None:
    file = tmp_path / "lab.json"
    file.write_text('{"cards": "many"}')
    with pytest.raises(UsageError, match="'many'") as refused:
        simulated_cards.cards(str(file), 0.0, setting="ROOST_DEVICES")
    assert refused.value.setting == "cards" and "lab.json" in str(refused.value)
    messages.check(refused.value)


def test_a_scenario_that_is_not_there(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        simulated_cards.cards(str(tmp_path / "lab.json"), 0.0, setting="ROOST_DEVICES")
    assert refused.value.setting == "ROOST_DEVICES" and "lab.json" in str(refused.value)
    messages.check(refused.value)
    with pytest.raises(NotFound):
        simulated_cards.cards("lab.json", 0.0, setting="ROOST_DEVICES")
    with pytest.raises(ConfigError) as refused:
        simulated_cards.cards(str(tmp_path), 0.0, setting="ROOST_DEVICES")
    messages.check(refused.value)
