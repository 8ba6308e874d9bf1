"""The time of the server for lists and curves, compared with MLflow's store and TensorBoard's reader.

    python bench/server.py [--rounds 15] [--runs 10000] [--rows 1000000] [--no-peers]

1. ``--runs`` finished packages with realistic settings and ten rows each: `GET /api/v1/runs` for the newest
   hundred; for the best hundred that match a query on a setting and a metric; `roost ls` with that query.
   Measured the first time (without search index), and after that. Compared with MLflow's tracking store
   (SQLite, with the same runs, queried in this process without HTTP). It compares no numbers in parameters,
   so its query is on the metric alone.
2. A package with ``--rows`` rows of two values: one exact curve at 1,000 pixels. Measured without a cache,
   from the cache, and after a thousand more rows. Compared with the fold in Python (`records.fold`), MLflow's
   sample of the history, and TensorBoard's reader and its data server, which keep a sample of 10,000 points.
3. The server's memory before and after these requests, and its CPU time while idle.

Medians, wall clock, over the unix socket; the files are in the page cache.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from roost.operations.listing.search_fields import flatten
from roost.package import records
from roost.package.live_progress import ProgressFile
from roost.serve import server_control
from roost.serve.routes import served_packages

ROOST = str(Path(sys.executable).with_name("roost"))
QUERY = "optimizers.main.lr<1e-3 valid/accuracy>=0.9 sort:-valid/accuracy"
METRIC = "train/loss"
PIXELS = 1000
IDLE_SECONDS = 20.0


def settings(number: int, draw: random.Random) -> dict[str, Any]:
    """Returns realistic settings, as of a project with three config files."""
    return {
        "runner": "Model/Runner.py:Runner",
        "dataset": "Dataset/Dataset.py:Dataset",
        "save_root": "runs",
        "seed": number % 5,
        "threads": 2,
        "max_epochs": 30,
        "precision": draw.choice(["32", "bf16"]),
        "gradient_accumulation_steps": 1,
        "validate_every": "1ep",
        "log_every": "10/ep",
        "test_at_end": "best",
        "model": {
            "name": draw.choice(["resnet18", "resnet50", "vit_s"]),
            "width": draw.choice([64, 128, 256]), "depth": 12, "dropout": round(draw.random() / 2, 3),
            "norm": {"class": "torch.nn.LayerNorm", "eps": 1e-5}, "activation": "gelu",
            "heads": [{"classes": 10, "weight": 1.0}, {"classes": 100, "weight": 0.3}],
        },
        "data": {
            "batch_size": draw.choice([64, 128, 256]), "num_workers": 4, "root": "/data/sets/digits",
            "augment": {"crop": 28, "flip": True, "colour": [0.4, 0.4, 0.4, 0.1]},
            "valid": {"batch_size": 256}, "sampling": {"plan": "shuffled", "drop_last": False},
        },
        "optimizers": {
            "main": {
                "class": "torch.optim.AdamW", "lr": 10 ** draw.uniform(-4, -2), "weight_decay": 0.01,
                "betas": [0.9, 0.999], "params": "*", "max_grad_norm": 1.0,
                "scheduler": {
                    "class": "torch.optim.lr_scheduler.CosineAnnealingLR", "T_max": "${total_steps}",
                    "unit": "step", "warmup_steps": 100,
                },
            }
        },
        "checkpoint": {
            "every": "1ep", "fast": 2, "slow": 0, "held": 1,
            "best": [{"monitor": "valid/accuracy", "mode": "max", "top_k": 1}],
        },
        "early_stopping": {"monitor": "valid/loss", "mode": "min", "patience": 3, "min_delta": 0.0},
    }  # fmt: skip


def make_package(root: Path, number: int, rows: Iterator[str]) -> Path:
    """Writes the files of a finished run; not synced, so that ten thousand take seconds."""
    draw = random.Random(number)
    path = root / f"run-{number:05d}"
    for name in ("sessions", "records", "Checkpoints"):
        (path / name).mkdir(parents=True)
    here = {"host": socket.gethostname(), "boot_id": "0", "pid": 1, "start_ticks": 1}
    began = 1_780_000_000.0 + number * 60
    files = {
        "request.json": {"format": 1, "kind": "train", "description": draw.choice(["digits", "letters"])},
        "args.json": settings(number, draw),
        "provenance.json": {},
        "manifest.json": {"files": {}, "links": {}, "left_out": []},
        "sessions/1.request.json": {**here, "kind": "train", "overrides": []},
        "sessions/1.json": {**here, "state": draw.choice(["succeeded"] * 9 + ["failed"]), "exit_code": 0,
                            "started": began, "ended": began + 50, "seconds": 50.0},
    }  # fmt: skip
    for name, content in files.items():
        (path / name).write_text(json.dumps(content))
    ProgressFile(path / "progress").publish(30, 3, 0, 1, 30, 10, 120, 1.0, 100.0, 1.0)
    with (path / "records" / "1.jsonl").open("w") as file:
        file.write('{"session":1,"start_step":0,"time":1.0}\n')
        file.writelines(rows)
    return path


def few_rows(number: int) -> Iterator[str]:
    draw = random.Random(-number)
    for step in range(1, 11):
        values = {"train/loss": draw.random(), "valid/loss": draw.random(), "valid/accuracy": draw.random()}
        yield json.dumps({"step": step, "epoch": 0, "time": 1.78e9 + step, **values}) + "\n"


def many_rows(first: int, count: int) -> Iterator[str]:
    draw = random.Random(first)
    for step in range(first, first + count):
        loss, rate = math.exp(-step / 3e5) + draw.gauss(0, 0.02), 1e-3 * math.cos(step / 1e6)
        values = f'"time":{1.78e9 + step / 100!r},"train/loss":{loss!r},"lr":{rate!r}'
        yield f'{{"step":{step},"epoch":0,{values}}}\n'


@contextmanager
def temporary_lab() -> Iterator[Path]:
    """Creates a temporary folder with the state and the cache of a separate lab."""
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {
            "ROOST_STATE": f"{name}/state", "ROOST_LEASES": f"{name}/leases", "ROOST_DEVICES": "cpu",
            "XDG_CACHE_HOME": f"{name}/cache", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        yield Path(name)


def seconds(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


class ServerClient:
    """A server of a folder, with a client on its unix socket."""

    def __init__(self, root: Path) -> None:
        self._server = server_control.start(0, [root])
        socket_path = Path(os.environ["ROOST_STATE"]) / "lab" / "server.sock"
        transport = httpx.HTTPTransport(uds=str(socket_path))
        self._client = httpx.Client(transport=transport, base_url="http://roost/api/v1", timeout=600)

    def get(self, path: str, **query: Any) -> Any:
        found = self._client.get(path, params=query)
        assert found.status_code == 200, found.text
        return found.json()

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self._server.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._client.close()
        server_control.stop()


def table(title: str, once: dict[str, float], cases: dict[str, Callable[[], object]], rounds: int) -> None:
    """Times each case in turn, and prints the table; ratios are to the first case."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(seconds(case))
    base = statistics.median(next(iter(found.values())))
    print(f"| {title} | median ms | min … max | × |\n|---|---|---|---|")
    for name, value in once.items():
        print(f"| {name} | {value * 1e3:.0f} | once | {value / base:.1f} |")
    for name, values in found.items():
        middle = statistics.median(values)
        spread = f"{min(values) * 1e3:.1f} … {max(values) * 1e3:.1f}"
        print(f"| {name} | {middle * 1e3:.1f} | {spread} | {middle / base:.1f} |")
    print(flush=True)


def mlflow_store(folder: Path, runs: int, rows: Iterator[str]) -> Any:
    """Creates MLflow's store with the same runs, and one run more with the long curve.

    Written with SQL: MLflow's interface takes 20 ms per run.
    """
    import sqlite3

    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    file = folder / "mlflow.db"
    store = SqlAlchemyStore(f"sqlite:///{file}", str(folder / "artifacts"))
    one = store.create_run("0", "me", 1, [], "one").info.run_id
    database = sqlite3.connect(file)
    names = [row[1] for row in database.execute("PRAGMA table_info(runs)")]
    sample = dict(zip(names, database.execute("SELECT * FROM runs").fetchone(), strict=True))
    into_runs = f"INSERT INTO runs ({','.join(names)}) VALUES ({','.join(':' + name for name in names)})"
    into = "INSERT INTO {} (key,value,timestamp,step,is_nan,run_uuid) VALUES (?,?,?,?,0,?)"
    for number in range(runs):
        id = f"{number:032x}"
        changed = {"run_uuid": id, "name": f"run-{number:05d}", "status": "FINISHED", "start_time": number}
        database.execute(into_runs, {**sample, **changed})
        flat_settings = dict(flatten(settings(number, random.Random(number))))
        params = [(key, str(value), id) for key, value in flat_settings.items()]
        database.executemany("INSERT INTO params (key,value,run_uuid) VALUES (?,?,?)", params)
        for row in map(json.loads, few_rows(number)):
            values = [(key, value, 1, row["step"], id) for key, value in row.items() if "/" in key]
            database.executemany(into.format("metrics"), values)
        database.executemany(into.format("latest_metrics"), values)
    curve = ((METRIC, json.loads(row)[METRIC], at, at, one) for at, row in enumerate(rows))
    database.executemany(into.format("metrics"), curve)
    database.commit()
    database.close()
    return store, one


def event_file(folder: Path, rows: Iterator[str]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir()
    with (folder / "events.out.tfevents.1.here.1.0").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(file_version="brain.Event:2", wall_time=1.0).SerializeToString())
        for row in map(json.loads, rows):
            summary = Summary(value=[Summary.Value(tag=METRIC, simple_value=row[METRIC])])
            writer.write(Event(step=row["step"], wall_time=row["time"], summary=summary).SerializeToString())


def read_events(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), {"scalars": 10_000})
    found.Reload()
    assert len(found.Scalars(METRIC)) <= 10_000


def data_server(folder: Path) -> Callable[[int], list[Any]]:
    """Starts TensorBoard's data server; returns a function that reads points of its sample."""
    from tensorboard.context import RequestContext
    from tensorboard.data import server_ingester
    from tensorboard.data.provider import RunTagFilter
    from tensorboard.util.grpc_util import ChannelCredsType

    server = server_ingester.SubprocessServerDataIngester(
        server_binary=server_ingester.get_server_binary(),
        logdir=str(folder),
        reload_interval=0,
        channel_creds_type=ChannelCredsType.LOCAL,
        samples_per_plugin={"scalars": 10_000},
    )
    server.start()

    def points(most: int) -> list[Any]:
        selected = RunTagFilter(runs=["."], tags=[METRIC])
        found = server.data_provider.read_scalars(
            RequestContext(),
            experiment_id="",
            plugin_name="scalars",
            downsample=most,
            run_tag_filter=selected,
        )
        return list(found.get(".", {}).get(METRIC, []))

    return points


def wait_until_loaded(points: Callable[[int], list[Any]], rows: int) -> None:
    """Waits until the data server has read to the last row."""
    while not (found := points(10_000)) or found[-1].step < rows:
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--no-peers", action="store_true")
    arguments = parser.parse_args()
    with temporary_lab() as folder:
        root = folder / "runs"
        for number in range(arguments.runs):
            make_package(root, number, few_rows(number))
        long = make_package(folder / "long" / "runs", 0, many_rows(1, arguments.rows))
        store, one = (
            (None, "")
            if arguments.no_peers
            else mlflow_store(folder, arguments.runs, many_rows(1, arguments.rows))
        )
        if store is not None:
            event_file(folder / "events", many_rows(1, arguments.rows))
        client = ServerClient(folder / "runs")
        at_start = client.memory_mb()
        lists(client, root, store, arguments.rounds)
        after_lists = client.memory_mb()
        client.close()
        client = ServerClient(folder / "long")
        curves(client, long, store, one, folder / "events", arguments)
        after_curves = client.memory_mb()
        before = client.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        idle = (client.cpu_seconds() - before) / IDLE_SECONDS
        client.close()
        print(f"Memory of the server, MB: at start {at_start:.0f}", end="")
        print(f", after lists {after_lists:.0f}, after curves {after_curves:.0f}")
        print(f"Idle: {idle * 1e3:.2f} ms of CPU time per second")


def lists(client: ServerClient, root: Path, store: Any, rounds: int) -> None:
    once = {
        "list, first time": seconds(lambda: client.get("/runs")),
        "query, first time": seconds(lambda: client.get("/runs", query=QUERY)),
    }
    command = [ROOST, "ls", str(root), QUERY]
    cases: dict[str, Callable[[], object]] = {
        "list, the newest 100": lambda: client.get("/runs"),
        "query on a setting and a metric, the best 100": lambda: client.get("/runs", query=QUERY),
        "query on the metric, the best 100": lambda: client.get("/runs", query=QUERY.partition(" ")[2]),
        "`roost ls` with the query": lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True),
    }
    if store is not None:
        from mlflow.entities import ViewType

        view, best = ViewType.ACTIVE_ONLY, ["metrics.`valid/accuracy` DESC"]
        condition = "metrics.`valid/accuracy` >= 0.9"
        cases["MLflow: the newest 100"] = lambda: store.search_runs(["0"], "", view, 100)
        cases["MLflow: query on the metric, the best 100"] = lambda: store.search_runs(
            ["0"], condition, view, 100, best
        )
    table("lists", once, cases, rounds)


def curves(
    client: ServerClient, long: Path, store: Any, one: str, events: Path, arguments: argparse.Namespace
) -> None:
    path = f"/runs/{served_packages.run_id(long)}/records"
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "roost" / "records"

    def cached() -> None:
        found = client.get(path, name=METRIC, width=PIXELS)
        assert len(found["curves"][0]["columns"]) == min(PIXELS, arguments.rows)

    def cold() -> None:
        shutil.rmtree(cache, ignore_errors=True)
        cached()

    once = {
        "the server's first curve": seconds(cold),
        "`records.fold`": seconds(lambda: records.fold(long / "records")),
    }
    if store is not None:
        once["TensorBoard's reader, a sample"] = seconds(lambda: read_events(events))
        began = time.perf_counter()
        points = data_server(events)
        wait_until_loaded(points, arguments.rows)
        once["TensorBoard's data server, with its start, a sample"] = time.perf_counter() - began
    cases: dict[str, Callable[[], object]] = {"from the cache": cached, "without a cache": cold}
    if store is not None:
        cases["MLflow: a sample of 1,000"] = lambda: store.get_metric_history_bulk_interval_from_steps(
            one, METRIC, list(range(0, arguments.rows, max(1, arguments.rows // PIXELS))), PIXELS
        )
        cases["TensorBoard's data server: 1,000 of its sample"] = lambda: points(PIXELS)
    table("a curve", once, cases, max(3, arguments.rounds // 3))
    with (long / "records" / "1.jsonl").open("a") as file:
        file.writelines(many_rows(arguments.rows + 1, 1000))
    table("a curve, appended to", {}, {"after 1,000 more rows": cached}, arguments.rounds)


if __name__ == "__main__":
    main()
