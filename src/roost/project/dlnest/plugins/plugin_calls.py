"""Calls of plugins before the project's methods with the same names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from roost.project.dlnest.classes.dataset_base import DatasetBase
from roost.project.dlnest.classes.life_cycle import LifeCycleBase
from roost.project.dlnest.classes.runner_base import RunnerBase

F = TypeVar("F", bound=Callable[..., Any])
_CLASSES: dict[str, type] = {"life cycle": LifeCycleBase, "dataset": DatasetBase, "runner": RunnerBase}
_INIT_NAMES = {"runner": ("runnerInit", "modelInit"), "dataset": ("datasetInit",), "life cycle": ()}
"""The functions of a plugin that run before ``init``, by the role of the object."""
_MERGED = ("initLog", "getSaveDict")
"""Methods that return a dict, to which plugins add."""
_NOT_CALLED = {
    "needVisualize", "needValidation", "needSaveModel", "holdThisCheckpoint", "needContinueTrain",
    "getArgs",
}  # fmt: skip
"""The project's decisions, and a method of another meaning in a plugin."""
_MARK = "_calls_plugins"


def checkPlugins(method: F) -> F:
    """Marks a further method of a project's class as one before which plugins' functions of its name run."""
    vars(method)[_MARK] = True
    return method


def checkDictOutputPlugins(method: F) -> F:
    """Marks a further method whose dict gets what the plugins' functions of its name return."""
    vars(method)[_MARK] = "merged"
    return method


def add_plugins(target: Any, plugins: Sequence[type], role: str, *, reports: bool) -> None:
    """Makes the methods of a project's object call the plugins' functions of their names first.

    A function's result is not used, except that a dict of `initLog` or `getSaveDict` is merged into the
    project's own, whose keys win. An error in one is printed once, and the run goes on.

    Args:
        target: The life cycle, dataset or runner.
        plugins: The plugin classes.
        role: What it is: "life cycle", "dataset" or "runner".
        reports: Whether this process prints errors of plugins.
    """
    said: set[str] = set()

    def call(plugin: type, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        try:
            return function(target, *given, **named)
        except Exception as error:  # noqa: BLE001  - a plugin only adds to a run
            name = getattr(plugin, "_NAME", plugin.__name__)
            text = f"plugin {name}: {function.__name__} failed: {type(error).__name__}: {error}"
            if reports and text not in said:
                print(text, flush=True)
            said.add(text)
            return None

    for name in _methods(target, _CLASSES[role]):
        sought = _INIT_NAMES[role] if name == "init" else (name,)
        functions = [
            functools.partial(call, plugin, function)
            for plugin in plugins
            for function in filter(callable, (getattr(plugin, one, None) for one in sought))
        ]
        if functions:
            method = getattr(target, name)
            merges = name in _MERGED or getattr(method, _MARK, None) == "merged"
            vars(target)[name] = _after(functions, method, merges=merges)


def _after(
    functions: Sequence[Callable[..., Any]], method: Callable[..., Any], *, merges: bool
) -> Callable[..., Any]:
    """Returns a method that calls the functions first."""

    @functools.wraps(method)
    def combined(*given: Any, **named: Any) -> Any:
        found = [function(*given, **named) for function in functions]
        own = method(*given, **named)
        if not merges or not isinstance(own, dict):
            return own
        added: dict[Any, Any] = {}
        for one in found:
            added.update(one if isinstance(one, dict) else {})
        own.update({key: value for key, value in added.items() if key not in own})
        return own

    return combined


def _methods(target: Any, base: type) -> list[str]:
    """Returns the methods before which plugins run: those of the base class, `validate`, and marked ones."""
    contract = {name for name in dir(base) if not name.startswith("_")} | {"validate"}
    every = {name: getattr(type(target), name) for name in dir(type(target))}
    return [
        name
        for name, one in every.items()
        if callable(one) and (name in contract - _NOT_CALLED or hasattr(one, _MARK))
    ]
