"""Simulated cards, for trying out the lab without GPUs: described by a short text or by a scenario file.

``sim:4x24GB``, ``sim:2x80GB:H100,2x24GB:RTX4090``: the number of cards, the memory of each, the model. Their
ids are SIM-0, SIM-1 and so on. ``sim:/folder/scenario.json`` is a file that is read each time; replace it by
one rename to change it during a run::

    {
      "start": 1795160000,
      "cards": "2x80GB:H100,2x24GB:RTX4090",
      "processes": [{"card": "SIM-0", "pid": 4711, "user": "ann", "memory": "10GB", "begin": 60, "end": 600}],
      "failures": [{"card": "SIM-3", "trouble": "GPU is lost", "begin": 30}],
      "loads": [{"card": "SIM-0", "utilization": 90, "power": 310.5, "temperature": 61, "begin": 60}]
    }

Times are seconds after ``start``; without ``start`` they are Unix seconds. An entry without ``begin`` was
always there, one without ``end`` stays. The processes are foreign ones: those that roost itself starts do not
appear here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from roost.base import safe_read
from roost.base.errors import ConfigError, NotFound, UsageError
from roost.base.text.word_list import join_names
from roost.devices.card import Card, CardProcess

MAX_CARDS = 10_000

_MEMORY = re.compile(r"(\d{1,7}(?:\.\d+)?)(GB|MB)")
_GROUP = re.compile(rf"(\d{{1,5}})x({_MEMORY.pattern})(?::([\w .-]+))?")
_MB_OF = {"GB": 1024, "MB": 1}


class SimulatedProcess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A foreign process on a card of a scenario."""

    card: str
    pid: int
    user: str | None = None
    memory: str | None = None
    begin: float | None = None
    end: float | None = None


class SimulatedFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A time in which a card of a scenario does not work."""

    card: str
    trouble: str = "GPU is lost"
    begin: float | None = None
    end: float | None = None


class SimulatedLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A time in which a card of a scenario computes: per cent, W and degrees Celsius."""

    card: str
    utilization: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    power: Annotated[float, msgspec.Meta(ge=0)] | None = None
    temperature: int | None = None
    begin: float | None = None
    end: float | None = None


SimulatedEvent = SimulatedProcess | SimulatedFailure | SimulatedLoad


class SimulationScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a scenario file: the cards, the processes on them, their failures and their loads."""

    cards: str
    start: float = 0.0
    processes: list[SimulatedProcess] = []
    failures: list[SimulatedFailure] = []
    loads: list[SimulatedLoad] = []


def cards(text: str, now: float, *, setting: str) -> list[Card]:
    """Returns the simulated cards at a time.

    Args:
        text: The text after ``sim:``: a description of cards, or the path of a scenario file.
        now: Unix seconds.
        setting: The variable or option that contains the text, for messages.

    Raises:
        UsageError: The text has an unknown form.
        NotFound: The file does not exist.
        ConfigError: The file does not hold a scenario.
    """
    if "/" not in text and not text.endswith(".json"):
        return parse_cards(text, setting=setting)
    path = Path(text)
    return cards_at(read_scenario(path, setting=setting), now, where=path)


def parse_cards(text: str, *, setting: str, where: object | None = None) -> list[Card]:
    """Returns the cards that a text such as ``2x80GB:H100,2x24GB`` describes, without processes.

    Raises:
        UsageError: The text has another form, or describes no card, or more than `MAX_CARDS`.
    """
    found: list[Card] = []
    for group in text.split(","):
        parts = _GROUP.fullmatch(group.strip())
        count, total_mb = (int(parts[1]), _mb(parts[2])) if parts else (0, 0)
        if parts is None or count < 1 or total_mb < 1 or len(found) + count > MAX_CARDS:
            raise UsageError(
                f"{group.strip()!r} does not give a number of cards and the memory of each",
                setting=setting,
                received=text,
                where=where,
                fix=f"write 4x24GB, or 2x80GB:H100,2x24GB:RTX4090: at most {MAX_CARDS:,} cards",
            )
        for number in range(len(found), len(found) + count):
            found.append(Card(number, f"SIM-{number}", parts[5] or "simulated", total_mb, total_mb))
    return found


def read_scenario(path: Path, *, setting: str) -> SimulationScenario:
    """Reads a scenario file.

    Raises:
        NotFound: The file does not exist.
        ConfigError: The file cannot be read, or does not hold a scenario.
    """
    try:
        return msgspec.json.decode(safe_read.read(path), type=SimulationScenario)
    except FileNotFoundError:
        raise NotFound("there is no such file", setting=setting, received=str(path)) from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the scenario cannot be read: {error}", where=path, fix="docs/devices.md shows one"
        ) from None


def cards_at(scenario: SimulationScenario, now: float, *, where: object | None = None) -> list[Card]:
    """Returns the cards of a scenario at a time, a pure function of both.

    Args:
        scenario: The scenario.
        now: Unix seconds.
        where: The file of the scenario, for messages.

    Raises:
        UsageError: ``cards`` has a form that `parse_cards` does not know.
        ConfigError: An entry names a card that does not exist, or contradicts itself.
    """
    found = {card.id: card for card in parse_cards(scenario.cards, setting="cards", where=where)}
    at = now - scenario.start
    for index, process in enumerate(scenario.processes):
        _check(process, f"processes[{index}]", found, where)
        used_mb = _mb(process.memory) if process.memory is not None else None
        if used_mb == 0:
            raise ConfigError(
                "not an amount of memory",
                setting=f"processes[{index}].memory",
                received=process.memory,
                where=where,
                fix='write "10GB", or leave it out if it is unknown',
            )
        if _is_active(process, at):
            card, user = found[process.card], CardProcess(process.pid, process.user, used_mb)
            free_mb = max(0, card.free_mb - (used_mb or 0))
            found[card.id] = replace(card, free_mb=free_mb, users=(*card.users, user))
    for index, load in enumerate(scenario.loads):
        _check(load, f"loads[{index}]", found, where)
        if _is_active(load, at):
            found[load.card] = replace(
                found[load.card],
                utilization=load.utilization,
                power=load.power,
                temperature=load.temperature,
            )
    for index, failure in enumerate(scenario.failures):
        _check(failure, f"failures[{index}]", found, where)
        if _is_active(failure, at):
            found[failure.card] = replace(
                found[failure.card], free_mb=0, users=(), trouble=f"the driver says: {failure.trouble}"
            )
    return list(found.values())


def _check(event: SimulatedEvent, key: str, found: Mapping[str, Card], where: object | None) -> None:
    if event.card not in found:
        raise ConfigError(
            "there is no such card",
            setting=f"{key}.card",
            received=event.card,
            where=where,
            fix=f"name one of {join_names(list(found))}",
        )
    if event.begin is not None and event.end is not None and event.end <= event.begin:
        raise ConfigError(
            f"it ends before it begins, at {event.begin:g}",
            setting=f"{key}.end",
            received=event.end,
            where=where,
            fix="write a later end, or leave it out",
        )


def _is_active(event: SimulatedEvent, at: float) -> bool:
    return (event.begin is None or event.begin <= at) and (event.end is None or at < event.end)


def _mb(text: str) -> int:
    """The megabytes of ``10GB`` or ``512MB``; 0 for any other text."""
    parts = _MEMORY.fullmatch(text)
    return int(float(parts[1]) * _MB_OF[parts[2]]) if parts else 0
