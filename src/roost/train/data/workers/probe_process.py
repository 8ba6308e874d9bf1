"""Asking a set a question in a process that ends after it, so that nothing of it stays open here."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from typing import Protocol

from roost.train.data.workers import loader_worker

START_METHOD = "fork" if sys.platform == "linux" else None
"""How processes for data are started: forked, so that a set need not be picklable nor read anew."""
_TIMEOUT_SECONDS = 60.0
"""How long one sample may take."""


class SeedingProbe(Protocol):
    """What can be asked."""

    def ignores_seeding(self) -> bool:
        """Whether what it draws differs from what it drew under the same seeds."""


def ignores_seeding(asked: SeedingProbe) -> bool:
    """Whether it ignores seeding, found out in another process; what cannot be found out is said, and taken
    for no."""
    context = multiprocessing.get_context(START_METHOD)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_run_probe, args=(asked, theirs, os.getpid()), daemon=True)  # type: ignore[attr-defined]
    child.start()
    theirs.close()
    try:
        if ours.poll(_TIMEOUT_SECONDS):
            return bool(ours.recv())
        why = f"no sample within {_TIMEOUT_SECONDS:g} s"
    except EOFError:
        why = "the process that read a sample died"
    finally:
        child.kill()
        child.join()
        ours.close()
    print(f"whether the set follows roost's seeds is not known: {why}", flush=True)
    return False


def _run_probe(asked: SeedingProbe, answer: Connection, parent: int) -> None:
    """The whole life of a process."""
    loader_worker.initialize_process(parent)
    try:
        answer.send(asked.ignores_seeding())
    except Exception:  # noqa: BLE001  - what cannot be read is not judged: the workers raise it, with its place
        answer.send(False)
