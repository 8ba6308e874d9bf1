"""The sink that writes a run of MLflow."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # MLflow's own defaults are seven attempts of two minutes. `RetryingFeed` retries instead.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}.items():
    os.environ.setdefault(_name, _value)  # read when it is imported

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric, Param  # noqa: E402

from roost.base import durable  # noqa: E402
from roost.config.sections.mirrors import MlflowSettings  # noqa: E402
from roost.package import records  # noqa: E402
from roost.package.records import Row  # noqa: E402
from roost.train.mirrors.sink import RunIdentity, SessionEnd, SinkPosition, flatten_settings  # noqa: E402  # noqa: E402

_STATUS: dict[SessionEnd, str] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_TOKEN_TAG = "roost.mirror"
_MAX_METRICS, _MAX_PARAMS = 1000, 100
"""MLflow's limits for one request."""
_MAX_CHARACTERS = 500
"""Length of a parameter's value: the limit of older servers."""
_FORBIDDEN_CHARACTERS = re.compile(r"[^/\w.\- :]")


class MlflowSink:
    """Writes one run, which is found again by its id, or by a tag if a kill came before the id was saved.

    MLflow cannot remove values. The server is asked for its newest step when a session begins and after each
    failure; it gets the rows after that.

    Args:
        settings: The section ``mirrors.mlflow``.
        identity: The names and settings of the run.
        folder: The folder of a database and the files, if no server is configured.
        below: As for `durable.make_folders`: the package, which does not come back once it was removed.
        environment: The variables among which a server and an experiment are looked up.
    """

    can_rewind = False

    def __init__(
        self,
        settings: MlflowSettings,
        identity: RunIdentity,
        folder: Path,
        *,
        below: Path | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._environment = environment
        self._settings, self._identity, self._folder, self._below = settings, identity, folder, below
        self._client: Any = None
        self._id, self._token, self._artifacts = "", "", ""
        self._metrics: list[Any] = []
        self._printed: set[str] = set()
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)

    def connect(self, state: Mapping[str, Any]) -> SinkPosition:
        self._id = str(state.get("run_id", ""))
        self._token = str(state.get("token", ""))
        uri = self._settings.tracking_uri or self._environment.get("MLFLOW_TRACKING_URI")
        if uri is None:
            durable.make_folders(self._folder, below=self._below)
            uri = _sqlite_uri(_make_database(self._folder / "mlflow.db"))
        self._client = MlflowClient(uri)
        run = self._client.get_run(self._id) if self._id else self._find_or_create_run()
        self._id, self._artifacts = run.info.run_id, run.info.artifact_uri
        if run.info.status != "RUNNING":
            self._client.update_run(self._id, status="RUNNING")
        self._send_settings(run.data.params)
        steps = {metric.key: metric.step for metric in run.data._metric_objs}  # of each the newest
        last = max(steps.values(), default=-1)
        return SinkPosition(last, frozenset(key for key, step in steps.items() if step == last))

    def _find_or_create_run(self) -> Any:
        variable = self._environment.get("MLFLOW_EXPERIMENT_NAME")
        name = self._settings.experiment or variable or self._identity.project
        found = self._client.get_experiment_by_name(name)
        if found is None:
            local = None if self._has_server() else (self._folder / "artifacts").absolute().as_uri()
            experiment = self._client.create_experiment(name, artifact_location=local)
        else:
            experiment = found.experiment_id
        if self._token:
            runs = self._client.search_runs([experiment], f"tags.`{_TOKEN_TAG}` = '{self._token}'")
            if runs:
                return runs[0]
        run_name = self._settings.name or self._identity.name
        return self._client.create_run(experiment, run_name=run_name, tags={_TOKEN_TAG: self._token})

    def _has_server(self) -> bool:
        return bool(self._settings.tracking_uri or self._environment.get("MLFLOW_TRACKING_URI"))

    def _send_settings(self, known: Mapping[str, str]) -> None:
        """Sends the settings that the run lacks; MLflow does not allow to change a parameter."""
        settings = {
            _mlflow_name(key): value for key, value in flatten_settings(self._identity.settings).items()
        }
        params = [Param(key, value[:_MAX_CHARACTERS]) for key, value in settings.items() if key not in known]
        for at in range(0, len(params), _MAX_PARAMS):
            self._client.log_batch(self._id, params=params[at : at + _MAX_PARAMS])

    def rewind(self, step: int) -> None:
        raise NotImplementedError("MLflow cannot remove rows")

    def write_row(self, row: Row) -> None:
        at = int(row["time"] * 1000)
        for name, value in records.values(row).items():
            there = _mlflow_name(name)
            if there != name:
                self._warn(f"{name} is named {there} there, because MLflow forbids some characters")
            self._metrics.append(Metric(there, float(value), at, row["step"]))
        if len(self._metrics) >= _MAX_METRICS:
            self.flush()

    def write_media(self, step: int, path: Path) -> None:
        where = urlsplit(self._artifacts)
        if where.scheme in ("", "file") and not self._is_below(Path(unquote(where.path))):
            self._warn(
                f"media are not mirrored: the run's files are in {self._artifacts}, not in the package"
            )
            return
        self.flush()
        self._client.log_artifact(self._id, str(path), f"media/{step}")

    def _is_below(self, path: Path) -> bool:
        """Whether MLflow would write into this package; for a moved package it would use the old path."""
        return self._has_server() or path.is_relative_to(self._folder.absolute())

    def _warn(self, text: str) -> None:
        if text not in self._printed:
            print(f"mirror mlflow: {text}", flush=True)
        self._printed.add(text)

    def flush(self) -> None:
        while self._metrics:
            self._client.log_batch(self._id, metrics=self._metrics[:_MAX_METRICS])
            del self._metrics[:_MAX_METRICS]

    def state(self) -> dict[str, Any]:
        return {"run_id": self._id}

    def close(self, end: SessionEnd | None) -> None:
        if end is not None:
            self._client.set_terminated(self._id, _STATUS[end])


def _make_database(file: Path) -> Path:
    """Makes MLflow's database, unless there is one with a run; returns its path.

    MLflow makes the tables one by one, and cannot continue after a kill in between. So they are made in
    another folder; and a database without a run, which may be such a part, is replaced.
    """
    if _has_run(file):
        return file
    durable.sweep(file.parent)
    staging = durable.make_staging_folder(file)
    made = staging / file.name
    MlflowClient(_sqlite_uri(made)).search_experiments(max_results=1)
    durable.sync_file(made)
    durable.discard(file.with_name(f"{file.name}-journal"))  # SQLite would apply it to the new database
    durable.rename(made, file)
    durable.discard(staging)
    return file


def _has_run(file: Path) -> bool:
    """Whether a database has a run. One that cannot be read may have: MLflow reports what is wrong."""
    if not file.exists():
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return database.execute("SELECT 1 FROM runs LIMIT 1").fetchone() is not None
    except sqlite3.Error as error:
        return "no such table" not in str(error)


def _sqlite_uri(file: Path) -> str:
    return f"sqlite:///{file.absolute()}"


def _mlflow_name(name: str) -> str:
    return _FORBIDDEN_CHARACTERS.sub("_", name)
