"""Reads the cards, their holders and the samples of the machine."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from roost.base.errors import RoostError
from roost.devices import inventory, lease_files
from roost.devices.card import Card, CardProcess
from roost.devices.sampling import sample_ring
from roost.devices.sampling.host_counters import HostCounters
from roost.devices.sampling.machine_columns import HOST, HOST_COLUMNS
from roost.devices.sampling.sample_ring import LiveSamples, MachineSample, RingHeader
from roost.lab.policy.policy_state import OtherLease, Rules
from roost.lab.queue.task import Task
from roost.operations.devices import devices
from roost.operations.devices.device_list import CardStatus, DeviceList
from roost.operations.live_lab.lab_change import (
    CardReading,
    CardSamples,
    CardsChange,
    HostReading,
    LabChange,
)

_INVENTORY_SECONDS = 2.0
"""How often the driver is asked for the cards and their processes."""
_FIRST_ANSWER_SECONDS = 0.02
"""How long the first call waits for the cards: without a driver, or with simulated cards, it has them."""


class InventoryReader:
    """Reads the cards in a thread of its own, again and again: a driver that hangs must delay nothing
    else."""

    def __init__(self) -> None:
        self.cards: Sequence[Card] = ()
        self.trouble = ""
        """Why the cards cannot be read; empty: they can."""
        self.reads = 0
        """How often they were read."""
        self._has_read, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="inventory", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Waits for the first answer."""
        self._has_read.wait(seconds)

    def close(self) -> None:
        """Ends the thread; does not wait for a driver that hangs."""
        self._stop.set()

    def _run(self) -> None:
        try:
            with inventory.open_inventory() as read:
                while not self._stop.is_set():
                    try:
                        self.cards, self.trouble = read(), ""
                    except RoostError as error:
                        self.cards, self.trouble = (), str(error)
                    self.reads += 1
                    self._has_read.set()
                    self._stop.wait(_INVENTORY_SECONDS)
        except RoostError as error:
            self.trouble = str(error)
            self._has_read.set()


class CardWatch:
    """Follows the cards of this machine."""

    def __init__(self) -> None:
        self._inventory = InventoryReader()
        self._samples = LiveSamples(str(lease_files.leases_folder() / lease_files.SAMPLES_FOLDER))
        self._host = HostCounters()
        self._host.sample()  # the first call has no rates
        self._sent: DeviceList | None = None
        self._reads_sampled = 0
        self.devices: DeviceList | None = None
        """The newest list; None before the first."""
        self._listed_cards: Sequence[Card] = ()
        self._is_first = True

    @property
    def cards(self) -> Sequence[Card]:
        """The cards as the driver reported them last; none before its first answer."""
        return self._inventory.cards

    def changes(self, rules: Rules, live: Sequence[Task], short: Mapping[str, str]) -> Iterator[LabChange]:
        """Yields the list of devices if something but the values of samples has changed, and the new samples.

        Args:
            rules: Of the lab.
            live: The live tasks of the lab.
            short: The shortest unique prefixes of their ids.
        """
        if self._is_first:
            self._is_first = False
            self._inventory.wait(_FIRST_ANSWER_SECONDS)
        cards = self.cards  # another thread replaces them
        try:
            self.devices = devices.list_devices(cards, rules, live, short)
        except (RoostError, OSError):  # the leases cannot be read now
            return
        self._listed_cards = cards
        comparable = _without_samples(self.devices)
        if comparable != self._sent:
            self._sent = comparable
            yield CardsChange(self.devices)
        yield from self._new_samples(self.devices)

    def _new_samples(self, listed: DeviceList) -> Iterator[CardSamples]:
        found = self._samples.new()
        header = self._samples.header
        load = listed.host.busy_cores
        if found and header is not None:
            for sample in found:
                yield _from_ring(header, sample, load)
        elif self._samples.missed_seconds() and self._inventory.reads != self._reads_sampled:
            # No session runs, so no process samples the machine.
            self._reads_sampled = self._inventory.reads
            values = dict(zip(HOST_COLUMNS, self._host.sample(), strict=False))
            host = HostReading(cpu=values["cpu"], memory_mb=values["memory_mb"], load=load)
            cards = [_from_status(one) for one in listed.cards]
            yield CardSamples(at=time.time(), cards=cards, host=host, trouble=self._inventory.trouble)

    def send_again(self) -> None:
        """Makes the next call of `changes` yield the list of devices in any case."""
        self._sent = None

    def without_leased_processes(self) -> list[Card]:
        """Returns the cards with only the processes whose user holds no lease, as the policy takes them."""
        listed = [] if self.devices is None else self.devices.cards
        found = []
        for card, status in zip(self._listed_cards, listed, strict=False):
            users = tuple(CardProcess(one.pid, one.user, one.mb) for one in status.processes)
            found.append(replace(card, users=users, trouble=status.trouble))
        return found

    def other_leases(self) -> dict[str, list[OtherLease]]:
        """Returns the leases that no task of this lab holds, by card."""
        listed = [] if self.devices is None else self.devices.cards
        return {one.id: [OtherLease(lease.user, lease.mb) for lease in one.leases] for one in listed}

    def close(self) -> None:
        """Releases the files and ends the thread."""
        self._inventory.close()
        self._samples.close()
        self._host.close()


def _without_samples(listed: DeviceList) -> DeviceList:
    """Returns a list without the values that change with each sample."""
    cards = [
        msgspec.structs.replace(one, free_mb=0, utilization=None, temperature=None, power=None)
        for one in listed.cards
    ]
    host = msgspec.structs.replace(listed.host, busy_cores=None, memory_used_mb=None)
    return msgspec.structs.replace(listed, cards=cards, host=host)


def _from_status(card: CardStatus) -> CardReading:
    return CardReading(
        id=card.id,
        utilization=card.utilization,
        memory_mb=card.total_mb - card.free_mb if card.total_mb else None,
        power=card.power,
        temperature=card.temperature,
    )


def _from_ring(header: RingHeader, sample: MachineSample, load: float | None) -> CardSamples:
    values = {
        name: None if math.isnan(value) else round(value, 1)
        for name, value in zip(header.columns(), sample.values, strict=False)
    }
    return CardSamples(
        at=sample.time,
        cards=[
            CardReading(
                id=card["id"],
                utilization=values.get(f"{card['id']}/utilization"),
                memory_mb=values.get(f"{card['id']}/memory_mb"),
                power=values.get(f"{card['id']}/power"),
                temperature=values.get(f"{card['id']}/temperature"),
            )
            for card in header.cards
        ],
        host=HostReading(cpu=values.get(f"{HOST}/cpu"), memory_mb=values.get(f"{HOST}/memory_mb"), load=load),
        trouble=sample_ring.STATES[sample.state],
    )
