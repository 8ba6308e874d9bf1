"""How many processes a session has, and on which devices: decided and checked before anything is made."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from roost.base.errors import Refused, UsageError
from roost.base.system import cpu_cores
from roost.config import conflicts
from roost.config.settings import Devices, Settings, Where
from roost.devices import visible_cards
from roost.devices.card import Card
from roost.operations.sessions.foreground_lease import prefer_unleased
from roost.package.package import PackageFolder
from roost.package.setting_locations import override_key

COMMAND_LINE = "command line"
_THREADS_VARIABLE = "OMP_NUM_THREADS"
_HOST_AND_PORT = re.compile(r"(\S+):(\d{1,5})")
_HIGHEST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class RankRequest:
    """What a session is asked to compute with, and what after it has failed."""

    devices: Devices | None = None
    """How many, which by their numbers, or auto; None: as the settings say, or the session before."""
    strategy: str | None = None
    """single, ddp or fsdp; None: likewise."""
    num_nodes: int = 1
    """Machines that train together."""
    rendezvous: str | None = None
    """HOST:PORT where they meet: the first machine's, and a port that is free there."""
    restart: int = 0
    """How many times in a row the next session may begin by itself."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where devices and strategy were asked for, if not on the command line."""
    num_nodes_before: int = 1
    """Machines of the session before."""


@dataclass(frozen=True)
class RankLayout:
    """What became of it."""

    request: dict[str, Any]
    """Its part of the session's request."""
    notes: list[str]
    """What a person should hear about it, one line each."""


def with_previous_layout(asked: RankRequest, package: PackageFolder, overrides: Sequence[str]) -> RankRequest:
    """With the devices and the strategy of the newest session, where neither the caller nor an override of
    the session that is about to begin asks for others.

    Args:
        asked: By the caller.
        package: Which goes on.
        overrides: Of the session that is about to begin.
    """
    session = next((one for one in reversed(package.sessions()) if "strategy" in one.request), None)
    if session is None:
        return asked
    changed = [override_key(text) for text in overrides]
    is_new = {key: key in changed or getattr(asked, key) is not None for key in ("devices", "strategy")}
    # One process was no choice where there was one device: several are not for one process then.
    if is_new["devices"] and session.request["strategy"] == "single":
        is_new["strategy"] = True
    found: dict[str, Any] = {key: session.request.get(key) for key, new in is_new.items() if not new}
    sources = dict.fromkeys(found, f"session {session.number}")
    num_nodes_before = int(session.request.get("num_nodes", 1))
    return replace(asked, **found, sources=sources, num_nodes_before=num_nodes_before)


def plan_ranks(
    asked: RankRequest, settings: Settings, *, device: str, terminal: str, where: Where
) -> RankLayout:
    """How many ranks there will be, and on what.

    Args:
        asked: By the caller, or by the session before.
        settings: Those in effect.
        device: auto, cpu or cuda.
        terminal: One for the run itself; empty if there is none.
        where: Where a dotted key was set, for messages.

    Raises:
        UsageError: What is asked contradicts itself.
        ConfigError: A setting does not go with several ranks.
        Refused: This machine does not have such devices.
    """
    _check_nodes(asked)
    choice = _LayoutChoice(asked, settings, device, where)
    if choice.strategy == "single":
        return _one_process(choice)
    kind, chosen, count = _rank_devices(choice)
    world, notes = count * asked.num_nodes, []
    if world == 1:
        notes.append(f"strategy {choice.strategy} has one device: one process, as without it")
    else:
        conflicts.check_ranks(settings, choice.strategy, world, where)
        _check_several(settings, kind, terminal, where)
        notes += _layout_notes(choice, kind, chosen, count)
    if asked.num_nodes == 1 < (before := asked.num_nodes_before):
        again = f"--num-nodes {before} --rendezvous HOST:PORT"
        notes.append(f"one machine, and the session before had {before}; for {before} again add {again}")
    return RankLayout(choice.request(kind, chosen, count), [*notes, *_sync_notes(settings, world)])


def one_process_notes(settings: Settings, *, device: str, where: Where) -> list[str]:
    """What a person should hear where one process does what the run itself would do in several, or could not
    do on this machine; nothing for a run of one process.

    Raises:
        ConfigError: A setting does not go with several ranks.
    """
    try:
        request = plan_ranks(RankRequest(), settings, device=device, terminal="", where=where).request
    except (Refused, UsageError) as error:
        return [f"the run itself could not begin here: {error}"]
    return several_ranks_note(request, "the run itself has {}; here one process does the work of all")


def several_ranks_note(request: Mapping[str, Any], text: str) -> list[str]:
    """A line about the ranks of a session, as ``3 ranks (ddp)`` in the place of ``{}``; none for one rank."""
    world = int(request.get("ranks", 1)) * int(request.get("num_nodes", 1))
    return [text.format(f"{world} ranks ({request.get('strategy')})")] if world > 1 else []


def cards_of_this_machine(request: Mapping[str, Any], settings: Settings) -> list[str] | None:
    """The GPUs that this machine takes for a session that was begun on another, by what CUDA_VISIBLE_DEVICES
    calls them; None: those that are visible.

    Raises:
        Refused: This machine does not have as many, or not those.
    """
    if request.get("device") != "cuda":
        return None
    asked = RankRequest(devices=request["devices"], strategy=request["strategy"])
    if asked.devices == "auto":  # on the first machine: all
        asked = replace(asked, devices=int(request["ranks"]))
    choice = _LayoutChoice(asked, settings, "cuda", lambda key: None)
    return [card.id for card in _choose_cards(choice, _available_cards(choice))]


def rank_environments(request: Mapping[str, Any], settings: Settings) -> tuple[dict[str, str], ...]:
    """What each rank of this machine has in its environment beside that of the session; nothing where there
    is one process.

    Without a word about threads every rank would take all cores.
    """
    count = int(request.get("ranks", 1))
    if count * int(request.get("num_nodes", 1)) == 1:
        return ()
    if settings.threads != "auto":
        threads = str(settings.threads)
    else:
        threads = os.environ.get(_THREADS_VARIABLE) or str(max(1, cpu_cores.usable_cores() // count))
    return tuple({_THREADS_VARIABLE: threads} for _ in range(count))


class _LayoutChoice:
    """What is asked, wherever it was said."""

    def __init__(self, asked: RankRequest, settings: Settings, device: str, where: Where) -> None:
        self.asked, self.settings, self.device = asked, settings, device
        self.devices: Devices = settings.devices if asked.devices is None else asked.devices
        is_own = asked.devices is None
        self.where = where("devices") if is_own else asked.sources.get("devices", COMMAND_LINE)
        otherwise = "ddp" if self.are_several or asked.num_nodes > 1 else "single"
        self.strategy = asked.strategy or settings.strategy or otherwise

    @property
    def are_several(self) -> bool:
        """Whether more than one device is named."""
        number = len(self.devices) if isinstance(self.devices, list) else self.devices
        return number != "auto" and int(number) > 1

    def request(self, kind: str, chosen: Sequence[Card] | None, count: int) -> dict[str, Any]:
        """The part of the session's request."""
        return {
            "device": kind,
            "devices": self.devices,
            "cards": [card.id for card in chosen] if chosen is not None else None,
            "strategy": self.strategy,
            "ranks": count,
            "num_nodes": self.asked.num_nodes,
            "rendezvous": self.asked.rendezvous,
            "restart": self.asked.restart,
        }

    def refused(self, message: str, fix: str) -> Refused:
        return Refused(message, setting="devices", received=self.devices, where=self.where, fix=fix)


def _check_nodes(asked: RankRequest) -> None:
    if asked.num_nodes == 1 and asked.rendezvous is not None:
        raise UsageError("--rendezvous is where several machines meet", fix="add --num-nodes N")
    if asked.num_nodes > 1:
        place = _HOST_AND_PORT.fullmatch(asked.rendezvous or "")
        if place is None or not 0 < int(place[2]) <= _HIGHEST_PORT:
            raise UsageError(
                f"{asked.num_nodes} machines need a place to meet",
                setting="--rendezvous",
                received=asked.rendezvous,
                fix="name the first machine and a port that is free there: --rendezvous node1:29500",
            )
        if asked.restart:
            raise UsageError(
                "--restart is for one machine: nobody would type `roost join` anew",
                fix="leave out --restart or --num-nodes",
            )


def _one_process(choice: _LayoutChoice) -> RankLayout:
    if choice.asked.num_nodes > 1:
        fix = "ask for ddp or fsdp, or leave out --num-nodes"
        raise UsageError("strategy single is one process, on one machine", fix=fix)
    notes = _sync_notes(choice.settings, 1)
    if choice.devices == "auto":  # it sees what it sees
        return RankLayout(choice.request(choice.device, None, 1), notes)
    found = _available_cards(choice)
    if found:
        return RankLayout(choice.request("cuda", _choose_cards(choice, found), 1), notes)
    if choice.are_several:
        raise choice.refused(
            f"strategy single is one process, and several devices can only be GPUs there; {_no_gpu_reason(choice)}",
            "for several processes leave out strategy: single (or -mc), or set ddp",
        )
    _device_count(choice)
    return RankLayout(choice.request(choice.device, None, 1), notes)


def _rank_devices(choice: _LayoutChoice) -> tuple[str, list[Card] | None, int]:
    """The kind of device, the cards if some were chosen of all, and the number of ranks on this machine."""
    found = _available_cards(choice)
    if not found:
        return "cpu", None, _process_count(choice)
    if choice.devices == "auto":
        return "cuda", None, len(found)
    chosen = _choose_cards(choice, found)
    return "cuda", chosen, len(chosen)


def _available_cards(choice: _LayoutChoice) -> list[Card]:
    """The GPUs to choose from; none where the session computes on the CPU."""
    if choice.device == "cpu":
        return []
    found = visible_cards.cards() if visible_cards.torch_can_compute() else []
    if not found and choice.device == "cuda":
        fix = "use the CPU: -CPU --devices N for N processes"
        raise Refused(_no_gpu_reason(choice), setting="--device", received="cuda", fix=fix)
    return found


def _choose_cards(choice: _LayoutChoice, found: Sequence[Card]) -> list[Card]:
    """Which of the GPUs are taken: those that are named, or as many as asked, with the most memory free among
    those that nobody holds."""
    here = "; ".join(map(str, found))
    number = len(found)
    if isinstance(choice.devices, list):
        numbers: list[int] = choice.devices
        if len(set(numbers)) < len(numbers) or not numbers:
            raise choice.refused("every GPU is named once, and one at least", "write 0,2")
        missing = [str(one) for one in numbers if one >= number]
        if missing:
            what = f"there is no GPU {', '.join(missing)} among the visible ones, counted from 0: {here}"
            raise choice.refused(what, _too_few_fix(number))
        return [found[one] for one in numbers]
    count = int(choice.devices)
    if count > number:
        what = f"more GPUs than there are: {number} {'is' if number == 1 else 'are'} visible: {here}"
        raise choice.refused(what, _too_few_fix(number))
    return prefer_unleased(found, count)


def _too_few_fix(number: int) -> str:
    """What to do where a GPU is asked for that is not there."""
    hidden = f", or change {visible_cards.VARIABLE}" if visible_cards.VARIABLE in os.environ else ""
    return f"ask for at most {number}{hidden}, or use the CPU: -CPU --devices N"


def _process_count(choice: _LayoutChoice) -> int:
    """Processes on the CPU, of which nobody but the caller knows how many it should be."""
    number = _device_count(choice)
    if number == "auto":
        raise UsageError(
            f"{choice.strategy} trains with several processes, and on the CPU roost cannot know how many "
            f"({_no_gpu_reason(choice)})",
            fix="say how many: -CPU --devices 2",
        )
    return int(number)


def _device_count(choice: _LayoutChoice) -> int | Literal["auto"]:
    """How many are asked for on the CPU, where they have no numbers: ``[0]`` is the first GPU."""
    if isinstance(choice.devices, list):
        count = len(choice.devices)
        what = "this is the number of a GPU" if count == 1 else "these are numbers of GPUs"
        fix = f"say how many processes: --devices {count}"
        raise choice.refused(f"{what}, and {_no_gpu_reason(choice)}", fix)
    return choice.devices


def _no_gpu_reason(choice: _LayoutChoice) -> str:
    if choice.device == "cpu":
        return "the CPU is asked for"
    return f"no GPU is visible: {visible_cards.no_cards_reason()}"


def _check_several(settings: Settings, kind: str, terminal: str, where: Where) -> None:
    """What several processes on this kind of device cannot have."""
    if terminal:
        fix = "run one process: leave out -DDP, --devices and --num-nodes"
        raise UsageError("--pdb gives the terminal to one process, and there are several", fix=fix)
    if settings.sync_batch_norm and kind == "cpu":
        raise Refused(
            "torch has no batch norm over several ranks for the CPU",
            setting="sync_batch_norm",
            received=True,
            where=where("sync_batch_norm"),
            fix="leave it out, or train on GPUs",
        )


def _layout_notes(choice: _LayoutChoice, kind: str, chosen: Sequence[Card] | None, count: int) -> list[str]:
    where = "on the CPU"
    if kind == "cuda":
        numbers = f" {', '.join(str(card.number) for card in chosen)}" if chosen is not None else ""
        where = f"on GPU{'s' * (count > 1)}{numbers}"
    elif choice.device == "auto":
        where += f" ({_no_gpu_reason(choice)})"
    nodes = f" on each of {choice.asked.num_nodes} machines" if choice.asked.num_nodes > 1 else ""
    notes = [f"{choice.strategy}: {count} rank{'s' * (count > 1)} {where}{nodes}"]
    if kind == "cpu" and count > (has := cpu_cores.usable_cores()):
        notes.append(f"{count} ranks share {has} core{'s' * (has > 1)}: that is slower than one for each")
    return notes


def _sync_notes(settings: Settings, world: int) -> list[str]:
    unused = settings.sync_batch_norm and world == 1
    return ["sync_batch_norm does nothing here: there is one process"] if unused else []
