"""A run at Weights & Biases, or its files for `wandb sync`."""

from __future__ import annotations

import html
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from roost.base import durable
from roost.config.sections.mirrors import WandbSettings
from roost.package import records
from roost.package.records import Row
from roost.train.mirrors import wandb_offline_log
from roost.train.mirrors.run_identity import RunIdentity
from roost.train.mirrors.sink import SessionEnd, SinkPosition

_EXIT_CODES: dict[SessionEnd, int] = {"finished": 0, "failed": 1, "stopped": 255}
"""As W&B reads them: 255 is "killed", and may go on."""
_RESTRICTING_MODES = ("offline", "disabled", "dryrun")
_MAX_BINS = 512
"""Of a histogram, at W&B."""


class WandbSink:
    """One run, whose id is made once and kept with the package: every session goes on with it.

    W&B takes steps only upwards and takes nothing back. What it holds is read from the files that are not
    uploaded yet, or asked of the server. What comes late for a step goes into the run's summary. Code, git,
    machine, and console are not captured, and nothing of the environment is sent.

    Args:
        settings: ``mirrors.wandb``.
        identity: Whose run it is.
        folder: Gets a folder ``wandb`` with the files.
    """

    can_rewind = False

    def __init__(self, settings: WandbSettings, identity: RunIdentity, folder: Path) -> None:
        self._settings, self._identity, self._folder = settings, identity, folder
        self._run: Any = None
        self._id = ""
        self._old = -1
        """The newest step that was there before: nothing can be added to it."""
        self._said = False

    def connect(self, state: Mapping[str, Any]) -> SinkPosition:
        self._id = str(state.get("run_id") or state.get("token") or secrets.token_hex(8))
        os.environ.pop("WANDB_SERVICE", None)  # of a wandb that the run itself uses
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        durable.make_folders(self._folder)
        mode, settings, identity = self._mode(), self._settings, self._identity
        held = self._in_files() if mode == "offline" else SinkPosition()
        if mode == "offline" and held.step < 0:  # uploaded, and then removed
            held = SinkPosition(state.get("last_step", -1))
        self._run = wandb.init(
            id=self._id,
            resume="allow" if mode == "online" else None,
            mode=mode,
            dir=self._folder,
            entity=settings.entity,
            project=settings.project or os.environ.get("WANDB_PROJECT") or identity.project,
            name=settings.name or os.environ.get("WANDB_NAME") or identity.name,
            group=settings.group,
            tags=list(settings.tags) or None,
            config=dict(identity.settings),
            settings=_quiet_settings(),
        )
        if mode == "online":
            held = SinkPosition(self._run.starting_step - 1)
        self._old = held.step
        return held

    def _mode(self) -> Any:
        """The person's environment may ask for less than the config, never for more."""
        asked = os.environ.get("WANDB_MODE", "").lower()
        mode = "offline" if asked == "dryrun" else asked
        if asked in _RESTRICTING_MODES and mode != self._settings.mode:
            print(f"mirror wandb: WANDB_MODE={asked} is set, and counts", flush=True)
            return mode
        return self._settings.mode

    def _in_files(self) -> SinkPosition:
        held = SinkPosition()
        # Of two sessions that begin in one second, the second one's folder has a number at its end.
        for path in self._folder.glob(f"wandb/offline-run-*/run-{self._id}.wandb"):
            for logged in wandb_offline_log.history(path):
                step = int(logged.get("_step", -1))
                if step >= held.step:
                    held = SinkPosition(
                        step, frozenset(logged) | (held.names if step == held.step else frozenset())
                    )
        return held

    def rewind(self, step: int) -> None:
        raise NotImplementedError("W&B takes nothing back")

    def write_row(self, row: Row) -> None:
        values: dict[str, Any] = records.values(row)
        if row["step"] <= self._old:
            self._run.summary.update(values)
            return
        self._run.log({**values, "epoch": row["epoch"], "_timestamp": row["time"]}, step=row["step"])

    def write_media(self, step: int, path: Path) -> None:
        if step <= self._old:
            return
        try:
            shown = _wandb_media(path)
        except (ValueError, TypeError, KeyError, OSError, wandb.Error) as error:
            if not self._said:
                print(f"mirror wandb: {path.name} cannot be shown there: {error}", flush=True)
            self._said = True
            return
        if shown is not None:
            self._run.log({path.stem: shown}, step=step)

    def flush(self) -> None:
        """wandb's own process writes and sends what it was given; what it loses, the next session sends."""

    def state(self) -> dict[str, Any]:
        return {"run_id": self._id}

    def close(self, end: SessionEnd | None) -> None:
        if end is not None:
            self._run.finish(exit_code=_EXIT_CODES[end])
        wandb.teardown()


def _quiet_settings() -> Any:
    """Nothing is printed, and nothing captured that the person has not asked for."""
    return wandb.Settings(
        silent=True,
        console="off",
        save_code=False,
        disable_code=True,
        disable_git=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=1.0,
    )


def _wandb_media(path: Path) -> Any:
    """What W&B shows of a file; None of a kind that it does not know. A matrix has its picture beside it."""
    match path.suffix:
        case ".png":
            return wandb.Image(str(path))
        case ".wav":
            return wandb.Audio(str(path))
        case ".txt":
            return wandb.Html(f"<pre>{html.escape(path.read_text())}</pre>")
        case ".json":
            found = json.loads(path.read_bytes())
            if len(found["counts"]) > _MAX_BINS:
                raise ValueError(f"W&B takes {_MAX_BINS} bins")
            return wandb.Histogram(np_histogram=(found["counts"], found["edges"]))
    return None
