"""The lines of `roost doctor`, and the form of a check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from roost.operations.doctor.driver_facts import DriverFacts

Level = Literal["ok", "warning", "problem"]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `roost doctor`: the finding of a check about one thing."""

    topic: str = ""
    check: str = ""
    level: Level
    """ok; warning: slower, or at risk; problem: runs fail, or data may be lost."""
    found: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class DoctorSubject:
    """The driver, the folders, the package and the config that are examined."""

    save_root: Path
    """The folder of packages; it may be missing."""
    lab_folder: Path
    driver: DriverFacts = field(default_factory=DriverFacts)
    package: Path | None = None
    config: Path | None = None
    num_workers: int = 0
    """The loader workers that the config or the package requests; 0: none, or chosen by roost."""
    prefetch: int = 2
    """The batches that each of them prepares."""


@dataclass(frozen=True)
class DoctorCheck:
    """A check: what it reads of the machine, and what follows from it.

    Args:
        topic: The group of checks under which it is shown.
        name: What is examined, in a word or two.
        read: Reads the machine; it judges nothing. What it raises becomes a warning.
        judge: Returns the lines; a pure function, so that a test can give it any machine.
    """

    topic: str
    name: str
    read: Callable[[DoctorSubject], Any]
    judge: Callable[[Any], Iterator[Diagnosis]]


def ok(found: str, fix: str = "") -> Diagnosis:
    """Returns a line about something that is as it should be."""
    return Diagnosis(level="ok", found=found, fix=fix)


def warning(found: str, fix: str) -> Diagnosis:
    """Returns a line about something that makes runs slower, or puts them at risk."""
    return Diagnosis(level="warning", found=found, fix=fix)


def problem(found: str, fix: str) -> Diagnosis:
    """Returns a line about something by which runs fail, or data may be lost."""
    return Diagnosis(level="problem", found=found, fix=fix)
