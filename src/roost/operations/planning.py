"""What the lab will start, later and without the caller: a `Plan` from a session's request."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roost.base.errors import UsageError
from roost.base.handover import DEADLINE_VARIABLE
from roost.config import conflicts
from roost.config.settings import Devices, Settings, Where
from roost.lab.limits import Limits
from roost.lab.plan import Plan
from roost.operations import ranks, starting
from roost.operations.wanted import Wanted


def of_training(body: Mapping[str, Any], settings: Settings) -> Plan:
    """The plan of a training.

    Args:
        body: The session's request, with its part about ranks.
        settings: Those in effect.
    """
    return Plan(
        request=dict(body),
        argv=[sys.executable, "-P", "-m", "roost.worker"],
        env=_callers(),
        own_env=starting.own_environment(seed=settings.seed, cpu=body["device"] == "cpu"),
        limits=starting.limits(settings.limits)._asdict(),
        ranks=ranks.environments(body, settings),
        restart=int(body.get("restart", 0)),
    )


def of_command(command: Sequence[str], *, time_limit: float | None) -> Plan:
    """The plan of a command of the user, which runs where it was typed, in the environment that it had there.

    Args:
        command: And its arguments.
        time_limit: Seconds.
    """
    return Plan(
        request={"kind": "command", "command": list(command)},
        argv=list(command),
        is_command=True,
        cwd=str(Path.cwd()),
        env=_callers(),
        limits=Limits(wall_seconds=time_limit)._asdict(),
    )


def computing(wanted: Wanted, settings: Settings, *, devices: Devices, where: Where) -> dict[str, Any]:
    """The part of a session's request that tells what it computes with: the lab chooses the cards.

    Args:
        wanted: What it asks of the lab, the number of cards known.
        settings: Those in effect.
        devices: How many processes it has on the CPU.
        where: Where a dotted key was set, for messages.

    Raises:
        UsageError: What is asked contradicts itself.
        ConfigError: A setting does not go with several ranks.
    """
    cards = wanted.need.cards
    on_cpu = 1 if devices == "auto" or isinstance(devices, list) else int(devices)
    count = cards or on_cpu
    chosen = wanted.strategy or settings.strategy or ("ddp" if count > 1 else "single")
    if chosen == "single" and not cards and count > 1:
        raise UsageError("strategy single is one process", fix="leave it out, or ask for one device")
    world = 1 if chosen == "single" else count
    if world > 1:
        conflicts.check_ranks(settings, chosen, world, where)
    return {
        "device": "cuda" if cards and not wanted.simulated else "cpu",
        "devices": count,
        "cards": None,
        "strategy": chosen,
        "ranks": world,
        "num_nodes": 1,
        "rendezvous": None,
        "restart": 0,
    }


def _callers() -> dict[str, str]:
    """The caller's environment, without the time by which the caller must have ended."""
    return {
        name: value for name, value in starting.callers_environment().items() if name != DEADLINE_VARIABLE
    }
