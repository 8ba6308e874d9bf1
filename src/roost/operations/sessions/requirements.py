"""What ``require`` of a config asks of the machine, checked before anything is made for a session."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from roost.base.errors import ConfigError, Refused
from roost.base.text.word_list import join_names
from roost.config.sections.remote import RemoteSettings
from roost.config.sections.requirements import RequireSettings
from roost.config.values.store_url import parse_url
from roost.devices import inventory, visible_cards
from roost.devices.card import Card
from roost.devices.resource_request import CardRequirement, format_card_memory
from roost.package.remote import remote_copy

_MEMORY = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(GB|MB)", re.IGNORECASE)
_BYTES_OF = {"GB": 1e9, "MB": 1e6}
_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d{1,6}(?:\.\d{1,6}){0,3})")
_VERSION_LINE = re.compile(r"""^(__version__|cuda)\b[^=]*=\s*['"]([^'"]+)['"]""", re.MULTILINE)
_OPERATORS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    "<": lambda one, other: one < other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
}


def card_requirement(require: RequireSettings | None) -> CardRequirement | None:
    """Returns what the settings require of each card; None: nothing.

    Raises:
        ConfigError: The memory is not a size.
    """
    if require is None or (require.gpu is None and require.memory is None):
        return None
    models = [require.gpu] if isinstance(require.gpu, str) else require.gpu or []
    return CardRequirement(models=tuple(models), least_mb=_least_mb(require.memory))


def _least_mb(text: str | None) -> int:
    """Returns the memory in MB of the driver (powers of 1024): the 16 GB of a T4 are 15360 of them."""
    if text is None:
        return 0
    parts = _MEMORY.fullmatch(text.strip())
    if parts is None or not float(parts[1]):
        raise ConfigError(
            "is not a size of memory", setting="require.memory", received=text, fix="write 20GB"
        )
    return int(float(parts[1]) * _BYTES_OF[parts[2].upper()] / 2**20)


def require_versions(require: RequireSettings | None) -> None:
    """Checks the versions of torch and CUDA, without importing torch.

    Raises:
        Refused: torch has another version, was built for another CUDA or for none, or is missing.
        ConfigError: A text gives no versions.
    """
    if require is not None:
        _require_version("torch", require.torch)
        _require_version("cuda", require.cuda)


def _require_version(name: str, given: str | None) -> None:
    if given is None:
        return
    clauses = _clauses(given, f"require.{name}")
    found = torch_versions().get(name)
    if found is None or not all(_holds(found, *clause) for clause in clauses):
        what = "torch" if name == "torch" else "CUDA of this torch"
        has = f"is {found}" if found is not None else "is missing" if name == "torch" else "is none"
        raise Refused(
            f"{what} {has}",
            setting=f"require.{name}",
            received=given,
            fix="install a torch that fits, or change the requirement",
        )


def unmet(require: RequireSettings | None, cards: Sequence[Card], *, device: str) -> list[str]:
    """Returns what the settings require and this machine lacks, a line for each thing.

    Args:
        require: The settings.
        cards: The cards on which a session would compute; empty: the CPU.
        device: The requested device.

    Raises:
        ConfigError: A text gives no versions, or no size of memory.
    """
    if require is None:
        return []
    checks: list[Callable[[], None]] = [
        lambda: _require_version("torch", require.torch),
        lambda: _require_version("cuda", require.cuda),
        lambda: require_cards(require, cards, device=device),
    ]
    found = []
    for check in checks:
        try:
            check()
        except Refused as refused:
            found.append(str(refused))
    return found


def require_store_library(remote: RemoteSettings | None) -> None:
    """Checks that the library for the store of a remote copy is installed: else nothing would be uploaded.

    Raises:
        NotFound: It is missing; the message names the extra.
    """
    if remote is not None:
        remote_copy.require_library(parse_url(remote.url))


def require_cards(
    require: RequireSettings | None, cards: Sequence[Card], *, device: str, is_chosen: bool = False
) -> None:
    """Checks the cards on which a session would compute.

    Args:
        require: The settings.
        cards: Those cards; empty: it would compute on the CPU.
        device: The requested device.
        is_chosen: Whether the user has chosen these cards.

    Raises:
        Refused: A card is another one than is required, or there is none.
        ConfigError: The memory is not a size.
    """
    required = card_requirement(require)
    if required is None or (cards and all(map(required.fits, cards))):
        return
    setting = "require.gpu" if require is not None and require.gpu is not None else "require.memory"
    if not cards:
        on_cpu = "this session would compute on the CPU"
        what = on_cpu if device == "cpu" else f"there is no GPU that torch can use here, so {on_cpu}"
    else:
        others = [card for card in cards if not required.fits(card)]
        what = join_names(
            [
                f"GPU {card.number} is a {card.name} with {format_card_memory(card.total_mb)}"
                for card in others
            ]
        )
    fix = "use another machine or runtime, or change the requirement"
    fitting = [card for card in _all_cards() if required.fits(card)]
    if fitting and (is_chosen or device == "cpu"):
        fix = f"use {join_names([f'GPU {card.number}' for card in fitting])}, or change the requirement"
    raise Refused(f"requires {required}: {what}", setting=setting, fix=fix)


def _all_cards() -> Sequence[Card]:
    if not (inventory.is_simulated() or visible_cards.torch_can_compute()):
        return ()
    try:
        return visible_cards.cards()
    except Refused:
        return ()


def _clauses(text: str, setting: str) -> list[tuple[str, tuple[int, ...]]]:
    found = [_CLAUSE.fullmatch(part.strip()) for part in text.split(",")]
    if not all(found):
        fix = 'write ">=2.4", or ">=2.4,<3"'
        raise ConfigError("does not name versions", setting=setting, received=text, fix=fix)
    return [(parts[1], _numbers(parts[2])) for parts in found if parts is not None]


def _holds(version: str, operator: str, wanted: tuple[int, ...]) -> bool:
    """Compares as many numbers as the clause names: 12.1.105 is 12.1."""
    numbers = (*_numbers(version), 0, 0, 0, 0)[: len(wanted)]
    return _OPERATORS[operator](numbers, wanted)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


@functools.cache
def torch_versions() -> dict[str, str]:
    """Returns the versions of torch (``torch``) and of its CUDA (``cuda``), as far as it has them."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except (OSError, ValueError):
        return {}
    return {
        "torch" if name == "__version__" else name: version for name, version in _VERSION_LINE.findall(text)
    }
