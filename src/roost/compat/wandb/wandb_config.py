"""The settings of a run as W&B gives them: by attribute and by item, updated until the package exists."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence
from typing import Any


class WandbConfig:
    """Settings by name.

    Args:
        given: A mapping, an object with attributes such as ``argparse.Namespace``, or None.
    """

    def __init__(self, given: Any = None) -> None:
        self.__dict__["_values"] = _mapping(given)
        self.__dict__["on_change"] = None

    def watch_changes(self, on_change: Callable[[str], None]) -> None:
        """Calls ``on_change`` with the name of each setting that is changed from now on."""
        self.__dict__["on_change"] = on_change

    def keep(self, *, include: Sequence[str], exclude: Sequence[str]) -> None:
        """Keeps the settings of these names, where ``include`` has any, without those of ``exclude``."""
        for name in list(self._values):
            if name in exclude or (include and name not in include):
                del self._values[name]

    def update(self, given: Any, allow_val_change: bool | None = None) -> None:
        """Adds settings, and replaces those of the same name."""
        for name, value in _mapping(given).items():
            self[name] = value

    def setdefaults(self, given: Any) -> None:
        """Adds the settings whose names are new."""
        self.update({name: value for name, value in _mapping(given).items() if name not in self._values})

    def setdefault(self, name: str, value: Any = None) -> Any:
        """Returns a setting; adds it if its name is new."""
        self.setdefaults({name: value})
        return self[name]

    def as_dict(self) -> dict[str, Any]:
        """Returns all settings."""
        return dict(self._values)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a setting, or the default."""
        return self._values.get(name, default)

    def keys(self) -> KeysView[str]:
        """Returns the names."""
        return self.as_dict().keys()

    def items(self) -> ItemsView[str, Any]:
        """Returns names and values."""
        return self.as_dict().items()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        is_new = name not in self._values or self._values[name] != value
        self._values[str(name)] = value
        if is_new and self.on_change is not None:
            self.on_change(str(name))

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"the config has no {name!r}") from None

    __setattr__ = __setitem__

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


def _mapping(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, WandbConfig):
        return given.as_dict()
    return dict(given) if isinstance(given, Mapping) else dict(vars(given))
