"""Parses the answers of `roost.devices.driver.driver_process` into cards, and into their health."""

from __future__ import annotations

import math
import pwd
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from roost.devices.card import Card, CardProcess

_MB = 2**20
_EXCLUSIVE, _PROHIBITED = (1, 3), 2
"""Values of nvmlComputeMode_t: the driver lets one process, or none, compute on the card."""
_MIG_INFIX = " MIG "


class DriverError(Exception):
    """The driver does not report its cards; the text gives the reason."""


class _Memory(msgspec.Struct):
    total: int
    free: int


class _Process(msgspec.Struct):
    pid: int
    used: int | None


class _Slices(msgspec.Struct):
    compute: int
    gpu: int
    memory_mb: int


class _Part(msgspec.Struct, kw_only=True):
    """A MIG instance: the fields that it has in common with a whole card."""

    uuid: str = ""
    name: str = ""
    memory: _Memory | None = None
    processes: list[_Process] | None = None
    slices: _Slices | None = None


class _Gpu(_Part, kw_only=True):
    index: int
    utilization: int | None = None
    temperature: int | None = None
    power_mw: int | None = None
    compute_mode: int | None = None
    parts: list[_Part] | None = None
    error: str = ""


class _Answer(msgspec.Struct):
    gpus: list[_Gpu] = []
    error: str = ""


class CardHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What may slow a card down or falsify its results. None: the driver does not report it."""

    uuid: str
    name: str
    temperature: int | None = None
    """Degrees Celsius."""
    slowdown_temperature: int | None = None
    """From which the card lowers its clock."""
    ecc_errors: int | None = None
    """Uncorrected errors of its memory since the driver was loaded."""
    remap_pending: bool | None = None
    """Whether a part of its memory is to be replaced at the next reset."""
    remap_failed: bool | None = None
    """Whether no spare part is left."""
    persistence: int | None = None
    """1: the driver keeps the card ready while no process uses it."""
    link_width: int | None = None
    """Lanes of PCI Express in use."""
    max_link_width: int | None = None
    slowed_by_power: bool | None = None
    """Whether the power limit lowers its clock now."""
    slowed_by_heat: bool | None = None
    """Whether its temperature lowers its clock now."""
    error: str = ""
    """Why the card does not answer."""


class DriverHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The driver and its cards."""

    gpus: list[CardHealth] = []
    driver: str = ""
    """The version; empty without a driver."""
    cuda: int = 0
    """The newest CUDA that the driver runs: 12040 is 12.4."""
    error: str = ""

    @property
    def cuda_version(self) -> tuple[int, int]:
        """Returns ``(12, 4)``."""
        return self.cuda // 1000, self.cuda % 1000 // 10


def process_owner(pid: int) -> str | None:
    """Returns the user who owns a process; None if the process is not visible from here."""
    try:
        return pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_name
    except (OSError, KeyError):
        return None


def parse_cards(line: bytes, owner: Callable[[int], str | None] = process_owner) -> list[Card]:
    """Returns the cards of one answer of `roost.devices.driver.driver_process`; a card with MIG is replaced
    by its instances.

    Raises:
        DriverError: The answer is malformed, or the driver has failed as a whole.
    """
    answer = _decode(line, _Answer)
    found = [card for gpu in answer.gpus for card in _cards(gpu, owner)]
    return [replace(card, number=number) for number, card in enumerate(found)]


def parse_health(line: bytes) -> DriverHealth:
    """Returns the health of the driver and its cards; without a driver one without a version.

    Raises:
        DriverError: The answer is malformed, or the driver has failed as a whole.
    """
    return _decode(line, DriverHealth)


_AnswerT = TypeVar("_AnswerT", "_Answer", DriverHealth)


def _decode(line: bytes, kind: type[_AnswerT]) -> _AnswerT:
    try:
        found = msgspec.json.decode(line, type=kind)
    except ValueError as error:
        raise DriverError(f"the driver's answer cannot be read ({error})") from None
    if found.error:
        raise DriverError(found.error)
    return found


def _cards(gpu: _Gpu, owner: Callable[[int], str | None]) -> Iterator[Card]:
    """The card, or its MIG instances if it has any: only those can compute then."""
    if gpu.parts is not None:
        for part in gpu.parts:
            yield replace(_card(part, owner), temperature=gpu.temperature, part_of=gpu.uuid)
        return
    yield replace(
        _card(gpu, owner),
        id=gpu.uuid or str(gpu.index),
        utilization=gpu.utilization,
        temperature=gpu.temperature,
        power=gpu.power_mw / 1000 if gpu.power_mw is not None else None,
        trouble=_trouble(gpu),
        exclusive=gpu.compute_mode in _EXCLUSIVE,
    )


def _trouble(gpu: _Gpu) -> str:
    if gpu.error:
        return f"the driver says: {gpu.error}"
    if gpu.compute_mode == _PROHIBITED:
        return "its compute mode is PROHIBITED (nvidia-smi -c DEFAULT opens it)"
    return ""


def _card(part: _Part, owner: Callable[[int], str | None]) -> Card:
    memory = part.memory
    return Card(
        0,
        part.uuid,
        _name(part),
        memory.total // _MB if memory is not None else 0,
        memory.free // _MB if memory is not None else 0,
        tuple(
            CardProcess(one.pid, owner(one.pid), one.used // _MB if one.used is not None else None)
            for one in part.processes or ()
        ),
    )


def _name(part: _Part) -> str:
    """The name with the MIG profile, ``NVIDIA A100 MIG 1g.5gb``; some drivers give only the card's name."""
    if part.slices is None or _MIG_INFIX in part.name:
        return part.name or "a card without a name"
    slices = part.slices
    compute = f"{slices.compute}c." if slices.compute != slices.gpu else ""
    return f"{part.name}{_MIG_INFIX}{compute}{slices.gpu}g.{math.ceil(slices.memory_mb / 1024)}gb"
