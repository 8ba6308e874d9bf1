"""Checks the seeding of a set in a process that ends afterwards, so that no file stays open here."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import NamedTuple, Protocol

from roost.train.data.workers import loader_worker

_TIMEOUT_SECONDS = 60.0
"""Maximum duration of the check."""


class SeedingProbe(Protocol):
    """An object whose seeding can be checked: a fetcher or a stream."""

    def ignores_seeding(self) -> bool:
        """Whether a sample differs when it is drawn twice with the same seeds."""


class SeedingFinding(NamedTuple):
    """Whether a set ignores the seeds."""

    ignores_seeding: bool
    """False also where it is not known."""
    unknown_reason: str = ""
    """Why it is not known; empty if it is."""


def probe_seeding(probe: SeedingProbe) -> SeedingFinding:
    """Calls ``probe.ignores_seeding()`` in another process; prints a line if it gets no answer."""
    context = multiprocessing.get_context(loader_worker.START_METHOD)
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run_probe, args=(probe, sender, os.getpid()), daemon=True)  # type: ignore[attr-defined]
    child.start()
    sender.close()
    try:
        if receiver.poll(_TIMEOUT_SECONDS):
            return SeedingFinding(bool(receiver.recv()))
        why = f"no sample within {_TIMEOUT_SECONDS:g} s"
    except EOFError:
        why = "the process that read a sample died"
    finally:
        child.kill()
        child.join()
        receiver.close()
    print(f"whether the set follows roost's seeds is not known: {why}", flush=True)
    return SeedingFinding(False, unknown_reason=why)


def _run_probe(probe: SeedingProbe, answer: Connection, parent: int) -> None:
    """The main function of the process."""
    loader_worker.initialize_process(parent)
    try:
        answer.send(probe.ignores_seeding())
    except Exception:  # noqa: BLE001  - the workers raise an error of the set later, with the sample
        answer.send(False)
