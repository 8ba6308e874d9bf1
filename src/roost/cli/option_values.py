"""Values of other tools' options, as they are written here. Each function returns None for a value that does
not exist here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from roost.base.errors import ConfigError
from roost.devices.device_types import REQUESTABLE


def any_text(text: str) -> str | None:
    return shlex.quote(text) if text else None


def whole_number(text: str) -> str | None:
    return text if text.isascii() and text.isdecimal() and int(text) else None


def card_count(text: str) -> str | None:
    """``gpu:a100:2``, ``a100:2`` and ``2`` are two; ``gpu`` is one."""
    counts = [part for part in text.split(",")[0].split(":") if part.isdecimal()]
    return whole_number(counts[-1] if counts else "1")


def memory(text: str) -> str | None:
    """A size in Slurm's units: MB without one, or K, M, G, T."""
    found = re.fullmatch(r"(\d{1,9})([KMGT]?)B?", text, re.IGNORECASE)
    if found is None or not int(found[1]):
        return None
    number, unit = int(found[1]), found[2].upper()
    return {"K": f"{-(-number // 1024)}MB", "T": f"{number * 1024}GB", "G": f"{number}GB"}.get(
        unit, f"{number}MB"
    )


def duration(text: str) -> str | None:
    """A time limit of Slurm, where a number alone is minutes."""
    from roost.base.interval import parse_duration

    if found := re.fullmatch(r"(\d+)-(\d+)(?::(\d\d))?", text):
        days, hours, minutes = found.groups()
        return f"{days}d{hours}h" + (f"{minutes}m" if minutes else "")
    if found := re.fullmatch(r"(\d+):(\d\d)", text):
        return f"{found[1]}m{found[2]}s"
    if text.isdecimal():
        return f"{text}min" if int(text) else None
    try:
        parse_duration(text, setting="")
    except ConfigError:
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


def sweep_values(text: str) -> str | None:
    return shlex.quote(text) if "=" in text else None


def config_file(text: str) -> str | None:
    """Hydra names a config without its suffix."""
    return None if not text else shlex.quote(text if Path(text).suffix else f"{text}.yaml")
