"""MLflow, Aim and Trackio: the same runs through the API of each, and the same questions.

    python bench/trackers/peers.py TRACKER FOLDER fill COUNT LONG
    python bench/trackers/peers.py TRACKER FOLDER ask OPERATION EXPECTED

`bench/runs.py` calls this, with the interpreter of an environment that has them. The second form answers one
question, as a script of a user would: its time is that of the whole process.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import runs

PROJECT = "bench"
LISTED, COMPARED, PLOTTED = 20, 10, 40
CURVE = "train/loss"


def means(pairs: list[tuple[Any, float]]) -> dict[Any, tuple[float, int]]:
    """Returns mean and count of the values of each key."""
    groups: dict[Any, list[float]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return {key: (statistics.fmean(values), len(values)) for key, values in groups.items()}


class MLflow:
    """The client with a SQLite store. `log_batch` takes 1,000 metrics and 100 settings at a time."""

    def __init__(self, folder: Path) -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
        found = self.client.get_experiment_by_name(PROJECT)
        self.experiment = (
            found.experiment_id if found else self.client.create_experiment(PROJECT, str(folder))
        )

    def add(self, number: int, long_runs: int) -> None:
        from mlflow.entities import Metric, Param

        run = self.client.create_run(self.experiment, run_name=runs.name(number)).info.run_id
        params = [Param(key, str(value)) for key, value in runs.flat_settings(number).items()]
        self.client.log_batch(run, params=params)
        batch: list[Any] = []
        for step, values in runs.rows(number, long_runs):
            batch += [Metric(key, value, 0, step) for key, value in values.items()]
            if len(batch) >= 960:
                self.client.log_batch(run, metrics=batch[:1000])
                batch = batch[1000:]
        self.client.log_batch(run, metrics=batch)
        self.client.set_terminated(run)

    def search(self, query: str = "", count: int = LISTED) -> list[Any]:
        found: list[Any] = []
        token = None
        while len(found) < count:
            page = self.client.search_runs(
                [self.experiment], query, max_results=min(count, 1000), page_token=token,
                order_by=["attributes.start_time DESC"],
            )  # fmt: skip
            found += page
            if not (token := page.token):
                break
        return found

    def list(self) -> list[Any]:
        return self.search()

    def query(self) -> list[Any]:
        return self.search("params.`optimizer.lr` = '0.001'")

    def group(self) -> dict[Any, tuple[float, int]]:
        found = self.search(count=1 << 30)
        return means([(one.data.params["optimizer.lr"], one.data.metrics["valid/loss"]) for one in found])

    def compare(self) -> list[Any]:
        return [(one.data.params, one.data.metrics) for one in self.search(count=COMPARED)]

    def plot(self) -> list[Any]:
        return [self.client.get_metric_history(one.info.run_id, CURVE) for one in self.search(count=PLOTTED)]


class Aim:
    """A repository, without its own records of the machine and the terminal."""

    def __init__(self, folder: Path) -> None:
        import aim

        self.aim = aim
        self.repo = aim.Repo.from_path(str(folder), init=True)

    def add(self, number: int, long_runs: int) -> None:
        run = self.aim.Run(repo=self.repo, system_tracking_interval=None, capture_terminal_logs=False)
        run.name = runs.name(number)
        run["settings"] = runs.settings(number)
        for step, values in runs.rows(number, long_runs):
            run.track(values, step=step)
        run.close()
        from aim.sdk.index_manager import RepoIndexManager

        RepoIndexManager.get_index_manager(self.repo).index(run.hash)  # as `aim up` does, for queries

    def newest(self, query: str = "", count: int = LISTED) -> list[Any]:
        found = []
        for one in self.repo.query_runs(query, report_mode=0).iter_runs():
            found.append(one.run)
            if len(found) == count:
                break
        return found

    @staticmethod
    def row(run: Any) -> tuple[str, Any, dict[str, float]]:
        return run.name, run["settings"], {one.name: one.values.last()[1] for one in run.metrics()}

    def list(self) -> list[Any]:
        return [self.row(one) for one in self.newest()]

    def query(self) -> list[Any]:
        return [self.row(one) for one in self.newest("run.settings.optimizer.lr == 0.001")]

    def group(self) -> dict[Any, tuple[float, int]]:
        from aim.storage.context import Context

        found = self.newest(count=1 << 30)
        pairs = [
            (one["settings"]["optimizer"]["lr"], one.get_metric("valid/loss", Context({}))) for one in found
        ]
        return means([(key, series.values.last()[1]) for key, series in pairs])

    def compare(self) -> list[Any]:
        return [self.row(one) for one in self.newest(count=COMPARED)]

    def plot(self) -> list[Any]:
        from aim.storage.context import Context

        return [
            one.get_metric(CURVE, Context({})).values.sparse_numpy() for one in self.newest(count=PLOTTED)
        ]


class Trackio:
    """Its SQLite file; `SQLiteStorage.bulk_log` is what its importers of other trackers' runs call."""

    def __init__(self, folder: Path) -> None:
        os.environ["TRACKIO_DIR"] = str(folder)
        from trackio.sqlite_storage import SQLiteStorage

        self.storage = SQLiteStorage

    def add(self, number: int, long_runs: int) -> None:
        steps, values = zip(*runs.rows(number, long_runs), strict=True)
        self.storage.bulk_log(
            PROJECT, runs.name(number), list(values), steps=list(steps), config=runs.flat_settings(number)
        )

    def rows(self, records: list[Any]) -> list[Any]:
        """Returns name, settings and newest metrics of some runs."""
        found = []
        for one in records:
            config = self.storage.get_run_config(PROJECT, one["name"], run_id=one["id"])
            logs = self.storage.get_logs(PROJECT, one["name"], run_id=one["id"])
            found.append((one["name"], config, logs[-1]))
        return found

    def list(self) -> list[Any]:
        return self.rows(self.storage.get_run_records(PROJECT)[-LISTED:])

    def query(self) -> list[Any]:
        configs = self.storage.get_all_run_configs(PROJECT)
        names = {name for name, config in configs.items() if config and config.get("optimizer.lr") == 0.001}
        records = self.storage.get_run_records(PROJECT)
        return self.rows([one for one in records if one["name"] in names or one["id"] in names][-LISTED:])

    def group(self) -> dict[Any, tuple[float, int]]:
        found = self.rows(self.storage.get_run_records(PROJECT))
        return means([(config["optimizer.lr"], last["valid/loss"]) for _, config, last in found])

    def compare(self) -> list[Any]:
        return self.rows(self.storage.get_run_records(PROJECT)[-COMPARED:])

    def plot(self) -> list[Any]:
        found = self.storage.get_run_records(PROJECT)[-PLOTTED:]
        return [
            self.storage.get_metric_values(PROJECT, one["name"], CURVE, run_id=one["id"]) for one in found
        ]


TRACKERS: dict[str, type[MLflow | Aim | Trackio]] = {"mlflow": MLflow, "aim": Aim, "trackio": Trackio}


def main() -> None:
    tracker, folder, action, *rest = sys.argv[1:]
    opened = TRACKERS[tracker](Path(folder))
    if action == "fill":
        count, long_runs = map(int, rest)
        for number in range(count):
            opened.add(number, long_runs)
    else:
        operation, expected = rest
        answer = getattr(opened, operation)()
        counts = {"list": LISTED, "query": LISTED, "compare": COMPARED, "plot": PLOTTED}
        found = sum(count for _, count in answer.values()) if operation == "group" else len(answer)
        assert found == min(counts.get(operation, found), int(expected)), (operation, found)


if __name__ == "__main__":
    main()
