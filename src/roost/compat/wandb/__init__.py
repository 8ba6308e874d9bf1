"""W&B's import name over `roost.init`: ``import roost.compat.wandb as wandb`` in a script written for it.

wandb_run: the run: rows by W&B's rule of steps, summary, files, checkpoints
wandb_config: its settings, by attribute and by item
wandb_media: Image, Audio, Histogram, Table, Html

What has no counterpart is named once, on stderr, and never ends a training.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roost.base.errors import Refused, RoostError, UsageError
from roost.compat.wandb.wandb_config import WandbConfig
from roost.compat.wandb.wandb_media import Audio, Histogram, Html, Image, Table
from roost.compat.wandb.wandb_run import UNSUPPORTED, Resume, WandbRun

__all__ = ["Audio", "Histogram", "Html", "Image", "Table", "finish", "init", "log"]

Config, Run = WandbConfig, WandbRun
Error = CommError = RoostError
_current: WandbRun | None = None


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: str | Path | None = None,  # W&B's name
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
    config: Any = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    resume: bool | str | None = None,
    reinit: bool | str | None = None,
    config_exclude_keys: Sequence[str] = (),
    config_include_keys: Sequence[str] = (),
    **other: Any,
) -> WandbRun:
    """Begins the run of this process; W&B's signature. While one is open, it is returned, unless ``reinit``.

    Args:
        dir: The folder in whose ``runs`` the package is made; None: the working folder.
        id: The package's name; with ``resume``, the package of this name is continued.
        name: The package's name, without ``id``; with ``resume="auto"`` it finds the package, too.
        config: A mapping, or an ``argparse.Namespace``.
        project, group, job_type: Recorded as the tags ``project:…``, ``group:…`` and ``job:…``.
        mode: ``disabled``: nothing is recorded. All other modes record into the package.
        resume: ``allow``, ``must``, ``never``, or ``auto``; otherwise the run is a new one.

    Raises:
        NotFound: ``resume="must"``, and there is no such package.
        Refused: ``resume="never"``, and there is one; or the package has other settings, or is in use.
        UsageError: ``resume`` is none of these.
    """
    global _current
    if _current is not None and not _current.has_finished:
        if reinit in (None, False, "default", "return_previous"):
            return _current
        _current.finish()
    for key in [*(["entity"] if entity else []), *(key for key, value in other.items() if value is not None)]:
        UNSUPPORTED.say(f"init({key}=…)", "has no counterpart and is ignored")
    mode = mode or os.environ.get("WANDB_MODE") or "online"
    disabled = mode == "disabled" or os.environ.get("WANDB_DISABLED", "").lower() in ("1", "true")
    found = WandbConfig(config)
    found.keep(include=config_include_keys, exclude=config_exclude_keys)
    root = dir or os.environ.get("WANDB_DIR")
    _current = WandbRun(
        name=name or os.environ.get("WANDB_NAME"),
        id=id or os.environ.get("WANDB_RUN_ID"),
        project=project or os.environ.get("WANDB_PROJECT"),
        group=group,
        job_type=job_type,
        tags=tags or (),
        notes=notes,
        root=Path(root) / "runs" if root else None,
        config=found,
        resume=Resume.of(resume if resume is not None else os.environ.get("WANDB_RESUME")),
        is_recorded=not disabled,
    )
    return _current


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, **_: Any) -> None:
    """Records values of the current run; see `WandbRun.log`."""
    _opened().log(data, step=step, commit=commit)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """Ends the current run, if there is one."""
    if _current is not None:
        _current.finish(exit_code)


def login(*args: Any, **settings: Any) -> bool:
    """Needs no account: everything is recorded in the package."""
    return True


def _opened() -> WandbRun:
    if _current is None:
        raise UsageError("there is no run yet", fix="call wandb.init() first")
    return _current


_OF_RUN = (
    "save",
    "watch",
    "unwatch",
    "define_metric",
    "alert",
    "log_artifact",
    "log_code",
    "mark_preempting",
)
_REFUSED = {
    "agent": "give `roost submit` several values: optimizers.main.lr=1e-3,1e-4",
    "sweep": "give `roost submit` several values: optimizers.main.lr=1e-3,1e-4",
    "use_artifact": "read the file by its path; `roost.open_package(path)` reads a run",
    "restore": "read the file by its path: the folder `files` of the package",
}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "run":
        return None if _current is None or _current.has_finished else _current
    if name in ("config", "summary"):
        return getattr(_opened(), name)
    if name in _OF_RUN:
        return getattr(_opened(), name)
    if name in _REFUSED:
        raise Refused(f"wandb.{name} has no counterpart in roost", fix=_REFUSED[name])
    return UNSUPPORTED.placeholder(f"wandb.{name}")
