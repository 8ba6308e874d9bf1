"""Values of other tools' options, as they are written here. Each function returns None for a value that does
not exist here."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

from roost.base.errors import ConfigError, UsageError
from roost.devices.device_types import REQUESTABLE


def any_text(text: str) -> str | None:
    return shlex.quote(text) if text else None


def whole_number(text: str) -> str | None:
    return text if text.isascii() and text.isdecimal() and int(text) else None


def card_count(text: str) -> str | None:
    """``gpu:a100:2``, ``a100:2`` and ``2`` are two; ``gpu`` is one."""
    counts = [part for part in text.split(",")[0].split(":") if part.isdecimal()]
    return whole_number(counts[-1] if counts else "1")


def card_count_of_task(text: str) -> str | None:
    """As `card_count`; a task may also have none: ``0``, ``gpu:0``."""
    return "0" if re.fullmatch(r"(\w+:)*0", text) else card_count(text)


def memory(text: str) -> str | None:
    """A size in Slurm's units: MB without one, or K, M, G, T."""
    found = re.fullmatch(r"(\d{1,9})([KMGT]?)B?", text, re.IGNORECASE)
    if found is None or not int(found[1]):
        return None
    number, unit = int(found[1]), found[2].upper()
    return {"K": f"{-(-number // 1024)}MB", "T": f"{number * 1024}GB", "G": f"{number}GB"}.get(
        unit, f"{number}MB"
    )


def memory_times(text: str, count: int) -> str | None:
    """A size in Slurm's units for each of ``count`` cores or cards, as the size for all of them."""
    found = re.fullmatch(r"(\d{1,9})(\D?B?)", text)
    return None if found is None else memory(f"{int(found[1]) * count}{found[2]}")


def duration(text: str) -> str | None:
    """A time limit of Slurm, where a number alone is minutes."""
    from roost.base.interval import parse_duration

    if found := re.fullmatch(r"(\d+)-(\d+)(?::(\d\d))?", text):
        days, hours, minutes = found.groups()
        text = f"{days}d{hours}h" + (f"{minutes}m" if minutes else "")
    elif found := re.fullmatch(r"(\d+):(\d\d)", text):
        text = f"{found[1]}m{found[2]}s"
    elif text.isdecimal():
        text = f"{text}min"
    try:
        parse_duration(text, setting="")
    except ConfigError:
        return None
    return shlex.quote(text)


def begin(text: str) -> str | None:
    """``now+1hour`` is ``+1h``; a number alone is seconds."""
    from roost.operations.queue.resources import check_begin, parse_begin

    units = {"": "s", "second": "s", "minute": "min", "hour": "h", "day": "d"}
    if found := re.fullmatch(r"now\+(\d+)(|second|minute|hour|day)s?", text.lower()):
        text = f"+{found[1]}{units[found[2]]}"
    now = time.time()
    try:
        check_begin(parse_begin(text, now=now), now)
    except UsageError:
        return None
    return shlex.quote(text)


def dependency(text: str) -> str | None:
    """``afterok:12:13`` is ``--after 12 --after 13``; None for conditions that do not exist here."""
    words = []
    for condition in text.split(","):
        kind, *tasks = condition.split(":")
        option = {"afterok": "--after", "afterany": "--after-any"}.get(kind)
        if option is None or not tasks or not all(map(str.isalnum, tasks)):
            return None
        words += [f"{option} {shlex.quote(task)}" for task in tasks]
    return " ".join(words)


def values_of_array(text: str) -> str | None:
    """``0-9%4`` is ``seed=0..9 --max-parallel 4``."""
    found = re.fullmatch(r"(\d+)-(\d+)(?:%(\d+))?|(\d+(?:,\d+)+)(?:%(\d+))?", text)
    if found is None:
        return None
    first, last, limit, listed, limit_of_list = found.groups()
    values = listed or f"{first}..{last}"
    number = limit or limit_of_list
    return f"seed={values}" + (f" --max-parallel {number}" if number else "")


def device_type(text: str) -> str | None:
    name = {"gpu": "cuda"}.get(text, text)
    return name if name in REQUESTABLE else None


def devices(text: str) -> str | None:
    return "auto" if text in ("auto", "-1") else text if re.fullmatch(r"[1-9]\d*|\d+(,\d+)+", text) else None


def strategy(text: str) -> str | None:
    name = text.partition("_")[0]
    return name if name in ("ddp", "fsdp") else None


def precision(text: str) -> str | None:
    return {"fp16": "fp16", "bf16": "bf16", "no": "32"}.get(text)


def priority(text: str) -> str | None:
    """A niceness: the higher, the later."""
    return str(-int(text)) if re.fullmatch(r"-?\d{1,6}", text) else None


def own_priority(text: str) -> str | None:
    """A priority as it is here. The words and the sizes of Slurm's have no counterpart."""
    return text if re.fullmatch(r"[-+]?\d{1,6}", text) else None


def package_name(text: str) -> str | None:
    """A name that a package's folder may have."""
    from roost.package.package_name import checked_name

    try:
        return shlex.quote(checked_name(text))
    except UsageError:
        return None


def sweep_values(text: str) -> str | None:
    return shlex.quote(text) if "=" in text else None


def config_file(text: str) -> str | None:
    """Hydra names a config without its suffix."""
    return None if not text else shlex.quote(text if Path(text).suffix else f"{text}.yaml")
