"""The sink that writes a run of Weights & Biases, or its files for `wandb sync`."""

from __future__ import annotations

import html
import json
import os
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from roost.base import durable
from roost.config.sections.mirrors import WandbSettings
from roost.package import records
from roost.package.records import Row
from roost.train.mirrors import wandb_offline_log
from roost.train.mirrors.sink import RunIdentity, SessionEnd, SinkPosition

_EXIT_CODES: dict[SessionEnd, int] = {"finished": 0, "failed": 1, "stopped": 255}
"""As W&B reads them: 255 means "killed", and the run may continue."""
_RESTRICTING_MODES = ("offline", "disabled", "dryrun")
_MAX_BINS = 512
"""W&B's limit for a histogram."""


class WandbSink:
    """Writes one run, whose id is made once and kept in the package, so every session continues it.

    W&B takes only increasing steps and cannot remove values. Its newest step is read from the files that are
    not uploaded yet, or requested from the server. Values that come late for a step go into the summary of
    the run. Code, git, machine and console are not captured, and nothing of the environment is sent.

    Args:
        settings: The section ``mirrors.wandb``.
        identity: The names and settings of the run.
        folder: The folder in which W&B makes its folder ``wandb``.
        below: As for `durable.make_folders`: the package, which does not come back once it was removed.
    """

    can_rewind = False

    def __init__(
        self, settings: WandbSettings, identity: RunIdentity, folder: Path, *, below: Path | None = None
    ) -> None:
        self._settings, self._identity, self._folder, self._below = settings, identity, folder, below
        self._run: Any = None
        self._id = ""
        self._last_old_step = -1
        """The newest step of earlier sessions; nothing can be added to it."""
        self._has_warned = False

    def connect(self, state: Mapping[str, Any]) -> SinkPosition:
        self._id = str(state.get("run_id") or state.get("token") or secrets.token_hex(8))
        os.environ.pop("WANDB_SERVICE", None)  # set if the run itself uses wandb
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        durable.make_folders(self._folder, below=self._below)
        mode, settings, identity = self._mode(), self._settings, self._identity
        position = self._read_position() if mode == "offline" else SinkPosition()
        if mode == "offline" and position.step < 0:  # the files were uploaded and then removed
            position = SinkPosition(state.get("last_step", -1))
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
            position = SinkPosition(self._run.starting_step - 1)
        if mode == "offline":
            files = f"{shlex.quote(str(self._folder / 'wandb'))}/offline-run-*"
            online = "" if mode != self._settings.mode else "; mirrors.wandb.mode=online sends during the run"
            print(f"mirror wandb: written offline; `wandb sync {files}` sends it{online}", flush=True)
        self._last_old_step = position.step
        return position

    def _mode(self) -> Any:
        """The mode: the user's environment may restrict the mode of the config, never extend it."""
        variable = os.environ.get("WANDB_MODE", "").lower()
        mode = "offline" if variable == "dryrun" else variable
        if variable in _RESTRICTING_MODES and mode != self._settings.mode:
            print(f"mirror wandb: WANDB_MODE={variable} overrides mirrors.wandb.mode", flush=True)
            return mode
        return self._settings.mode

    def _read_position(self) -> SinkPosition:
        position = SinkPosition()
        # If two sessions begin in the same second, the folder of the second one has a number at its end.
        for path in self._folder.glob(f"wandb/offline-run-*/run-{self._id}.wandb"):
            for logged in wandb_offline_log.history(path):
                step = int(logged.get("_step", -1))
                if step >= position.step:
                    position = SinkPosition(
                        step, frozenset(logged) | (position.names if step == position.step else frozenset())
                    )
        return position

    def rewind(self, step: int) -> None:
        raise NotImplementedError("W&B cannot remove rows")

    def write_row(self, row: Row) -> None:
        values: dict[str, Any] = records.values(row)
        if row["step"] <= self._last_old_step:
            self._run.summary.update(values)
            return
        self._run.log({**values, "epoch": row["epoch"], "_timestamp": row["time"]}, step=row["step"])

    def write_media(self, step: int, path: Path) -> None:
        if step <= self._last_old_step:
            return
        try:
            shown = _wandb_media(path)
        except (ValueError, TypeError, KeyError, OSError, wandb.Error) as error:
            if not self._has_warned:
                print(f"mirror wandb: {path.name} cannot be shown: {error}", flush=True)
            self._has_warned = True
            return
        if shown is not None:
            self._run.log({}, step=step)  # W&B names a file by the step of the log before
            self._run.log({path.stem: shown}, step=step)

    def flush(self) -> None:
        """Does nothing: wandb's own process writes and sends; the next session sends what it loses."""

    def state(self) -> dict[str, Any]:
        return {"run_id": self._id}

    def close(self, end: SessionEnd | None) -> None:
        if end is not None:
            self._run.finish(exit_code=_EXIT_CODES[end])
        wandb.teardown()


def _quiet_settings() -> Any:
    """Settings that print nothing and capture nothing that the user did not request."""
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
    """The W&B object of a media file; None if W&B does not know its kind. A matrix is stored with an image of
    it, which is shown."""
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
                raise ValueError(f"W&B allows at most {_MAX_BINS} bins")
            return wandb.Histogram(np_histogram=(found["counts"], found["edges"]))
    return None
