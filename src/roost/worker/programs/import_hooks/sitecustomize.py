"""Reports what a program logs through W&B, MLflow and TensorBoard's writers to the observer of its session.

Python imports this file automatically at the start of a program whose PYTHONPATH has this folder. It changes
nothing until one of these modules is imported, and never what a call of them returns or raises. It must work
with every Python 3 that a program may use, so it imports nothing of roost.
"""

# Not durable: the calls of a program, which its observer reads at once
# It must be quick to load, work whatever is broken, and change nothing: hence plain modules and broad guards.
# ruff: noqa: PTH100, PTH120, BLE001, SIM105

from __future__ import annotations

import importlib.machinery
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_CALLS = "ROOST_CALLS"


def _report(**call: Any) -> None:
    try:
        import json

        line = json.dumps(call).encode() + b"\n"
        fd = os.open(os.environ[_CALLS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)
    except Exception:  # the program must not notice
        pass


def _numbers(values: Any, prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items() if hasattr(values, "items") else ():
        name = prefix + str(name)
        if hasattr(value, "items"):
            found.update(_numbers(value, name + "/"))
            continue
        try:
            if hasattr(value, "item") and getattr(value, "size", 1) != 0:
                value = value.item()
            if isinstance(value, (int, float)):
                found[name] = float(value)
        except Exception:  # no scalar
            continue
    return found


def _wrap(owner: Any, name: str, report: Any, *, is_after: bool = False) -> None:
    """Replaces a function by one that reports its arguments first, or after the call."""
    original = getattr(owner, name, None)
    if original is None or getattr(original, "_roost", False):
        return

    def call(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options) if is_after else None
        try:
            report(*arguments, **options)
        except Exception:
            pass
        return result if is_after else original(*arguments, **options)

    vars(call).update(_roost=True, __wrapped__=original)
    call.__name__ = getattr(original, "__name__", name)
    call.__doc__ = original.__doc__
    setattr(owner, name, call)


def _watch_wandb(module: Any) -> None:
    steps: dict[int, int] = {}  # by run, as W&B counts them: to ask it for its step takes 0.4 ms

    def log(run: Any, data: Any = None, step: Any = None, commit: Any = None, *_: Any, **__: Any) -> None:
        if step is not None:
            steps[id(run)] = int(step)
        elif id(run) not in steps:
            steps[id(run)] = int(run.step)  # of a run that W&B continues
        _report(metrics=_numbers(data or {}), step=steps[id(run)])
        if commit or (commit is None and step is None):
            steps[id(run)] += 1

    _wrap(module.Run, "log", log)


def _watch_mlflow(module: Any) -> None:
    def log_metric(key: Any, value: Any, step: Any = None, *_: Any, **__: Any) -> None:
        _report(metrics=_numbers({key: value}), step=step)

    def log_metrics(metrics: Any, step: Any = None, *_: Any, **__: Any) -> None:
        _report(metrics=_numbers(metrics), step=step)

    _wrap(module, "log_metric", log_metric)
    _wrap(module, "log_metrics", log_metrics)


def _watch_roost(module: Any) -> None:
    def log(run: Any, metrics: Any, step: Any = None, **_: Any) -> None:
        _report(metrics=_numbers(metrics), step=run.step + 1 if step is None else step)

    _wrap(module.ScriptRun, "log", log)


def _watch_writer(module: Any) -> None:
    def opened(writer: Any, *_: Any, **__: Any) -> None:
        folder = getattr(writer, "log_dir", None) or writer.logdir  # of tensorboardX
        _report(events=os.path.abspath(os.fspath(folder)))

    _wrap(module.SummaryWriter, "__init__", opened, is_after=True)


_WATCHED = {
    "wandb.sdk.wandb_run": _watch_wandb,
    "mlflow.tracking.fluent": _watch_mlflow,
    "roost.operations.python_api.script_run": _watch_roost,
    "torch.utils.tensorboard.writer": _watch_writer,
    "tensorboardX.writer": _watch_writer,
}


class _Finder:
    """Finds the watched modules as usual, and changes them once they are loaded."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        watch = _WATCHED.get(name)
        if watch is None:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return None
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            try:
                watch(module)
            except Exception:  # a version with other names
                pass

        spec.loader.exec_module = exec_module
        return spec


def _run_other_sitecustomize() -> None:
    """Runs the `sitecustomize` that this one hides, such as that of the system."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != _FOLDER]
    spec: Any = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    spec.loader.exec_module(module_from_spec(spec))


if os.environ.get(_CALLS):
    sys.meta_path.insert(0, _Finder)
_run_other_sitecustomize()
