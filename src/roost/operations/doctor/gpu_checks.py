"""Checks of the GPUs: the driver, torch's build, each card, and who computes where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from roost.base.text.byte_sizes import format_memory
from roost.base.text.word_list import join_names
from roost.devices import lease_files
from roost.devices.card import Card
from roost.devices.driver.driver_report import CardHealth
from roost.devices.lease_files import CardLease
from roost.operations.doctor.diagnosis import Diagnosis, DoctorSubject, ok, problem, warning
from roost.operations.doctor.driver_facts import DriverFacts
from roost.operations.doctor.torch_check import TorchBuild, probe_torch

_HOT, _VERY_HOT = 84, 90
"""Degrees Celsius, of a card that does not report from which temperature it lowers its clock."""
_FULL_SHARE = 0.1


def read_driver(subject: DoctorSubject) -> DriverFacts:
    """Returns what the driver has reported."""
    return subject.driver


def judge_driver(facts: DriverFacts) -> Iterator[Diagnosis]:
    """Whether the driver is there and reports the cards."""
    if facts.error:
        yield problem(facts.error, "run nvidia-smi; after an update of the driver, restart the machine")
    elif facts.source != "nvml":
        yield warning(
            f"ROOST_DEVICES is {facts.source!r}: {len(facts.cards)} cards, none of them real",
            "unset ROOST_DEVICES to use the machine's own",
        )
    elif facts.cards:
        major, minor = facts.health.cuda_version
        many = "1 GPU" if len(facts.cards) == 1 else f"{len(facts.cards)} GPUs"
        yield ok(f"driver {facts.health.driver or 'without a version'} for CUDA {major}.{minor}, {many}")
    elif facts.bus_gpus:
        yield problem(
            f"{facts.bus_gpus} of NVIDIA's GPUs on the bus, but no driver is loaded, or it is hidden here",
            "install NVIDIA's driver (nvidia-smi must list the GPUs); in a container: docker run --gpus all",
        )
    else:
        yield ok("no GPU of NVIDIA: runs compute on the CPU")
    if facts.cards and facts.visible is not None and facts.source == "nvml":
        if facts.visible.strip() in ("", "-1"):
            yield warning(f"CUDA_VISIBLE_DEVICES is {facts.visible!r}: no GPU is visible", "unset it")
        else:
            yield ok(f"CUDA_VISIBLE_DEVICES leaves {facts.visible}")


@dataclass(frozen=True, kw_only=True)
class TorchFacts:
    """What torch says in a process of its own, and what the driver says."""

    build: TorchBuild
    driver: DriverFacts


def read_torch(subject: DoctorSubject) -> TorchFacts:
    """Imports torch in a child process, with a time limit."""
    return TorchFacts(build=probe_torch(), driver=subject.driver)


def judge_torch(facts: TorchFacts) -> Iterator[Diagnosis]:
    """Whether torch can be imported, fits the driver, and can compute on the cards."""
    build, driver = facts.build, facts.driver
    real = [card for card in driver.cards if driver.source == "nvml"]
    if build.failure:
        yield problem(f"torch cannot be imported: {build.failure}", "install torch again: pip install torch")
        return
    if not real:
        built = (
            f"built for CUDA {build.cuda}"
            if build.cuda
            else f"for the CPU, {build.threads} thread{'s' * (build.threads != 1)}"
        )
        yield ok(f"torch {build.version}, {built}")
        return
    newest = driver.health.cuda_version
    if build.hip is not None:
        yield problem(f"torch {build.version} is for ROCm, and the GPUs are NVIDIA's", _INSTALL)
    elif build.cuda is None:
        yield problem(f"torch {build.version} was built without CUDA: runs compute on the CPU", _INSTALL)
    elif newest[0] and _major(build.cuda) > newest[0]:
        yield problem(
            f"torch {build.version} needs a driver for CUDA {build.cuda}, this one is for CUDA "
            f"{newest[0]}.{newest[1]}",
            f"update the driver, or install a build for CUDA {newest[0]}: see pytorch.org",
        )
    elif not build.available:
        fix = "run nvidia-smi; unset CUDA_VISIBLE_DEVICES; load the module nvidia_uvm (modprobe nvidia_uvm)"
        yield problem(f"torch {build.version} sees no GPU: {build.error or 'it says no reason'}", fix)
    elif old := [gpu for gpu in build.gpus if not _is_built_for(gpu.capability, build.architectures)]:
        named = f"{old[0].name} (sm_{old[0].capability[0]}{old[0].capability[1]})"
        yield problem(f"torch {build.version} was not built for {named}", _INSTALL)
    elif build.error:
        yield problem(f"torch {build.version} cannot compute on the GPU: {build.error}", _INSTALL)
    else:
        many = "1 GPU" if len(build.gpus) == 1 else f"{len(build.gpus)} GPUs"
        yield ok(f"torch {build.version}, built for CUDA {build.cuda}, has computed on {many}")


_INSTALL = "install a build for the driver's CUDA: pip install torch --index-url https://download.pytorch.org/whl/cu126"


def _is_built_for(capability: tuple[int, int], architectures: Sequence[str]) -> bool:
    """Whether torch has code for a GPU: machine code of its generation (sm_80 runs on 8.6), or code that the
    driver compiles (compute_80 runs on all newer ones)."""
    for one in architectures:
        kind, _, number = one.rstrip("af").partition("_")
        if not number.isdecimal():
            continue
        built = int(number[:-1]), int(number[-1])
        if built <= capability and (kind == "compute" or built[0] == capability[0]):
            return True
    return not architectures


def _major(version: str) -> int:
    return int(version.split(".")[0])


def judge_cards(facts: DriverFacts) -> Iterator[Diagnosis]:
    """Whether each card works, is cool, has free memory, and does not falsify results."""
    health = {one.uuid: one for one in facts.health.gpus}
    for card in facts.cards:
        found = list(_judge_card(card, health.get(card.part_of or card.id)))
        yield from found or [ok(_describe(card))]


def _describe(card: Card) -> str:
    heat = f", {card.temperature} °C" if card.temperature is not None else ""
    free = f", {format_memory(card.free_mb)} of {format_memory(card.total_mb)} free" if card.total_mb else ""
    return f"GPU {card.number} {card.name}{free}{heat}"


def _judge_card(card: Card, health: CardHealth | None) -> Iterator[Diagnosis]:
    name = f"GPU {card.number} {card.name}"
    if card.trouble:
        yield problem(f"{name}: {card.trouble}", "run nvidia-smi; reset the card or restart the machine")
    yield from _judge_heat(card, health, name)
    if card.total_mb and card.free_mb < _FULL_SHARE * card.total_mb:
        users = join_names([str(user) for user in card.users]) or "a process that is not visible from here"
        free = f"{format_memory(card.free_mb)} of {format_memory(card.total_mb)} free"
        yield warning(f"{name}: {free}; used by {users}", "wait for its end, or use another card")
    if health is None:
        return
    if health.error:
        yield problem(f"{name}: {health.error}", "run nvidia-smi; reset the card or restart the machine")
    if health.ecc_errors:
        yield problem(
            f"{name}: {health.ecc_errors} uncorrected errors of its memory since the driver was loaded",
            "end its processes and reset it: nvidia-smi -r; replace the card if errors come back",
        )
    if health.remap_failed:
        yield problem(f"{name}: damaged memory that cannot be remapped", "replace the card")
    elif health.remap_pending:
        yield warning(f"{name}: damaged memory is remapped at the next reset", "nvidia-smi -r")
    if health.slowed_by_power:
        yield warning(
            f"{name}: the power limit lowers its clock", "see nvidia-smi -q -d POWER; raise it: -pl"
        )
    if health.link_width and health.max_link_width and health.link_width < health.max_link_width:
        yield warning(
            f"{name}: {health.link_width} of {health.max_link_width} lanes of PCI Express are in use",
            "copies to it are slower: seat the card again, or use another slot",
        )
    if health.persistence == 0:
        yield warning(f"{name}: the driver unloads it when idle; each start takes longer", "nvidia-smi -pm 1")


def _judge_heat(card: Card, health: CardHealth | None, name: str) -> Iterator[Diagnosis]:
    cool = "clean its fans and filters, or lower its power limit: nvidia-smi -pl WATTS"
    limit = health.slowdown_temperature if health is not None else None
    if health is not None and health.slowed_by_heat:
        yield warning(f"{name}: its temperature lowers its clock ({card.temperature} °C)", cool)
    elif card.temperature is not None and card.temperature >= (limit or _VERY_HOT):
        yield problem(f"{name}: {card.temperature} °C", cool)
    elif card.temperature is not None and card.temperature >= (limit - 5 if limit else _HOT):
        yield warning(f"{name}: {card.temperature} °C", cool)


@dataclass(frozen=True, kw_only=True)
class SharingFacts:
    """The users of each card: by leases, and as processes."""

    cards: Sequence[Card] = ()
    leases: Mapping[str, Sequence[CardLease]] = field(default_factory=dict)
    """The live leases by the card's id."""
    foreign: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The processes without a lease, as text, by the card's id."""


def read_sharing(subject: DoctorSubject) -> SharingFacts:
    """Reads the leases of the cards, and the processes that have none."""
    from roost.lab.scheduling.scheduler import without_leased_processes

    cards = subject.driver.cards
    leases = {card.id: lease_files.live_leases(card.id) for card in cards}
    foreign = {
        card.id: [str(user) for user in without_leased_processes(card, leases[card.id]).users]
        for card in cards
    }
    return SharingFacts(cards=cards, leases=leases, foreign=foreign)


def judge_sharing(facts: SharingFacts) -> Iterator[Diagnosis]:
    """Whether two runs, or a run and another program, share a card."""
    for card in facts.cards:
        leases, foreign = facts.leases.get(card.id, ()), facts.foreign.get(card.id, ())
        name = f"GPU {card.number}"
        whole = [lease for lease in leases if lease.record.mb is None]
        if len(leases) > 1 and whole:
            who = join_names([str(lease) for lease in leases])
            yield problem(f"{name}: several runs, one of which has the whole card: {who}", "stop one of them")
        elif leases and foreign:
            yield warning(
                f"{name}: {join_names(list(foreign))} without a lease, on the card of {leases[0]}",
                "both are slower, and may run out of memory: end one, or start it by `roost lease`",
            )
        elif len(foreign) > 1:
            yield warning(
                f"{name}: {len(foreign)} processes share it: {join_names(list(foreign))}",
                "start them by `roost submit` or `roost lease`, which give each its own",
            )
        elif leases:
            yield ok(f"{name}: {join_names([str(lease) for lease in leases])}")
        else:
            yield ok(f"{name}: {f'used by {foreign[0]}' if foreign else 'free'}")
