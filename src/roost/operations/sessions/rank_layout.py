"""The layout of a session: how many ranks, on which devices; planned and checked before anything is made.

`plan_ranks` plans a session that starts now, and chooses its cards. `queued_ranks` plans the session of a
task, which the lab starts later on cards of its choice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from roost.base.errors import ConfigError, Refused, UsageError
from roost.base.system import cpu_cores
from roost.base.system.worker_protocol import THREADS_VARIABLE
from roost.base.text.counts import format_cores
from roost.config import conflicts
from roost.config.dlnest.dlnest_settings import SECTION
from roost.config.run_settings import Devices, RunSettings
from roost.config.settings import Settings, Where
from roost.devices import device_types, inventory, visible_cards
from roost.devices.card import Card
from roost.devices.resource_request import TaskOptions
from roost.operations.sessions.foreground_lease import prefer_free
from roost.package import sessions
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.session_schema import SessionRequest
from roost.package.setting_locations import override_key

COMMAND_LINE = "command line"
_HOST_AND_PORT = re.compile(r"(\S+):(\d{1,5})")
_HIGHEST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class RankRequest:
    """A request for devices and ranks, and for automatic restarts."""

    devices: Devices | None = None
    """A number of devices, a list of device numbers, or auto; None: from the settings, or as in the session
    before."""
    strategy: str | None = None
    """single, ddp or fsdp; None: from the settings, or as in the session before."""
    num_nodes: int = 1
    """The number of machines that train together."""
    rendezvous: str | None = None
    """HOST:PORT of the rendezvous: the first machine, and a port that is free there."""
    memory_mb: int | None = None
    """The memory of each card that the session takes, in MB; None: whole cards."""
    cores: int | None = None
    """The CPU cores of the session; None: all."""
    host_memory_mb: int | None = None
    """The memory of the machine that its processes may use together, in MB; None: no limit."""
    restart: int = 0
    """How many times in a row the next session may start automatically after a failure."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where devices and strategy were set, if not on the command line."""
    num_nodes_before: int = 1
    """The number of machines of the session before."""


@dataclass(frozen=True)
class RankLayout:
    """The planned ranks of a session."""

    request: SessionRequest
    """The part of the session's request about devices and ranks."""
    notes: list[str]
    """Notes for the user, one line each."""


def with_previous_layout(ranks: RankRequest, package: PackageFolder, overrides: Sequence[str]) -> RankRequest:
    """Returns the request with the devices and the strategy of the newest session in effect, unless the
    caller or an override of the coming session sets them.

    Args:
        ranks: The request of the caller.
        package: The package that continues.
        overrides: The overrides of the coming session.
    """
    session = next(
        (one for one in reversed(sessions.in_effect(package.path)) if "strategy" in one.request), None
    )
    if session is None:
        return ranks
    kind = PackageKind.of(package.request)
    changed = [override_key(text, kind) for text in overrides]
    section = f"{SECTION}." if kind is PackageKind.DLNEST else ""
    is_new = {
        key: section + key in changed or getattr(ranks, key) is not None for key in ("devices", "strategy")
    }
    # With one device, "single" was not chosen by the user, so it is not kept for several devices.
    if is_new["devices"] and session.request.strategy == "single":
        is_new["strategy"] = True
    found: dict[str, Any] = {key: session.request.get(key) for key, new in is_new.items() if not new}
    sources = dict.fromkeys(found, f"session {session.number}")
    num_nodes_before = int(session.request.num_nodes)
    return replace(ranks, **found, sources=sources, num_nodes_before=num_nodes_before)


def previous_device(package: PackageFolder) -> str:
    """Returns the device that the newest session in effect requested."""
    devices = [session.request.get("device") for session in sessions.in_effect(package.path)]
    return str(next(filter(None, reversed(devices)), "auto"))  # a Python program requests none


def plan_ranks(
    ranks: RankRequest, settings: RunSettings, *, device: str, terminal: str, where: Where
) -> RankLayout:
    """Returns the number of ranks and their devices.

    Args:
        ranks: The request of the caller, completed from the session before.
        settings: The effective settings.
        device: auto, cpu, cuda, mps or xpu.
        terminal: The terminal that the session has for itself; empty if none.
        where: Returns where a dotted key was set, for messages.

    Raises:
        UsageError: Options contradict each other.
        ConfigError: A setting does not work with several ranks.
        Refused: This machine does not have these devices.
    """
    _check_nodes(ranks)
    if ranks.cores is not None and ranks.cores > (has := cpu_cores.usable_cores()):
        what = f"this machine has {format_cores(has)} for it"
        raise Refused(what, setting="--cpus", received=ranks.cores, fix="request less, or leave it out")
    choice = _LayoutChoice(ranks, settings, device, where)
    if choice.strategy == "single":
        return _one_process(choice)
    kind, chosen, count = _rank_devices(choice)
    world, notes = count * ranks.num_nodes, []
    if world == 1:
        notes.append(
            f"strategy {choice.strategy} has one device: one process is started, as without the strategy"
        )
    else:
        _check_ranks(settings, choice.strategy, world, where)
        _check_several(settings, kind, terminal, where)
        notes += _layout_notes(choice, kind, chosen, count)
    if ranks.num_nodes == 1 < (before := ranks.num_nodes_before):
        again = f"--num-nodes {before} --rendezvous HOST:PORT"
        notes.append(f"one machine; the session before had {before}; to use {before} again add {again}")
    return RankLayout(choice.request(kind, chosen, count), [*notes, *_sync_notes(settings, world)])


def queued_ranks(
    options: TaskOptions, settings: RunSettings, *, devices: Devices, where: Where
) -> SessionRequest:
    """Returns the part of a session's request about devices and ranks, for a task; the lab chooses the cards.

    Args:
        options: The options of the task, with a known number of cards.
        settings: The effective settings.
        devices: The number of processes on the CPU.
        where: Returns where a dotted key was set, for messages.

    Raises:
        UsageError: Options contradict each other.
        ConfigError: A setting does not work with several ranks.
    """
    on_cpu = 1 if devices == "auto" or isinstance(devices, list) else int(devices)
    count = options.gpus or on_cpu
    strategy = options.strategy or settings.strategy or ("ddp" if count > 1 else "single")
    if strategy == "single" and not options.gpus and count > 1:
        raise UsageError("strategy single has one process", fix="leave it out, or request one device")
    world = 1 if strategy == "single" else count
    if world > 1:
        _check_ranks(settings, strategy, world, where)
    on_cards = options.gpus and not inventory.is_simulated()
    device = device_types.CARDS if on_cards else device_types.CPU
    request = RankRequest(cores=options.cpus, host_memory_mb=options.host_memory_mb)
    return _request_fields(request, device, devices=count, cards=None, strategy=strategy, ranks=world)


def one_process_notes(settings: RunSettings, *, device: str, where: Where) -> list[str]:
    """Returns notes for the user if one process does work that the run would divide among several ranks, or
    if the run could not start on this machine; no notes for a run with one process.

    Raises:
        ConfigError: A setting does not work with several ranks.
    """
    try:
        request = plan_ranks(RankRequest(), settings, device=device, terminal="", where=where).request
    except (Refused, UsageError) as error:
        return [f"the run itself could not start here: {error}"]
    return several_ranks_note(request, "the run itself has {}; here one process does the work of all")


def several_ranks_note(request: SessionRequest, text: str) -> list[str]:
    """Returns ``text`` with the ranks of a session, such as ``3 ranks (ddp)``, in place of ``{}``; no note
    for one rank."""
    world = request.ranks * request.num_nodes
    return [text.format(f"{world} ranks ({request.strategy})")] if world > 1 else []


def cards_of_this_machine(request: SessionRequest, settings: RunSettings) -> list[str] | None:
    """Returns the ids of the GPUs that this machine uses for a session that was started on another one; None:
    all that are visible.

    Raises:
        Refused: This machine does not have that many, or not these.
    """
    if request.device != device_types.CARDS:
        return None
    ranks = RankRequest(devices=request["devices"], strategy=request.strategy)
    if ranks.devices == "auto":  # on the first machine: all
        ranks = replace(ranks, devices=request.ranks)
    choice = _LayoutChoice(ranks, settings, device_types.CARDS, lambda key: None)
    return [card.id for card in _choose_cards(choice, _available_cards(choice))]


def rank_environments(request: SessionRequest, settings: RunSettings) -> tuple[dict[str, str], ...]:
    """Returns what is added to the environment of each rank of this machine; empty for one process.

    Without a limit of threads each rank would use all CPU cores.
    """
    count = request.ranks
    if count * request.num_nodes == 1:
        return ()
    if settings.threads != "auto":
        threads = str(settings.threads)
    else:
        cores = request.cores or cpu_cores.usable_cores()
        threads = os.environ.get(THREADS_VARIABLE) or str(max(1, cores // count))
    return tuple({THREADS_VARIABLE: threads} for _ in range(count))


class _LayoutChoice:
    """The requested devices and strategy, from the command line, the session before, or the settings."""

    def __init__(self, ranks: RankRequest, settings: RunSettings, device: str, where: Where) -> None:
        self.ranks, self.settings, self.device = ranks, settings, device
        self.devices: Devices = settings.devices if ranks.devices is None else ranks.devices
        is_own = ranks.devices is None
        self.where = where(settings.key("devices")) if is_own else ranks.sources.get("devices", COMMAND_LINE)
        default = "ddp" if self.are_several or ranks.num_nodes > 1 else "single"
        self.strategy = ranks.strategy or settings.strategy or default

    @property
    def are_several(self) -> bool:
        """Whether more than one device is requested."""
        number = len(self.devices) if isinstance(self.devices, list) else self.devices
        return number != "auto" and int(number) > 1

    def request(self, kind: str, chosen: Sequence[Card] | None, count: int) -> SessionRequest:
        """Returns the part of the session's request about devices and ranks."""
        cards = [card.id for card in chosen] if chosen is not None else None
        return _request_fields(
            self.ranks, kind, devices=self.devices, cards=cards, strategy=self.strategy, ranks=count
        )

    def refused(self, message: str, fix: str) -> Refused:
        return Refused(
            message, setting=self.settings.key("devices"), received=self.devices, where=self.where, fix=fix
        )


def _request_fields(
    request: RankRequest,
    device: str,
    *,
    devices: Devices,
    cards: list[str] | None,
    strategy: str,
    ranks: int,
) -> SessionRequest:
    """Returns the fields of a session's request about devices and ranks."""
    found = SessionRequest(
        device=device,
        devices=devices,
        cards=cards,
        strategy=strategy,
        ranks=ranks,
        num_nodes=request.num_nodes,
        rendezvous=request.rendezvous,
        restart=request.restart,
    )
    if request.memory_mb is not None:
        found.reserved_mb = request.memory_mb
    if request.cores is not None:
        found.cores = request.cores
    if request.host_memory_mb is not None:
        found.host_memory_mb = request.host_memory_mb
    return found


def _check_nodes(ranks: RankRequest) -> None:
    if ranks.num_nodes == 1 and ranks.rendezvous is not None:
        raise UsageError("--rendezvous applies to several machines only", fix="add --num-nodes N")
    if ranks.num_nodes > 1:
        place = _HOST_AND_PORT.fullmatch(ranks.rendezvous or "")
        if place is None or not 0 < int(place[2]) <= _HIGHEST_PORT:
            raise UsageError(
                f"{ranks.num_nodes} machines need a rendezvous",
                setting="--rendezvous",
                received=ranks.rendezvous,
                fix="name the first machine and a port that is free there: --rendezvous node1:29500",
            )
        if ranks.restart:
            raise UsageError(
                "--restart works on one machine only: `roost join` would have to be typed again",
                fix="leave out --restart or --num-nodes",
            )


def _one_process(choice: _LayoutChoice) -> RankLayout:
    if choice.ranks.num_nodes > 1:
        fix = "use ddp or fsdp, or leave out --num-nodes"
        raise UsageError("strategy single has one process, on one machine", fix=fix)
    notes = _sync_notes(choice.settings, 1)
    if choice.devices == "auto":  # the process sees all visible devices
        return RankLayout(choice.request(choice.device, None, 1), notes)
    found = _available_cards(choice)
    if found:
        return RankLayout(choice.request(device_types.CARDS, _choose_cards(choice, found), 1), notes)
    if choice.are_several:
        raise choice.refused(
            f"strategy single has one process, which can have several GPUs only; {_no_gpu_reason(choice)}",
            "for several processes leave out strategy: single (or -mc), or set ddp",
        )
    _device_count(choice)
    return RankLayout(choice.request(choice.device, None, 1), notes)


def _rank_devices(choice: _LayoutChoice) -> tuple[str, list[Card] | None, int]:
    """Returns the device type, the cards (None: all visible ones), and the number of ranks on this
    machine."""
    found = _available_cards(choice)
    if not found and choice.device not in (device_types.AUTO, device_types.CPU):
        raise Refused(
            "several ranks compute on the CPU or with CUDA only",
            setting="--device",
            received=choice.device,
            fix="choose one of these, or leave out -DDP, --devices and the setting strategy",
        )
    if not found:
        return device_types.CPU, None, _process_count(choice)
    if choice.devices == "auto":
        return device_types.CARDS, None, len(found)
    chosen = _choose_cards(choice, found)
    return device_types.CARDS, chosen, len(chosen)


def _available_cards(choice: _LayoutChoice) -> list[Card]:
    """Returns the GPUs to choose from; empty if the session computes on the CPU."""
    if not device_types.may_use_cards(choice.device):
        return []
    found = visible_cards.cards() if visible_cards.torch_can_compute() else []
    if not found and choice.device == device_types.CARDS:
        fix = "use the CPU with -CPU --devices N for N processes"
        raise Refused(_no_gpu_reason(choice), setting="--device", received=choice.device, fix=fix)
    return found


def _choose_cards(choice: _LayoutChoice, found: Sequence[Card]) -> list[Card]:
    """Returns the GPUs with the requested numbers; or the requested number of GPUs, unleased ones first, and
    of these the ones with the most free memory."""
    here = "; ".join(map(str, found))
    number = len(found)
    if isinstance(choice.devices, list):
        numbers: list[int] = choice.devices
        if len(set(numbers)) < len(numbers) or not numbers:
            raise choice.refused("the list must name at least one GPU, and each only once", "write 0,2")
        missing = [str(one) for one in numbers if one >= number]
        if missing:
            what = f"there is no GPU {', '.join(missing)} among the visible ones, counted from 0: {here}"
            raise choice.refused(what, _too_few_fix(number))
        return [found[one] for one in numbers]
    count = int(choice.devices)
    if count > number:
        what = f"only {number} GPU{'s' * (number != 1)} {'is' if number == 1 else 'are'} visible: {here}"
        raise choice.refused(what, _too_few_fix(number))
    return prefer_free(found, count, choice.ranks.memory_mb)


def _too_few_fix(number: int) -> str:
    """Returns the fix for a request of more GPUs than are visible."""
    hidden = f", or change {visible_cards.VARIABLE}" if visible_cards.VARIABLE in os.environ else ""
    return f"request at most {number}{hidden}, or use the CPU with -CPU --devices N"


def _process_count(choice: _LayoutChoice) -> int:
    """Returns the number of processes on the CPU, which cannot be derived from the machine."""
    number = _device_count(choice)
    if number == "auto":
        raise UsageError(
            f"{choice.strategy} trains with several processes, and on the CPU their number must be given "
            f"({_no_gpu_reason(choice)})",
            fix="give the number: -CPU --devices 2",
        )
    return int(number)


def _device_count(choice: _LayoutChoice) -> int | Literal["auto"]:
    """Returns the number of devices on the CPU, where devices have no numbers: ``[0]`` means the first
    GPU."""
    if isinstance(choice.devices, list):
        count = len(choice.devices)
        what = "this is the number of a GPU" if count == 1 else "these are numbers of GPUs"
        fix = f"give the number of processes: --devices {count}"
        raise choice.refused(f"{what}, and {_no_gpu_reason(choice)}", fix)
    return choice.devices


def _no_gpu_reason(choice: _LayoutChoice) -> str:
    if not device_types.may_use_cards(choice.device):
        requested = "the CPU" if choice.device == device_types.CPU else choice.device
        return f"{requested} is requested"
    return f"no GPU is visible: {visible_cards.no_cards_reason()}"


def _check_ranks(settings: RunSettings, strategy: str, world: int, where: Where) -> None:
    """Raises a ConfigError if a setting does not work with several ranks."""
    if isinstance(settings, Settings):
        conflicts.check_ranks(settings, strategy, world, where)
    elif strategy == "fsdp":
        raise ConfigError(
            "projects of DLNest's contract register whole modules with DDP, which fsdp would cut",
            setting="--strategy",
            received=strategy,
            fix="use ddp",
        )


def _check_several(settings: RunSettings, kind: str, terminal: str, where: Where) -> None:
    """Raises if a setting does not work with several processes on this type of device."""
    if terminal:
        fix = "run one process: leave out -DDP, --devices and --num-nodes"
        raise UsageError("--pdb gives the terminal to one process, and there are several", fix=fix)
    if settings.sync_batch_norm and kind == device_types.CPU:
        raise Refused(
            "torch synchronises batch norm between ranks on GPUs only",
            setting=settings.key("sync_batch_norm"),
            received=True,
            where=where(settings.key("sync_batch_norm")),
            fix="leave it out, or train on GPUs",
        )


def _layout_notes(choice: _LayoutChoice, kind: str, chosen: Sequence[Card] | None, count: int) -> list[str]:
    where = "on the CPU"
    if kind == device_types.CARDS:
        numbers = f" {', '.join(str(card.number) for card in chosen)}" if chosen is not None else ""
        where = f"on GPU{'s' * (count > 1)}{numbers}"
    elif choice.device == device_types.AUTO:
        where += f" ({_no_gpu_reason(choice)})"
    nodes = f" on each of {choice.ranks.num_nodes} machines" if choice.ranks.num_nodes > 1 else ""
    notes = [f"{choice.strategy}: {count} rank{'s' * (count > 1)} {where}{nodes}"]
    if kind == device_types.CPU and count > (has := cpu_cores.usable_cores()):
        notes.append(f"{count} ranks share {format_cores(has)}; that is slower than one core for each")
    return notes


def _sync_notes(settings: RunSettings, world: int) -> list[str]:
    unused = settings.sync_batch_norm and world == 1
    return [f"{settings.key('sync_batch_norm')} has no effect with one process"] if unused else []
